"""Writes a prepacked folder: the portable model, and the model that onnxruntime optimized and packed."""

from __future__ import annotations

import dataclasses
import importlib.resources
import os
import pathlib
import tempfile
from collections.abc import Sequence
from typing import IO, Any

import onnx
import onnx_ir as ir

from ....registration import ModelFileError, PrepackError, UsageError
from ....registration.arguments import every_node
from ....registration.warning import warn
from ...files import writing
from ...files.digests import blob_digest
from ...files.output.data_names import check_data_name
from ...files.output.locks import lock_folder
from ...files.output.output_paths import folder_of, resolve, unwritable
from ...files.output.publishing import DataFile, publish, remove_unnamed
from ...files.reading.external_data.prepacked import NATIVE_DOMAIN, PREFIX, parse_entry
from ...files.reading.subgraphs import with_subgraphs
from ...running.sessions.session import open_session, session_options
from ..file_records import FileRecord
from . import environment
from .manifest import (
    C_HEADER,
    LAYOUTS,
    MANIFEST,
    PACKED,
    PLAIN,
    PROVIDERS,
    UNPACKED,
    VERIFIED,
    Blob,
    Manifest,
)

LOADED_LEVEL = "ORT_ENABLE_ALL"
"""The graph optimization level of `load_session` by default."""
_SAVED_LEVELS = {"portable": "ORT_ENABLE_EXTENDED", "native": "ORT_ENABLE_ALL"}
_PACKED_FROM = 1024
"""Weights of at least this many bytes go to the data file."""


