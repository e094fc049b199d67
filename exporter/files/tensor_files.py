"""Writes named tensors to .safetensors and .npz files, one at a time.

The package safetensors would hold all of a file in memory. Its format is a length, a JSON object with the
type, shape and place of each tensor, and their bytes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import zipfile
from collections.abc import Callable, Sequence
from typing import IO, Any, cast

import numpy as np

from ...registration import ModelFileError
from .reading.names import listed, quoted

_SAFETENSORS = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "complex64": "C64",
}
"""The names of element types, by those of numpy."""
_RESERVED = "__metadata__"
_ALIGNMENT = 8


@dataclasses.dataclass(frozen=True)
class NamedTensor:
    """A tensor to be written.

    Attributes:
        name: its name.
        dtype: its element type in numpy.
        shape: its shape.
        read: reads its contents.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def write_safetensors(file: IO[bytes], tensors: Sequence[NamedTensor]) -> None:
    """Write tensors in the format of safetensors.

    Raises:
        ModelFileError: the format does not have an element type, or a name.
    """
    _check(tensors, [t for t in tensors if t.dtype.name not in _SAFETENSORS], ".safetensors")
    if any(tensor.name == _RESERVED for tensor in tensors):
        raise ModelFileError(f"a .safetensors file cannot contain a tensor called {_RESERVED}")
    header, end = {}, 0
    for tensor in tensors:
        begin, end = end, end + math.prod(tensor.shape) * tensor.dtype.itemsize
        type_name = _SAFETENSORS[tensor.dtype.name]
        header[tensor.name] = {"dtype": type_name, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in tensors:
        if math.prod(tensor.shape):
            file.write(np.ascontiguousarray(tensor.read()).reshape(-1).view(np.uint8).data)


def write_npz(file: IO[bytes], tensors: Sequence[NamedTensor]) -> None:
    """Write tensors as an .npz archive, without compression.

    Raises:
        ModelFileError: numpy does not have an element type.
    """
    # numpy writes the types of other packages as bytes without a type, and objects as code to run.
    _check(tensors, [t for t in tensors if t.dtype.kind in "VO"], ".npz")
    with zipfile.ZipFile(cast("IO[bytes]", _Unseekable(file)), "w", zipfile.ZIP_STORED) as archive:
        for tensor in tensors:
            # A date of its own would give the same weights other bytes.
            entry = zipfile.ZipInfo(f"{tensor.name}.npy", (1980, 1, 1, 0, 0, 0))
            with archive.open(entry, "w", force_zip64=True) as target:
                np.lib.format.write_array(target, np.ascontiguousarray(tensor.read()).reshape(tensor.shape))


def _check(tensors: Sequence[NamedTensor], refused: Sequence[NamedTensor], suffix: str) -> None:
    names = [tensor.name for tensor in tensors]
    if len(set(names)) < len(names):
        raise ModelFileError(f"two weights have the same name, which a {suffix} file does not allow")
    if refused:
        kinds = [f"{quoted(t.name)} ({'string' if t.dtype.kind == 'O' else t.dtype.name})" for t in refused]
        raise ModelFileError(f"a {suffix} file does not support the element types of {listed(kinds)}")


class _Unseekable:
    """A write-only file without seek, so that an archive is written sequentially."""

    def __init__(self, file: IO[bytes]):
        self._file = file

    def write(self, data: Any) -> int:
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Nothing: the owner of the file flushes it."""
