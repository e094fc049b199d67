"""`load`: reads a file as a `SourceModel` or an `OnnxModel`."""

from __future__ import annotations

import os

from ..registration import ModelFileError, UsageError
from .files.garbage_collection import rare_collections
from .files.reading import ModelFolder, bounds_of, map_external_data, read_model, to_ir
from .files.source_file.layout import format_version
from .files.source_file.reading import read_source
from .files.source_file.weights import Weights
from .onnx_model import OnnxModel
from .program import SourceModel

_ATTEMPTS = 20
"""Attempts to read a model that another process keeps replacing."""


@rare_collections()
def load(
    path: str | os.PathLike, *, weights: Weights = None, allow_links: bool = False, trusted: bool = False
) -> SourceModel | OnnxModel:
    """Read a source file, which `save_source` wrote, or any ONNX file; torch is not needed.

    The content decides whether it is binary, text or JSON.

    Args:
        path: the file.
        weights: the weights that a source file omits: a mapping from names to arrays or tensors, or the path
            of a model file or an .npz file. For source files only.
        allow_links: follow links of external data out of the model's folder, hard links included. If the
            model file is a link, files beside its target always belong to the model, as in the cache of the
            Hugging Face hub.
        trusted: whether whoever wrote the file is trusted not to ask for more memory and time than there is:
            lifts the bounds on size, for reading and for `lower`. What the file says is checked anyway.

    Raises:
        UsageError: `path` is not a path.
        ModelFileError: the file cannot be read, has a newer format, or contradicts itself; or weights are
            missing or changed.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"a model is loaded from a path, not from {type(path).__name__}")
    for attempt in range(_ATTEMPTS):
        before = _identity(path)
        try:
            return _load(path, weights, ModelFolder.of(path, allow_links), trusted)
        except ModelFileError:
            # Another process may have replaced the model, and removed the old weights.
            if attempt == _ATTEMPTS - 1 or _identity(path) == before:
                raise
    raise AssertionError


def _identity(path: str | os.PathLike) -> tuple[int, ...] | None:
    """The identity of a file, to detect that another file replaced it."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _load(
    path: str | os.PathLike, weights: Weights, folder: ModelFolder, trusted: bool
) -> SourceModel | OnnxModel:
    bounds = bounds_of(trusted)
    model = read_model(path, bounds)
    try:
        if format_version(model) is None and weights is None:
            read = to_ir(model, folder, bounds)
            map_external_data(read, folder)
            return OnnxModel(read, trusted=trusted)
        return SourceModel.of(read_source(model, folder, weights, bounds))
    except ModelFileError as error:
        raise ModelFileError(f"'{path}' cannot be loaded: {error}") from error
