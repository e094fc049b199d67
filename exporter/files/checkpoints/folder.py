"""Finds the files of a checkpoint: one file, the files that an index lists, or a folder with either."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping

import onnx_ir as ir

from ....registration import ModelFileError
from ..reading.external_data.files import ExternalFiles, ModelFolder, check_relative
from ..reading.names import listed, quoted
from ..small_files import read_small, reason_of
from ..weights.stored_tensors import StoredFile
from .safetensors import is_safetensors, parse_object, read_safetensors

Tensors = Mapping[str, ir.TensorProtocol]
ReadZip = Callable[[StoredFile, str], Tensors]
"""Reads a checkpoint of torch.save, which is a zip archive."""

_PREFERRED = (
    "model.safetensors.index.json",
    "model.safetensors",
    "diffusion_pytorch_model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
)
"""The names that Hugging Face's libraries give to checkpoints, in the order in which they look."""
_SUFFIXES = (".safetensors.index.json", ".safetensors", ".pt", ".pth")
_ZIP = b"PK\x03\x04"
_REMEDY = "give the path of the file itself"


def read_checkpoint(path: str | os.PathLike[str], read_zip: ReadZip) -> dict[str, ir.TensorProtocol]:
    """The tensors of a checkpoint by name; their contents are not read.

    Args:
        path: a .safetensors file, a checkpoint of torch.save, an index of several such files, or a folder.
        read_zip: reads a checkpoint of torch.save.

    Raises:
        ModelFileError: there is no checkpoint, or one of its files is malformed or outside of its folder.
    """
    title = quoted(os.fspath(path))
    checkpoint = pathlib.Path(path)
    try:
        if checkpoint.is_dir():
            checkpoint = _find_in_folder(checkpoint)
        if checkpoint.name.endswith(".json"):
            return _read_indexed_files(checkpoint, read_zip)
        return dict(_of_file(StoredFile.at(checkpoint), quoted(checkpoint.name), read_zip))
    except ModelFileError as error:
        raise ModelFileError(f"the weights in {title} cannot be read: {error}") from None
    except (OSError, ValueError) as error:
        # mmap raises ValueError for an empty file.
        raise ModelFileError(f"the weights in {title} cannot be read: {reason_of(error)}") from None


def _find_in_folder(folder: pathlib.Path) -> pathlib.Path:
    """Find the checkpoint in a folder, or its index."""
    names = sorted(os.listdir(folder))
    for name in _PREFERRED:
        if name in names:
            return folder / name
    for suffix in _SUFFIXES:
        fitting = [name for name in names if name.endswith(suffix)]
        if len(fitting) == 1:
            return folder / fitting[0]
        if fitting:
            raise ModelFileError(
                f"it has several files {suffix}, {listed(list(map(quoted, fitting)))}: {_REMEDY}"
            )
    raise ModelFileError(
        "it has no .safetensors file, and no checkpoint of torch.save with the suffix .pt or .pth"
    )


def _of_file(file: StoredFile, title: str, read_zip: ReadZip) -> Tensors:
    head = file.contents[:9].tobytes()
    if head.startswith(_ZIP):
        return read_zip(file, title)
    if is_safetensors(head):
        return read_safetensors(file, title)
    raise ModelFileError(
        f"{title} is neither a .safetensors file nor a checkpoint of torch.save: load other files yourself, "
        "and pass a mapping from names to tensors"
    )


def _read_indexed_files(index: pathlib.Path, read_zip: ReadZip) -> dict[str, ir.TensorProtocol]:
    """Read the tensors of the files that an index lists; the files are in its folder."""
    weights = parse_object(read_small(index), f"the index {quoted(index.name)}").get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights.values()):
        raise ModelFileError(f"the index {quoted(index.name)} has no weight_map from tensors to files")
    files = ExternalFiles(ModelFolder.of(index), lambda subject, title: None, remedy=_REMEDY)
    tensors: dict[str, ir.TensorProtocol] = {}
    for location in dict.fromkeys(weights.values()):
        check_relative(location, "the checkpoint")
        file_tensors = _of_file(files.file(location, "the checkpoint"), quoted(location), read_zip)
        indexed_names = {name for name, file_name in weights.items() if file_name == location}
        if indexed_names != file_tensors.keys():
            differing = listed(list(map(quoted, sorted(indexed_names.symmetric_difference(file_tensors)))))
            raise ModelFileError(f"the index and {quoted(location)} contradict each other about {differing}")
        tensors.update(file_tensors)
    return tensors
