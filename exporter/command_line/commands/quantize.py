"""The command `opsetta quantize`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....registration import UsageError
from ....registration.opsets import OPSET_RANGE
from ..options import calibration, interface
from ..options import export as options
from ..options.user_code import names, quiet_stdout
from ..terminal.output import Output
from ..terminal.tables import count_text, row, show, size_text, table
from .editing import load_onnx, output_path
from .targets import resolve_target

if TYPE_CHECKING:
    from ...calibration.static_quantization import QuantizationReport

_WORST = 8
"""Tensors in the table of losses."""


def quantize(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to quantize.")],
    calibrate: calibration.Calibrate,
    output: options.ChangedFile = None,
    opset: Annotated[
        int | None,
        typer.Option(help=f"The opset to write, {OPSET_RANGE}; by default the file's, or the target's."),
    ] = None,
    target: options.Target = None,
    input_shape: interface.InputShapes = None,
    dim: interface.Dims = None,
    form: calibration.Form = "qdq",
    activations: calibration.Activations = None,
    weights: calibration.Weights = None,
    per_channel: calibration.PerChannel = None,
    symmetric: calibration.Symmetric = None,
    method: calibration.Method = "minmax",
    equalize: calibration.Equalize = False,
    reduce_range: calibration.ReduceRange = False,
    weight_rounding: calibration.WeightRounding = "calibrated",
    exclude: calibration.Exclude = None,
    max_loss: calibration.MaxLoss = None,
    loss: calibration.Loss = "labels",
    mean: calibration.Mean = "0",
    std: calibration.Std = "1",
    external_data: options.ExternalData = None,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Quantize weights and activations with calibration data.

    The errors are measured on batches that are not used for calibration.
    """
    output = output_path(model, output, "quantized")
    written = Output(output)
    sizes = interface.interface_arguments(input_shape, dim)
    source = load_onnx(model, trusted)
    # Without other wishes, the file keeps its opset.
    requested = source.opset if opset is None and target is None else opset
    to_opset, loaded_target = resolve_target(requested, target)
    wishes = {
        "activations": activations,
        "weights": weights,
        "per_channel": per_channel,
        "symmetric": symmetric,
    }
    with quiet_stdout():
        quantized = source.lower(to_opset, target=loaded_target, **sizes).quantize(
            _read_data(calibrate),
            mean=_read_numbers("--mean", mean),
            std=_read_numbers("--std", std),
            form=form,
            method=method,
            equalize=equalize,
            reduce_range=reduce_range,
            weight_rounding=weight_rounding,
            exclude=exclude or (),
            max_loss=max_loss,
            loss=loss,
            **{name: value for name, value in wishes.items() if value is not None},
        )
    written.save(quantized, external_data)
    node_count = quantized.model.graph.num_nodes()
    nodes = count_text(node_count, "node")
    facts = {
        "file": str(output),
        "opset": quantized.opset,
        "bytes": written.size,
        "nodes": node_count,
        **({} if quantized.accuracy is None else dataclasses.asdict(quantized.accuracy)),
    }
    text = f"{output}: opset {quantized.opset}, {nodes}, {facts['bytes']} bytes"
    written.report(facts, text, as_json=as_json)
    if not as_json and quantized.accuracy is not None:
        _show_accuracy(quantized.accuracy)


def _show_accuracy(accuracy: QuantizationReport) -> None:
    if accuracy.float_nodes:
        added = size_text(accuracy.weight_bytes - accuracy.smallest_weight_bytes)
        nodes = table(f"{count_text(len(accuracy.float_nodes), 'node')} in float, {added} more weights")
        for name in accuracy.float_nodes:
            row(nodes, name)
        show(nodes)
    outputs = table("output", "relative error", "same largest entry")
    for output in accuracy.outputs:
        agreement = "" if output.agreement is None else f"{output.agreement:.1%}"
        row(outputs, output.name, f"{output.relative_error:.3g}", agreement)
    show(outputs)
    losses = table("tensor", "operator", "own signal to noise", "total")
    for loss in accuracy.tensors[:_WORST]:
        decibels = f"{loss.own_decibels:.1f} dB", f"{loss.total_decibels:.1f} dB"
        row(losses, loss.name, loss.operator, *decibels)
    if accuracy.tensors:
        show(losses)


def _read_data(text: str) -> str | Callable[[], Any]:
    """The path of data, or a function that returns the batches of the one that `PATH.py:FUNCTION` names."""
    from ...factories import load_file, report_failure

    if text.endswith(".py"):
        raise UsageError(f"--calibrate: name the function in '{text}' that returns batches: {text}:FUNCTION")
    path, separator, name = text.rpartition(":")
    if not separator or not path.endswith(".py"):
        return text
    function: Callable[[], Any] | None = getattr(load_file(path), name, None)
    if function is None or not callable(function):
        raise UsageError(f"'{path}' has no function '{name}'")

    def batches() -> Any:
        with report_failure(f"'{text}'"):
            result = function()
            # The body of a generator runs only here.
            return list(result) if isinstance(result, Iterator) else result

    return batches


def _read_numbers(option: str, text: str) -> list[float]:
    try:
        return [float(number) for number in names(text) or ()]
    except ValueError:
        raise UsageError(f"{option}: '{text}' is not a list of numbers") from None
