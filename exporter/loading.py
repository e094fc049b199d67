"""`load`: from a file to a `SourceModel`, or an `OnnxModel`."""

from __future__ import annotations

import os
import pathlib

from ..registration import ModelFileError, UsageError
from .conversion import OnnxModel
from .reading import read_model, to_ir
from .source_file.layout import format_version
from .source_file.reading import read_source
from .source_file.weights import Weights
from .source_model import SourceModel


def load(path: str | os.PathLike, *, weights: Weights = None) -> SourceModel | OnnxModel:
    """Read a source file, which `save_source` wrote, or any ONNX file; torch is not needed.

    The form, binary, text or JSON, is found by content.

    Args:
        path: the file.
        weights: the weights that the file leaves out: a mapping from names to arrays or tensors, or the path
            of a model file or an .npz file that has them. Of source files only.

    Raises:
        UsageError: `path` is no path.
        ModelFileError: the file cannot be read, is of a newer format, or contradicts itself; weights are
            missing, or are not those that the file was written with.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"a model is loaded from a path, not from {type(path).__name__}")
    model = read_model(path)
    folder = pathlib.Path(path).parent
    try:
        if format_version(model) is None and weights is None:
            return OnnxModel(to_ir(model, folder))
        return SourceModel.of(read_source(model, folder, weights))
    except ModelFileError as error:
        raise ModelFileError(f"'{path}' cannot be loaded: {error}") from error
