"""Weights of a source file: stored in it, beside it, or omitted and passed again when it is loaded."""

from __future__ import annotations

import os
import pathlib
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from ....registration import KIND, PERSISTENT, ModelFileError
from ..output.publishing import DataFile
from ..reading import Bounds, read_model
from ..reading.bounds import REMEDY
from ..reading.checks.memory import PROPORTION
from ..reading.external_data.files import ExternalFiles, Folder
from ..small_files import open_regular, reason_of
from ..weights.message import Initializer
from ..zip_entries import unpacked_size
from .initializer_contents import (
    EXTERNAL_FROM,
    contents,
    digest,
    external_tensor,
    tensor_header,
    tensor_message,
    tensor_of,
)
from .layout import DIGEST, join_quoted, read_metadata
from .values import original_name

MODES = ("inline", "external", "none")
Weights = Mapping[str, object] | str | os.PathLike[str] | None


def is_left_out(value: ir.Value) -> bool:
    """Whether `weights="none"` omits an initializer: a state_dict contains it.

    Constants of the program and non-persistent buffers stay in the file.
    """
    metadata = value.metadata_props
    return metadata.get(KIND) in ("parameter", "buffer") and metadata.get(PERSISTENT) != "false"


def digests(values: Iterable[ir.Value]) -> dict[ir.Value, str]:
    """The SHA-256 of each omitted weight."""
    return {value: digest(contents(value)) for value in values if is_left_out(value)}


def store(values: Iterable[ir.Value], data: DataFile) -> dict[ir.Value, int]:
    """Write the large initializers to a data file, and return the offset of each."""
    offsets: dict[ir.Value, int] = {}
    for value in values:
        tensor = contents(value)
        if tensor.dtype != ir.DataType.STRING and tensor.nbytes >= EXTERNAL_FROM:
            offsets[value] = data.append(tensor)
    return offsets


def initializers(
    values: Iterable[ir.Value],
    names: Mapping[ir.Value, str],
    left_out: Mapping[ir.Value, str],
    offsets: Mapping[ir.Value, int],
    location: str | None,
) -> list[Initializer]:
    """The messages of initializers, each with the tensor that has its contents if the message has none.

    Args:
        offsets: the offsets of the initializers in the data file.
        location: the data file's name.
    """
    messages: list[Initializer] = []
    for value in values:
        tensor = contents(value)
        if value in left_out:
            messages.append((tensor_header(value, names[value]), None))
        elif tensor.dtype == ir.DataType.STRING:
            messages.append((tensor_message(value, names[value]), None))
        elif value in offsets:
            header = tensor_header(value, names[value])
            header.data_location = onnx.TensorProto.EXTERNAL
            entries = {"location": location, "offset": offsets[value], "length": tensor.nbytes}
            for key, text in entries.items():
                header.external_data.add(key=key, value=str(text))
            messages.append((header, None))
        else:
            messages.append((tensor_header(value, names[value]), tensor))
    return messages


class WeightReader:
    """Supplies the contents of initializers to a `GraphReader`.

    Raises:
        ModelFileError: weights that the file omits are missing or differ.
    """

    def __init__(self, graph: onnx.GraphProto, folder: Folder, weights: Weights, bounds: Bounds):
        self._files = _files_in(folder)
        self._supplied_tensors = _load_omitted_weights(graph, weights, bounds)

    def __call__(self, message: onnx.TensorProto, format_metadata: dict[str, str]) -> ir.TensorProtocol:
        """The tensor of an initializer."""
        if DIGEST in format_metadata:
            return self._supplied_tensors[message.name]
        return read_tensor(message, self._files)


def _files_in(folder: Folder) -> ExternalFiles:
    return ExternalFiles(folder, lambda subject, title: None)


def read_tensor(message: onnx.TensorProto, files: ExternalFiles) -> ir.TensorProtocol:
    """The tensor of an initializer whose contents are in the file or beside it.

    Raises:
        ModelFileError: the contents are missing or cannot be read.
    """
    if message.data_location == onnx.TensorProto.EXTERNAL:
        return external_tensor(message, files)
    return tensor_of(message)


def _format_metadata(graph: onnx.GraphProto) -> dict[str, dict[str, str]]:
    """The file's own metadata of each initializer."""
    metadata_by_name: dict[str, dict[str, str]] = {message.name: {} for message in graph.initializer}
    for info in (*graph.input, *graph.value_info):
        if info.name in metadata_by_name:
            metadata_by_name[info.name] = read_metadata(info.metadata_props)[1]
    return metadata_by_name