def save_prepacked(
    model: ir.Model,
    folder: object,
    *,
    layout: str = "portable",
    external_data: bool | str | os.PathLike[str] | None = None,
) -> None:
    """Write a model and its weights packed for this machine into a folder.

    All files are written elsewhere first, and moved into the folder together: if several processes save into
    one folder, the last one's files stay. If onnxruntime packs no weight, a warning says so, and the folder
    gets only the portable model.

    Args:
        folder: the folder; it is created if it does not exist.
        layout: `"portable"` packs the weights of matrix products. `"native"` also changes the layout of
            convolutions for the processor, and is used only on processors with the same instructions.
        external_data: by default, the portable model reads its weights from the data file of the packed
            model. False or the name of a data file gives it a separate copy, as in `Program.save`.

    Raises:
        UsageError: the layout is unknown.
        ModelFileError: the folder cannot be written.
        InferenceError: onnxruntime is not installed, or refuses the model.
        PrepackError: the layout is `"native"`, but the processor's instructions are unknown.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"layout must be 'portable' or 'native', not {layout!r}")
    current = environment.machine()
    if layout == "native" and None in (current["processor_features"], current["processor_flags"]):
        raise PrepackError(
            "layout='native' needs a system that lists the processor's instructions, such as Linux"
        )
    folder_path = folder_of(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".opsetta-", dir=folder_path) as name:
            staging, raw = pathlib.Path(name, "files"), pathlib.Path(name, "onnxruntime")
            staging.mkdir()
            raw.mkdir()
            shares = external_data is None or external_data is True
            writing.save(model, staging / PLAIN, external_data=shares or external_data)
            options = _pack(staging / PLAIN, raw, layout)
            packed = onnx.load(os.fspath(raw / PACKED), load_external_data=False)
            if _is_packed(packed):
                blobs, shared = _stage(packed, raw, staging, shares)
                manifest = Manifest(
                    environment.session(options, PROVIDERS, LOADED_LEVEL),
                    layout,
                    tuple(FileRecord.of(staging, file) for file in _files(staging, PLAIN, shared)),
                    tuple(FileRecord.of(staging, file) for file in _files(staging, PACKED)),
                    blobs,
                    shared,
                )
                (staging / MANIFEST).write_bytes(manifest.to_bytes())
            else:
                has_convolutions = any(node.op_type == "Conv" for node in every_node(model.graph))
                remedy = "; layout='native' packs those of convolutions" if has_convolutions else ""
                warn(f"onnxruntime packs no weight of this model: '{folder_path}' has it plain{remedy}")
            _replace_files(staging, folder_path)
    except OSError as error:
        if isinstance(error, ModelFileError):
            raise
        raise unwritable(str(folder_path), error) from error


def write_header(folder: pathlib.Path) -> None:
    """Write the C header that checks a folder into the folder.

    Raises:
        ModelFileError: the folder cannot be written.
    """
    source = importlib.resources.files(__package__).joinpath(C_HEADER).read_bytes()
    publish(folder / C_HEADER, lambda file, _: file.write(source))


def _pack(model: pathlib.Path, folder: pathlib.Path, layout: str) -> Any:
    """Let onnxruntime write its optimized model with packed weights; return the options of a session."""
    options = session_options()
    import onnxruntime

    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _SAVED_LEVELS[layout])
    options.optimized_model_filepath = os.fspath(folder / PACKED)
    for key, value in {
        "session.optimized_model_external_initializers_file_name": f"{PACKED}.data",
        "session.optimized_model_external_initializers_min_size_in_bytes": str(_PACKED_FROM),
        "session.save_external_prepacked_constant_initializers": "1",
    }.items():
        options.add_session_config_entry(key, value)
    open_session(os.fspath(model), "the model to pack it", PROVIDERS, options)
    # Fresh options: those above would write the model again.
    return session_options()


def _is_packed(proto: onnx.ModelProto) -> bool:
    """Whether a model that onnxruntime wrote has packed weights, or convolutions in the native layout."""
    return any(
        entry.key.startswith(PREFIX) for tensor in _external(proto) for entry in tensor.external_data
    ) or any(node.domain == NATIVE_DOMAIN for graph in with_subgraphs(proto.graph) for node in graph.node)


@dataclasses.dataclass(frozen=True)
class _FileRange:
    """A range of a file, with the methods of a tensor that `DataFile.append` needs."""

    path: pathlib.Path
    offset: int
    nbytes: int

    def tofile(self, file: IO[bytes]) -> None:
        """Copy the bytes to another file."""
        with open(self.path, "rb") as source:
            source.seek(self.offset)
            remaining = self.nbytes
            while remaining and (block := source.read(min(remaining, 1 << 20))):
                file.write(block)
                remaining -= len(block)


def _stage(
    packed: onnx.ModelProto, raw: pathlib.Path, staging: pathlib.Path, shares: bool
) -> tuple[tuple[Blob, ...], tuple[Blob, ...]]:
    """Write the packed model beside the plain one; name its data file after the contents.

    Args:
        raw: the folder of onnxruntime's files.
        shares: whether the plain model reads its weights from the same data file.

    Returns:
        The packed weights, and the plain weights that both models read.
    """
    data = raw / f"{PACKED}.data"
    blobs: list[Blob] = []
    offsets: dict[tuple[int, str], int] = {}
    with open(data, "rb") as file:
        for tensor in _external(packed):
            facts = {entry.key: entry.value for entry in tensor.external_data}
            offset, size = int(facts.get("offset", 0)), int(facts["length"])
            offsets.setdefault((size, blob_digest(file, offset, size)), offset)
            blobs += [
                Blob(tensor.name, kernel, start, length, blob_digest(file, start, length))
                for key, entry in facts.items()
                if key.startswith(PREFIX)
                for kernel, start, length in parse_entry(entry)
            ]
    plain = onnx.load(os.fspath(staging / PLAIN), load_external_data=False)
    plain_tensors = _external(plain) if shares else []
    shared: list[Blob] = []

    def stream(output: DataFile) -> None:
        # onnxruntime's own offsets stay valid, because its data comes first.
        output.append(_FileRange(data, 0, data.stat().st_size))
        for tensor in plain_tensors:
            facts = {entry.key: entry.value for entry in tensor.external_data}
            source, offset = staging / facts["location"], int(facts.get("offset", 0))
            size = int(facts["length"])
            with open(source, "rb") as file:
                digest = blob_digest(file, offset, size)
            # Appended, if onnxruntime has changed the weight, as it does when it fuses nodes.
            if (size, digest) not in offsets:
                offsets[size, digest] = output.append(_FileRange(source, offset, size))
            shared.append(Blob(tensor.name, "", offsets[size, digest], size, digest))

    def write(file: IO[bytes], location: str | None) -> None:
        for tensor in _external(packed):
            for entry in tensor.external_data:
                if entry.key == "location" and location is not None:
                    entry.value = location
        file.write(packed.SerializeToString(deterministic=True))
        for tensor, blob in zip(plain_tensors, shared, strict=True):
            del tensor.external_data[:]
            entries = {"location": location or "", "offset": str(blob.offset), "length": str(blob.size)}
            for key, text in entries.items():
                tensor.external_data.add(key=key, value=text)

    publish(staging / PACKED, write, weights=stream)
    if plain_tensors:
        publish(staging / PLAIN, lambda file, _: file.write(plain.SerializeToString(deterministic=True)))
    return tuple(blobs), tuple(shared)


def _replace_files(staging: pathlib.Path, folder: pathlib.Path) -> None:
    """Move complete files into the folder, and remove those of an earlier save."""
    names = {path.name for path in staging.iterdir()}
    for name in sorted(names - {PLAIN, PACKED, MANIFEST}):
        if not name.startswith((f"{PLAIN}.", f"{PACKED}.")):
            # A data file with the caller's own name must not replace one of another model.
            check_data_name(resolve(folder / PLAIN), name)
    with lock_folder(folder):
        # Removed first: without a manifest readers use the plain model, and never new files with old digests.
        for name in (MANIFEST, VERIFIED, UNPACKED):
            (folder / name).unlink(missing_ok=True)
        # Data files first, so that a graph never refers to a missing file.
        for name in (*sorted(names - {PLAIN, PACKED, MANIFEST}), PACKED, PLAIN, MANIFEST):
            if name in names:
                os.replace(staging / name, folder / name)
        if PACKED not in names:
            (folder / PACKED).unlink(missing_ok=True)
        for graph in (PLAIN, PACKED):
            remove_unnamed(os.fspath(folder), graph)


def _external(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the initializers in the data file, including those of sub-graphs."""
    graphs = with_subgraphs(proto.graph)
    return [tensor for graph in graphs for tensor in graph.initializer if tensor.external_data]


def _files(folder: pathlib.Path, name: str, shared: Sequence[Blob] = ()) -> list[str]:
    """Return the names of a model's file and of its data files, unless these belong to the packed model."""
    if shared:
        return [name]
    proto = onnx.load(os.fspath(folder / name), load_external_data=False)
    locations = {
        entry.value: None
        for tensor in _external(proto)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [name, *locations]
