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
import onnx_ir as ir

from ....registration import ModelFileError
from ..reading.names import listed, quoted

SAFETENSORS_TYPES = {
    "BOOL": ir.DataType.BOOL,
    "U8": ir.DataType.UINT8,
    "I8": ir.DataType.INT8,
    "U16": ir.DataType.UINT16,
    "I16": ir.DataType.INT16,
    "U32": ir.DataType.UINT32,
    "I32": ir.DataType.INT32,
    "U64": ir.DataType.UINT64,
    "I64": ir.DataType.INT64,
    "F16": ir.DataType.FLOAT16,
    "BF16": ir.DataType.BFLOAT16,
    "F32": ir.DataType.FLOAT,
    "F64": ir.DataType.DOUBLE,
    "F8_E5M2": ir.DataType.FLOAT8E5M2,
    "F8_E4M3": ir.DataType.FLOAT8E4M3FN,
    "C64": ir.DataType.COMPLEX64,
}
"""The element types of the format safetensors by their names."""
SAFETENSORS_METADATA = "__metadata__"
"""The name of the entry of a header that is no tensor."""
_TYPE_NAMES = {data_type.numpy().name: name for name, data_type in SAFETENSORS_TYPES.items()}
"""By numpy's name of an element type, the name in the file."""
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
    _check(tensors, [t for t in tensors if t.dtype.name not in _TYPE_NAMES], ".safetensors")
    if any(tensor.name == SAFETENSORS_METADATA for tensor in tensors):
        raise ModelFileError(f"a .safetensors file cannot contain a tensor called {SAFETENSORS_METADATA}")
    header, end = {}, 0
    for tensor in tensors:
        begin, end = end, end + math.prod(tensor.shape) * tensor.dtype.itemsize
        type_name = _TYPE_NAMES[tensor.dtype.name]
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
            # A fixed date, so that the same weights give the same bytes.
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
