"""Opens checkpoints: finds the tensors of .safetensors and torch.save files by name, without reading them."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from ....registration import ModelFileError, UsageError
from ...files.checkpoints.folder import read_checkpoint
from ...files.reading.bounds import BOUNDS
from ...files.reading.names import quoted
from ...files.weights.stored_tensors import FileTensor, StoredFile
from ...files.zip_entries import oversized_entry

if TYPE_CHECKING:
    from ...torch_boundary.state.attached_state import CheckpointTensor

Weights = str | os.PathLike[str] | Mapping[str, object]
"""A file or a folder, or a mapping from names to tensors."""


def open_weights(path: str | os.PathLike[str]) -> dict[str, ir.TensorProtocol]:
    """The tensors of a checkpoint by name. Their contents stay in the file until they are needed.

    To rename, omit or add tensors, change the mapping and pass it to `export(weights=...)`.

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


def _read_zip(file: StoredFile, label: str) -> dict[str, ir.TensorProtocol]:
    """The tensors of a checkpoint of torch.save.

    Raises:
        ModelFileError: it contains other objects, or tensors that are not stored with their layout in memory.
    """
    # Only files of torch.save need torch, whose import takes seconds.
    from ...torch_boundary.requirements import need_torch
    from ...torch_boundary.state.attached_state import CheckpointTensor, checkpoint_tensors

    need_torch("reading a checkpoint of torch.save")
    _check_stored(file, label)
    try:
        content = checkpoint_tensors(file.path)
    except ValueError as error:
        raise ModelFileError(f"{label} cannot be read: {error}") from error
    tensors = {name: item for name, item in content.items() if isinstance(item, CheckpointTensor)}
    other_names = [name for name in content if name not in tensors]
    if other_names or not all(isinstance(name, str) for name in content):
        raise ModelFileError(
            f"{label} holds more than tensors by name, such as "
            f"{quoted(str(other_names[0] if other_names else ''))}: pass a mapping, such as "
            "torch.load(path, mmap=True, weights_only=True)['state_dict']"
        )
    return {name: _tensor(file, location, name, label) for name, location in tensors.items()}


def _check_stored(file: StoredFile, label: str) -> None:
    """Refuse an archive whose records are not the plain bytes of the tensors."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            size_problem = oversized_entry(archive, file.size)
            if size_problem is not None:
                raise ModelFileError(f"{label} {size_problem}")
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise ModelFileError(f"{label} is compressed: write it with torch.save")
                if entry.filename.endswith("/byteorder") and archive.read(entry) != b"little":
                    raise ModelFileError(f"{label} was written on a big-endian machine")
    except zipfile.BadZipFile as error:
        raise ModelFileError(f"{label} is damaged: {error}") from error


def _tensor(file: StoredFile, location: CheckpointTensor, name: str, label: str) -> ir.TensorProtocol:
    from ..fx_import.source_values import element_type

    dtype = element_type(location.dtype)
    if location.end > file.size or location.offset < 0:
        raise ModelFileError(f"tensor {quoted(name)} is outside of {label}")
    tensor = FileTensor(file, location.offset, dtype, location.shape, name)
    # torch.save stores whole storages, of which a tensor may be a view with any strides.
    if 0 in location.shape or _is_contiguous(location.shape, location.strides):
        return tensor
    size = math.prod(location.shape) * dtype.bitwidth // 8
    if size > BOUNDS.memory + location.end - location.offset:
        raise ModelFileError(
            f"tensor {quoted(name)} in {label} repeats {location.end - location.offset} bytes to {size}: "
            "load it with torch.load, and pass a mapping from names to tensors"
        )
    steps = [stride * (dtype.bitwidth // 8) for stride in location.strides]
    flat = FileTensor(
        file, location.offset, dtype, ((location.end - location.offset) // location.dtype.itemsize,), name
    )

    def gather_elements() -> ir.TensorProtocol:
        view = np.lib.stride_tricks.as_strided(flat.numpy(), location.shape, steps, writeable=False)
        return ir.Tensor(np.ascontiguousarray(view), dtype=dtype, name=name)

    return ir.LazyTensor(gather_elements, dtype=dtype, shape=ir.Shape(location.shape), name=name)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected_stride = math.prod(shape)
    for size, stride in zip(shape, strides, strict=True):
        expected_stride //= size
        # The stride of a dimension of size 1 has no effect.
        if size != 1 and stride != expected_stride:
            return False
    return True
