"""The command `opsetta weights`."""

from __future__ import annotations

import functools
import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from ....registration import ModelFileError, UsageError
from ..options import export as options
from ..options.named_values import parse_values
from ..terminal.output import Output, Written, say
from ..terminal.tables import MOST_SHOWN, more, print_json, row, shape_text, show, size_text, table
from .freeze import AllowLinks, Checkpoint, Keys, Outputs, Signature

if TYPE_CHECKING:
    import numpy as np

    from ...capture.tensorflow.weights import Weight, WeightLayout


def weights(
    model: Annotated[
        pathlib.Path,
        typer.Argument(
            metavar="GRAPH.pb | SAVED_MODEL | CHECKPOINT | MODEL.onnx",
            help="A TensorFlow graph, a checkpoint alone, or an ONNX file.",
        ),
    ],
    checkpoint: Checkpoint = None,
    output: Annotated[
        pathlib.Path | None,
        typer.Option("--output", "-o", help="The file to write the weights to, .safetensors or .npz."),
    ] = None,
    onnx_order: Annotated[
        bool,
        typer.Option(
            "--onnx-order", help="Write dimensions in the order of ONNX: [out, in, h, w] for Conv2D."
        ),
    ] = False,
    outputs: Outputs = None,
    keys: Keys = None,
    signature: Signature = None,
    allow_links: AllowLinks = False,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """List the weights of a model, or write them to a file.

    The list says what each dimension of a weight means, such as [h, w, in, out].
    """
    # An output that cannot be written is refused before weights are read.
    written = None if output is None else Output(output)
    if output is not None and output.suffix.lower() not in (".safetensors", ".npz"):
        raise UsageError(f"weights are written to a .safetensors or .npz file, not to '{output}'")
    all_weights = _read_weights(
        model, checkpoint, outputs, parse_values(keys, "--key"), signature, allow_links, trusted
    )
    left_out = [
        weight.name
        for weight in all_weights
        if (numpy_type := _numpy_type(weight)) is None or numpy_type.hasobject
    ]
    if output is not None and written is not None:
        numeric_weights = [weight for weight in all_weights if weight.name not in set(left_out)]
        written.save(
            Written(lambda file: _write(file, output.suffix.lower(), numeric_weights, onnx_order)), None
        )
    listed = [_description(weight, onnx_order) for weight in all_weights]
    if as_json:
        target = None if output is None else str(output)
        print_json({"file": str(model), "written": target, "left_out": left_out, "weights": listed})
        return
    rows = table("weight", "type", "shape", "dimensions", "read by")
    for entry in listed[:MOST_SHOWN]:
        dimensions = "" if entry["layout"] is None else shape_text(entry["layout"])
        cells = entry["name"], entry["dtype"], shape_text(entry["shape"]), dimensions, entry["operator"] or ""
        row(rows, *cells)
    if len(listed) > MOST_SHOWN:
        row(rows, more(len(listed)), "", "", "", "")
    show(rows)
    total = sum(entry["bytes"] or 0 for entry in listed)
    say(f"{len(listed)} weights, {size_text(total)}" + ("" if output is None else f", in {output}"))
    if output is not None and left_out:
        say(f"left out, because they are not numbers: {', '.join(left_out[:MOST_SHOWN])}")


def _read_weights(
    model: pathlib.Path,
    checkpoint: pathlib.Path | None,
    outputs: str | None,
    keys: dict[str, str],
    signature: str | None,
    allow_links: bool,
    trusted: bool,
) -> Sequence[Weight]:
    """The weights of a graph, a checkpoint or an ONNX file."""
    from ...capture.tensorflow.checkpoints import is_checkpoint
    from ...capture.tensorflow.recognition import recognise
    from ...capture.tensorflow.weights import weights_of_checkpoint, weights_of_graph

    # A frozen graph has its weights in it, and needs no checkpoint.
    if recognise(model) is not None:
        return weights_of_graph(
            model,
            checkpoint,
            outputs,
            keys=keys,
            signature=signature,
            allow_links=allow_links,
            trusted=trusted,
        )
    if checkpoint is not None or outputs is not None or keys or signature is not None:
        raise ModelFileError(f"'{model}' is not a TensorFlow graph, which these options are for")
    if is_checkpoint(model):
        return weights_of_checkpoint(model, allow_links=allow_links, trusted=trusted)
    return _of_onnx(model, allow_links, trusted)


def _of_onnx(model: os.PathLike[str], allow_links: bool, trusted: bool) -> Sequence[Weight]:
    from ...capture.tensorflow.weights import Weight
    from ...load_model import load
    from ...lowering.conversion.prepared_models.preparation import lift_weights
    from ...onnx_model import OnnxModel

    loaded = load(model, allow_links=allow_links, trusted=trusted)
    if not isinstance(loaded, OnnxModel):
        raise ModelFileError(f"'{model}' is a source file: lower it, and list the weights of the ONNX file")
    lift_weights(loaded.model)
    weights_of_file = []
    for name, value in loaded.model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None:
            numpy_type = tensor.dtype.numpy()
            dtype = "string" if numpy_type.hasobject else numpy_type.name
            weights_of_file.append(Weight(name, dtype, tuple(tensor.shape.numpy()), None, tensor.numpy))
    return weights_of_file


def _description(weight: Weight, onnx_order: bool) -> dict[str, Any]:
    layout, shape = weight.layout, weight.shape
    if layout is not None:
        names = layout.in_onnx() if onnx_order else layout.dimensions
        shape = layout.onnx_shape(shape) if onnx_order and shape is not None else shape
    numpy_type = _numpy_type(weight)
    size = None
    if (
        shape is not None
        and min(shape, default=0) >= 0
        and numpy_type is not None
        and not numpy_type.hasobject
    ):
        size = math.prod(shape) * numpy_type.itemsize
    return {
        "name": weight.name,
        "dtype": weight.dtype,
        "shape": None if shape is None else [None if size < 0 else size for size in shape],
        "layout": None if layout is None else list(names),
        "operator": None if layout is None else layout.operator,
        "bytes": size,
    }


def _read_in_onnx_order(layout: WeightLayout, read: Callable[[], np.ndarray]) -> np.ndarray:
    return layout.to_onnx(read())


def _numpy_type(weight: Weight) -> np.dtype | None:
    """The name of the numpy type of a weight's elements."""
    import ml_dtypes
    import numpy as np

    if weight.dtype == "string":
        # Strings have no fixed size, and numpy holds them as objects.
        return np.dtype(object)
    try:
        # numpy itself has no bfloat16, float8 or 4-bit types.
        return np.dtype(getattr(ml_dtypes, weight.dtype, weight.dtype))
    except TypeError:
        return None


def _write(file: IO[bytes], suffix: str, numeric_weights: Sequence[Weight], onnx_order: bool) -> None:
    from ...files.weights.tensor_files import NamedTensor, write_npz, write_safetensors

    missing = [weight.name for weight in numeric_weights if weight.read is None or weight.shape is None]
    if missing:
        raise ModelFileError(
            f"the graph has variables, such as '{missing[0]}', whose values are in a checkpoint: pass "
            "--checkpoint"
        )
    tensors = []
    for weight in numeric_weights:
        numpy_type, layout, shape, read = _numpy_type(weight), weight.layout, weight.shape, weight.read
        if numpy_type is None or shape is None or read is None:
            continue
        if onnx_order and layout is not None:
            shape, read = layout.onnx_shape(shape), functools.partial(_read_in_onnx_order, layout, read)
        tensors.append(NamedTensor(weight.name, numpy_type, shape, read))
    (write_npz if suffix == ".npz" else write_safetensors)(file, tensors)
