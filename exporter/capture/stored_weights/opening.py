"""Opens checkpoints: the tensors of .safetensors files and of torch.save, by name, without reading them."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration import ModelFileError, UsageError
from ...files.checkpoints.folder import read_checkpoint
from ...files.reading.bounds import BOUNDS
from ...files.reading.names import quoted
from ...files.stored_tensors import FileTensor, StoredFile
from ...files.zip_entries import oversized_entry

Weights = str | os.PathLike | Mapping[str, Any]
"""A file or a folder, or a mapping from names to tensors."""


def open_weights(path: str | os.PathLike) -> dict[str, ir.TensorProtocol]:
    """The tensors of a checkpoint by name. Their contents stay in the file until they are needed.

    Change the names, leave tensors out or add some, and give the mapping to `export(weights=...)`.

    Args:
        path: a .safetensors file, a checkpoint of torch.save, the index of a sharded checkpoint
            (`*.safetensors.index.json`, `pytorch_model.bin.index.json`), or a folder with one of these.

    Raises:
        UsageError: `path` is not a path.
        ModelFileError: there is no checkpoint, or a file of it is malformed or outside of its folder.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"open_weights needs a path, not a {type(path).__name__}")
    return read_checkpoint(path, _read_zip)


def _read_zip(file: StoredFile, shown: str) -> dict[str, ir.TensorProtocol]:
    """The tensors of a checkpoint of torch.save.

    Raises:
        ModelFileError: it holds something else, or tensors that are not stored as they are in memory.
    """
    from ...torch_boundary.requirements import need_torch
    from ...torch_boundary.state.attached_state import Place, checkpoint_places

    need_torch("reading a checkpoint of torch.save")
    _check_stored(file, shown)
    try:
        content = checkpoint_places(file.path)
    except ValueError as error:
        raise ModelFileError(f"{shown} cannot be read: {error}") from error
    other = [name for name, item in content.items() if not isinstance(item, Place)]
    if other or not all(isinstance(name, str) for name in content):
        raise ModelFileError(
            f"{shown} holds more than tensors by name, such as {quoted(str(other[0] if other else ''))}: "
            "pass a mapping, such as torch.load(path, mmap=True, weights_only=True)['state_dict']"
        )
    return {name: _tensor(file, place, name, shown) for name, place in content.items()}


def _check_stored(file: StoredFile, shown: str) -> None:
    """Refuse an archive whose records are not the bytes of the tensors."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            large = oversized_entry(archive, file.size)
            if large is not None:
                raise ModelFileError(f"{shown} {large}")
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise ModelFileError(f"{shown} is compressed: write it with torch.save")
                if entry.filename.endswith("/byteorder") and archive.read(entry) != b"little":
                    raise ModelFileError(f"{shown} was written on a big-endian machine")
    except zipfile.BadZipFile as error:
        raise ModelFileError(f"{shown} is damaged: {error}") from error


def _tensor(file: StoredFile, place: Any, name: str, shown: str) -> ir.TensorProtocol:
    from ..torch_export.source_values import element_type

    dtype = element_type(place.dtype)
    if place.end > file.size or place.offset < 0:
        raise ModelFileError(f"tensor {quoted(name)} is outside of {shown}")
    tensor = FileTensor(file, place.offset, dtype, place.shape, name)
    if 0 in place.shape or _is_contiguous(place.shape, place.strides):
        return tensor
    size = math.prod(place.shape) * dtype.bitwidth // 8
    if size > BOUNDS.memory + place.end - place.offset:
        raise ModelFileError(
            f"tensor {quoted(name)} in {shown} repeats {place.end - place.offset} bytes to {size}: load it "
            "with torch.load, and pass a mapping from names to tensors"
        )
    steps = [stride * (dtype.bitwidth // 8) for stride in place.strides]
    flat = FileTensor(file, place.offset, dtype, ((place.end - place.offset) // place.dtype.itemsize,), name)

    def gathered() -> ir.TensorProtocol:
        view = np.lib.stride_tricks.as_strided(flat.numpy(), place.shape, steps, writeable=False)
        return ir.Tensor(np.ascontiguousarray(view), dtype=dtype, name=name)

    return ir.LazyTensor(gathered, dtype=dtype, shape=ir.Shape(place.shape), name=name)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    due = math.prod(shape)
    for size, stride in zip(shape, strides, strict=True):
        due //= size
        if size != 1 and stride != due:
            return False
    return True
