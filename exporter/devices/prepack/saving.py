"""Writes a prepacked folder: the portable model, and the one that onnxruntime optimized and packed."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from typing import IO, Any

import onnx
import onnx_ir as ir

from ....registration import ModelFileError, PrepackError, UsageError
from ...files import writing
from ...files.digests import blob_digest
from ...files.garbage_collection import rare_collections
from ...files.publishing import DataFile, publish
from ...files.reading.external_data.prepacked import PREFIX, parse_entry
from ...files.reading.subgraphs import with_subgraphs
from ...files.targets import folder_of, unwritable
from ...running.session import open_session, session_options
from ..file_records import FileRecord
from . import environment
from .manifest import LAYOUTS, MANIFEST, PACKED, PLAIN, Blob, Manifest

PROVIDERS = ("CPUExecutionProvider",)
LOADED_LEVEL = "ORT_ENABLE_ALL"
"""The graph optimization level of `load_session` by default."""
_SAVED_LEVELS = {"portable": "ORT_ENABLE_EXTENDED", "native": "ORT_ENABLE_ALL"}
_PACKED_FROM = 1024
"""Weights of at least this many bytes go to the data file."""


@rare_collections()
def save(
    model: ir.Model,
    target: str | bytes | os.PathLike[str] | IO[bytes],
    external_data: bool | str | os.PathLike[str] | None,
    prepack: bool,
    layout: str,
    weights: str = "copy",
) -> None:
    """Write a model to a file, or to a folder with packed weights; see `Program.save`."""
    if prepack:
        if weights != "copy":
            raise UsageError(
                f"prepack=True copies the weights, and cannot be combined with weights={weights!r}"
            )
        save_prepacked(model, target, layout=layout, external_data=external_data)
    elif layout != "portable":
        raise UsageError(f"layout={layout!r} needs prepack=True")
    else:
        writing.save(model, target, external_data=external_data, weights=weights)


def save_prepacked(
    model: ir.Model,
    folder: object,
    *,
    layout: str = "portable",
    external_data: bool | str | os.PathLike[str] | None = None,
) -> None:
    """Write a model and its weights packed for this machine into a folder.

    Args:
        folder: the folder; it is made if it does not exist.
        layout: `"portable"` packs the weights of matrix products. `"native"` also lays convolutions out for
            the processor, and is used on processors with the same instructions only.
        external_data: as in `Program.save`, for the portable model.

    Raises:
        UsageError: an unknown layout.
        ModelFileError: the folder cannot be written.
        InferenceError: onnxruntime is not installed, or refuses the model.
        PrepackError: the native layout is asked for where the processor's instructions are unknown.
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
        # Without a manifest, readers take the plain model: no reader sees new files with old digests.
        (folder_path / MANIFEST).unlink(missing_ok=True)
        writing.save(model, folder_path / PLAIN, external_data=external_data)
        with tempfile.TemporaryDirectory(prefix=".opsetta-", dir=folder_path) as staging:
            options = _pack(folder_path / PLAIN, pathlib.Path(staging), layout)
            blobs = _publish(pathlib.Path(staging), folder_path)
        fingerprint = environment.session(options, PROVIDERS, LOADED_LEVEL)
        manifest = Manifest(
            fingerprint,
            layout,
            tuple(FileRecord.of(folder_path, name) for name in _files(folder_path, PLAIN)),
            tuple(FileRecord.of(folder_path, name) for name in _files(folder_path, PACKED)),
            blobs,
        )
        publish(folder_path / MANIFEST, lambda file, _: file.write(manifest.to_bytes()))
    except OSError as error:
        if isinstance(error, ModelFileError):
            raise
        raise unwritable(str(folder_path), error) from error


def _pack(model: pathlib.Path, staging: pathlib.Path, layout: str) -> Any:
    """Let onnxruntime write its optimized model with packed weights; return the options of a session."""
    options = session_options()
    import onnxruntime

    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _SAVED_LEVELS[layout])
    options.optimized_model_filepath = os.fspath(staging / PACKED)
    for key, value in {
        "session.optimized_model_external_initializers_file_name": f"{PACKED}.data",
        "session.optimized_model_external_initializers_min_size_in_bytes": str(_PACKED_FROM),
        "session.save_external_prepacked_constant_initializers": "1",
    }.items():
        options.add_session_config_entry(key, value)
    open_session(os.fspath(model), "the model to pack it", PROVIDERS, options)
    # Fresh options: those above would write the model again.
    return session_options()


class _Bytes:
    """A file with the interface of a tensor for `DataFile.append`."""

    def __init__(self, path: pathlib.Path):
        self._path = path
        self.nbytes = path.stat().st_size

    def tofile(self, file: IO[bytes]) -> None:
        """Copy the file."""
        with open(self._path, "rb") as source:
            shutil.copyfileobj(source, file, 1 << 20)


def _publish(staging: pathlib.Path, folder: pathlib.Path) -> tuple[Blob, ...]:
    """Move onnxruntime's files to the folder; name the data file after its contents."""
    proto = onnx.load(os.fspath(staging / PACKED), load_external_data=False)
    data = staging / f"{PACKED}.data"

    def stream(file: DataFile) -> None:
        if data.exists() and data.stat().st_size:
            file.append(_Bytes(data))

    def write(file: IO[bytes], location: str | None) -> None:
        for tensor in _external(proto):
            for entry in tensor.external_data:
                if entry.key == "location" and location is not None:
                    entry.value = location
        file.write(proto.SerializeToString(deterministic=True))

    publish(folder / PACKED, write, weights=stream)
    if not data.exists():
        return ()
    with open(data, "rb") as file:
        return tuple(
            Blob(tensor.name, kernel, offset, size, blob_digest(file, offset, size))
            for tensor in _external(proto)
            for entry in tensor.external_data
            if entry.key.startswith(PREFIX)
            for kernel, offset, size in parse_entry(entry.value)
        )


def _external(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The initializers in the data file, those of sub-graphs too."""
    graphs = with_subgraphs(proto.graph)
    return [tensor for graph in graphs for tensor in graph.initializer if tensor.external_data]


def _files(folder: pathlib.Path, name: str) -> list[str]:
    """A model's file, and the data files that it names."""
    proto = onnx.load(os.fspath(folder / name), load_external_data=False)
    locations = {
        entry.value: None
        for tensor in _external(proto)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [name, *locations]
