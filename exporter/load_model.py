"""`load`: reads a file as a `SourceModel` or an `OnnxModel`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ..registration import ModelFileError, UsageError
from .capture.caffe2.net_reading import is_net
from .capture.tensorflow.keras_files import export_keras_file, is_keras_file
from .capture.tensorflow.recognition import recognise
from .capture.tensorflow.tensorflow_options import TensorFlowOptions
from .files.garbage_collection import rare_collections
from .files.graph_file.layout import format_version
from .files.graph_file.weights import Weights
from .files.reading import ModelFolder, bounds_of, map_external_data, read_model, to_ir
from .files.reading.encodings.other_formats import refuse_other_formats
from .onnx_model import OnnxModel

if TYPE_CHECKING:
    from .capture.caffe2.input_descriptions import ShapeArgument
    from .program import SourceModel

_ATTEMPTS = 20
"""Attempts to read a model that another process keeps replacing."""


@rare_collections()
def load(
    path: str | os.PathLike[str],
    *,
    weights: Weights = None,
    init_net: str | os.PathLike[str] | None = None,
    shapes: Mapping[str, ShapeArgument] | None = None,
    allow_links: bool = False,
    trusted: bool = False,
    inputs: Sequence[str] | Mapping[str, Sequence[int] | None] | None = None,
    outputs: Sequence[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    tags: Collection[str] | None = None,
    signature: str | None = None,
    input_format: str | None = None,
    inputs_as_nchw: Sequence[str] = (),
    outputs_as_nchw: Sequence[str] = (),
    keep_parse_example: bool = False,
) -> SourceModel | OnnxModel:
    """Read a source file, which `save_source` wrote, or a file of ONNX, TensorFlow or Caffe2.

    The content decides what it is, and whether it is binary, text or JSON. torch is not needed. TensorFlow
    files are GraphDef, MetaGraph, and SavedModel, given by its folder; docs/tensorflow.md and docs/caffe2.md
    have the details.

    Args:
        path: the file.
        weights: the weights that a source file omits: a mapping from names to arrays or tensors, or the path
            of a model file or an .npz file. For source files only.
        init_net: the net that makes the weights of a Caffe2 net. By default `init_net.pb` beside
            `predict_net.pb`.
        shapes: the shapes of a Caffe2 net's inputs, by name, in the form `(1, 3, 224, 224)`,
            `("batch", 3, None, None)`, or as text `"int64[batch,7]"`. By default those in value_info.json
            beside the net, or unknown ones.
        allow_links: follow links of external data out of the model's folder, hard links included. If the
            model file is a link, files beside its target always belong to the model, as in the cache of the
            Hugging Face hub.
        trusted: lift the bounds on size, memory and time, for reading and for `lower`, for a large file from
            a trusted source. All other checks remain.
        inputs: of a TensorFlow file, the results that a caller feeds, `x` or `x:0`, or a mapping from them to
            their shapes, -1 for a size that varies; by default those of the signature, or the placeholders.
        outputs: likewise the results to return; by default those of the signature, or what no node reads.
        checkpoint: the prefix of a checkpoint with the values of variables; by default the one beside the
            file.
        tags: the tags of the graph of a SavedModel; by default `{"serve"}`, or those of the only graph.
        signature: the signature of a SavedModel or MetaGraph; by default `serving_default`, or the only one.
        input_format: `"binary"` or `"text"`, to refuse the other.
        inputs_as_nchw: inputs that TensorFlow takes as [batch, height, width, channels], and the ONNX model
            is to take as [batch, channels, height, width].
        outputs_as_nchw: likewise for outputs.
        keep_parse_example: of a TensorFlow file, refuse parsers of serialized `tf.train.Example` messages;
            otherwise the parsed features are inputs.

    Returns:
        An `OnnxModel` for an ONNX file, and a `SourceModel` for other files. `lower` of both writes an opset.

    Raises:
        UsageError: `path` is not a path, or an option does not apply to the format of the file.
        ModelFileError: the file cannot be read, has a newer format, or contradicts itself; or weights are
            missing or changed.
        CaptureError: a TensorFlow graph cannot be expressed in ONNX.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"load needs a path, not a {type(path).__name__}")
    options = TensorFlowOptions(
        inputs,
        outputs,
        checkpoint,
        tags,
        signature,
        input_format,
        inputs_as_nchw,
        outputs_as_nchw,
        keep_parse_example,
        allow_links,
    )
    # First, because the text of a git-lfs pointer begins like that of a GraphDef.
    if is_keras_file(path):
        with export_keras_file(path) as folder:
            return _load_tensorflow(folder, options, weights, trusted)
    refuse_other_formats(path)
    for attempt in range(_ATTEMPTS):
        # Read before the file: a replacement during the read must show.
        identity_before = _identity(path)
        try:
            if init_net is not None or is_net(path):
                from .capture.caffe2.net_capture import load_nets
                from .program import SourceModel

                capture = load_nets(path, init_net, shapes, bounds_of(trusted))
                capture.trusted = trusted
                return SourceModel(capture)
            if shapes is not None:
                raise UsageError("shapes= is only for Caffe2 nets")
            return _load(path, weights, options, trusted)
        except ModelFileError:
            # Another process may have replaced the model, and removed the old weights.
            if attempt == _ATTEMPTS - 1 or _identity(path) == identity_before:
                raise
    raise AssertionError("the last attempt returns or raises")


def _load_tensorflow(
    path: str | os.PathLike[str], options: TensorFlowOptions, weights: Weights, trusted: bool
) -> SourceModel:
    if weights is not None:
        raise UsageError("weights= is only for source files: pass checkpoint= for a TensorFlow file")
    from .capture.tensorflow.tensorflow_capture import capture_file
    from .program import SourceModel

    captured = capture_file(path, options, bounds=bounds_of(trusted))
    captured.capture.trusted = trusted
    return SourceModel(captured.capture, input_names=captured.input_names, output_names=captured.output_names)


def _identity(path: str | os.PathLike[str]) -> tuple[int, ...] | None:
    """The identity of a file, to detect that another file replaced it."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _load(
    path: str | os.PathLike[str], weights: Weights, options: TensorFlowOptions, trusted: bool
) -> SourceModel | OnnxModel:
    """Load a file that is no Caffe2 net."""
    if recognise(path) is not None:
        return _load_tensorflow(path, options, weights, trusted)
    folder, bounds = ModelFolder.of(path, options.allow_links), bounds_of(trusted)
    try:
        model = read_model(path, bounds)
    except ModelFileError:
        # A graph without nodes cannot be recognized. The caller passes options for TensorFlow, so it is one.
        if options.changed_options:
            return _load_tensorflow(path, options, weights, trusted)
        raise
    if options.changed_options:
        names = ", ".join(option.replace("_", "-") for option in options.changed_options)
        raise UsageError(
            f"'{path}' is not a TensorFlow graph, and {names} can be set for those only; `opsetta extract` "
            "and `opsetta edit` change the inputs and outputs of an ONNX file"
        )
    try:
        if format_version(model) is None and weights is None:
            onnx_model = to_ir(model, folder, bounds)
            map_external_data(onnx_model, folder)
            return OnnxModel(onnx_model, trusted=trusted)
        from .files.graph_file.graph_reader import read_source
        from .program import SourceModel

        file = read_source(model, folder, weights, bounds)
        file.capture.trusted = trusted
        return SourceModel.of(file)
    except ModelFileError as error:
        raise ModelFileError(f"'{path}' cannot be loaded: {error}") from error