def _load_omitted_weights(
    graph: onnx.GraphProto, weights: Weights, bounds: Bounds
) -> dict[str, ir.TensorProtocol]:
    """The checked weights that the file omits, by their names in the file."""
    metadata_by_name = _format_metadata(graph)
    tensors: dict[str, ir.TensorProtocol] = {}
    missing: list[str] = []
    changed: list[str] = []
    supplied_weights: Mapping[str, object] | None = None
    for message in graph.initializer:
        format_metadata = metadata_by_name[message.name]
        if DIGEST not in format_metadata:
            continue
        if supplied_weights is None:
            # Only now: a file that contains all its weights ignores `weights`, even an unreadable path.
            supplied_weights = _open_weights(weights, bounds)
        name = original_name(format_metadata, message.name) or ""
        if name not in supplied_weights:
            missing.append(name)
            continue
        tensors[message.name] = tensor = given_tensor(supplied_weights[name], name)
        expected_type = f"{ir.DataType(message.data_type).name}{list(message.dims)}"
        actual_type = f"{tensor.dtype.name}{list(tensor.shape)}"
        if actual_type != expected_type:
            changed.append(f"'{name}' is {actual_type}, and was {expected_type}")
        elif digest(tensor) != format_metadata[DIGEST]:
            changed.append(f"'{name}' has other contents, by its SHA-256")
    _refuse(missing, changed, weights)
    return tensors


def _refuse(missing: Sequence[str], changed: Sequence[str], weights: Weights) -> None:
    problems = []
    if missing:
        hint = "; pass weights=, a mapping or a path" if weights is None else ""
        problems.append(f"the file has no contents for {_count_text(missing)}: {join_quoted(missing)}{hint}")
    if changed:
        problems.append(f"{_count_text(changed)} changed since it was written: {', '.join(changed[:8])}")
    if problems:
        raise ModelFileError("; ".join(problems))


def _count_text(items: Sequence[str]) -> str:
    return f"{len(items)} weight{'' if len(items) == 1 else 's'}"


def given_tensor(item: object, name: str) -> ir.TensorProtocol:
    """A weight that the caller gave: a torch tensor, a numpy array, or a tensor of onnx_ir.

    Raises:
        ModelFileError: it is none of these.
    """
    # Tell torch's tensors by their module: files are read on machines without torch too.
    detach = getattr(item, "detach", None)
    if detach is not None and type(item).__module__.partition(".")[0] == "torch":
        from onnx_ir import tensor_adapters

        return tensor_adapters.TorchTensor(detach(), name=name)
    if isinstance(item, np.ndarray):
        return ir.Tensor(item, name=name)
    if isinstance(item, ir.TensorProtocol):
        return item
    raise ModelFileError(f"weight '{name}' is a {type(item).__name__}, not an array or tensor")


_UNREADABLE = (
    *(OSError, ValueError, SyntaxError, MemoryError, RecursionError),
    *(zlib.error, zipfile.BadZipFile, tokenize.TokenError),
)
"""What zipfile and numpy raise for damaged archives and headers of arrays, which are Python expressions."""


def read_arrays(path: pathlib.Path, bounds: Bounds) -> dict[str, np.ndarray]:
    """The arrays of an .npz file.

    Raises:
        ModelFileError: it cannot be read, or has more than its size allows.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as entries:
            # A small archive may unpack to more than fits into memory.
            size, allowed = unpacked_size(entries), bounds.memory + PROPORTION * path.stat().st_size
            if size > allowed:
                raise ModelFileError(
                    f"'{path}' cannot be read: it unpacks to {size} bytes, more than the limit of {allowed}; "
                    f"{REMEDY}"
                )
            # zipfile has moved the position, and np.load reads from it.
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = dict(archive)
    except ModelFileError:
        raise
    except _UNREADABLE as error:
        reason = reason_of(error) or type(error).__name__
        raise ModelFileError(f"'{path}' cannot be read as an .npz file: {reason}") from error
    if not all(isinstance(item, np.ndarray) for item in arrays.values()):
        raise ModelFileError(
            f"'{path}' is an archive without arrays; load a file of torch.save with torch.load(path, "
            "weights_only=True), and pass the mapping"
        )
    return arrays


def _open_weights(weights: Weights, bounds: Bounds) -> Mapping[str, object]:
    """The weights that the caller gave, by name."""
    if weights is None or isinstance(weights, Mapping):
        return weights or {}
    path = pathlib.Path(weights)
    try:
        with open_regular(path) as file:
            is_archive = file.read(4) == b"PK\x03\x04"
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"'{path}' cannot be read as a model or an .npz file: {reason_of(error)}"
        ) from error
    # An .npz file is a zip archive; anything else is read as a model.
    if is_archive:
        return read_arrays(path, bounds)
    graph = read_model(path, bounds).graph
    metadata_by_name = _format_metadata(graph)
    files = _files_in(path.parent)
    return {
        original_name(metadata_by_name[message.name], message.name) or "": read_tensor(message, files)
        for message in graph.initializer
        if DIGEST not in metadata_by_name[message.name]
    }
