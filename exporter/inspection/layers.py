"""Compares the values of two models of one function, or of two runtimes, tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ...registration import UsageError
from ..files.reading import Bounds
from ..lowering.conversion.prepared_models.preparation import source_of
from ..running.comparisons.verification import TOLERANCES, OutputReport, compare
from ..running.runner import Runner

_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}


def _value_read(value: ir.Value) -> ir.Value:
    """The dequantized value if nodes read the value only through QuantizeLinear and DequantizeLinear."""
    current = value
    for operator in ("QuantizeLinear", "DequantizeLinear"):
        consumers = current.consumers()
        if current.is_graph_output() or {node.op_type for node in consumers} != {operator}:
            return value
        # Of several pairs, which quantizers write for several consumers, the first stands for all.
        current = consumers[0].outputs[0]
    return current


def compare_layers(
    first: ir.Model,
    second: ir.Model,
    feed: Mapping[str, np.ndarray],
    bounds: Bounds,
    rtol: float | None = None,
    atol: float | None = None,
    *,
    runtimes: tuple[str, str] = ("onnxruntime", "onnxruntime"),
) -> tuple[OutputReport, ...]:
    """The errors of all tensors that both models compute under one name, in the order of the first.

    A tensor that is quantized before any other node reads it counts as what those nodes read: quantizers fold
    a Relu into the range, and the tensor of its name is then that before the Relu.

    Args:
        feed: arrays by the names of the first model's inputs; the second takes them in order.
        bounds: limits on the inference of element types.
        rtol, atol: tolerances; by default those of the element type.
        runtimes: what runs the first model, and the second: names in `running.runtimes.RUNTIMES`.

    Raises:
        UsageError: the models have other numbers of inputs, no name in common, or there is no such runtime.
        InferenceError: a runtime is not installed, or refuses its model.
    """
    sources = source_of(first, bounds), source_of(second, bounds)
    tables = [
        {
            str(value.name): _value_read(value)
            # An input that is an output has no node.
            for value in (*(v for node in source.graph for v in node.outputs), *source.graph.outputs)
            if value.name and value.dtype is not None
        }
        for source in sources
    ]
    names = []
    for name, value in tables[0].items():
        twin = tables[1].get(name)
        if twin is not None and (value.dtype == twin.dtype or {value.dtype, twin.dtype} <= _FLOATS):
            names.append(name)
    if not names:
        raise UsageError("the models compute no tensor of the same name and element type")
    runners = []
    for source, table, runtime in zip(sources, tables, runtimes, strict=True):
        source.graph.outputs.clear()
        source.graph.outputs.extend(table[name] for name in names)
        runners.append(Runner.of_model(source, runtime=runtime))
    inputs = [runner.inputs.names for runner in runners]
    if len(inputs[0]) != len(inputs[1]):
        raise UsageError(f"one model has {len(inputs[0])} inputs, and the other {len(inputs[1])}")
    same_names = set(inputs[0]) == set(inputs[1])
    pairs = zip(inputs[0], inputs[0] if same_names else inputs[1], strict=True)
    second_feed = {second_name: feed[name] for name, second_name in pairs}
    for value in sources[1].graph.inputs:
        array = second_feed.get(str(value.name))
        # The second model may have other floating-point types: it gets the same numbers in its own types.
        if array is not None and value.dtype in _FLOATS and ir.DataType.from_numpy(array.dtype) in _FLOATS:
            second_feed[str(value.name)] = array.astype(value.dtype.numpy())
    feeds = feed, second_feed
    results = [runner.arrays(values) for runner, values in zip(runners, feeds, strict=True)]
    reports = []
    for name, expected, actual in zip(names, *results, strict=True):
        if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
            # Half precision is compared in the type of the first file, as exactly as the shorter type allows.
            shorter = min(expected.dtype, actual.dtype, key=lambda dtype: dtype.itemsize)
            default_rtol, default_atol = TOLERANCES.get(shorter.name, (None, None))
            tolerances = default_rtol if rtol is None else rtol, default_atol if atol is None else atol
            converted = actual.astype(expected.dtype)
            sides = ("the first file", "the second") if runtimes[0] == runtimes[1] else runtimes
            reports.append(
                compare(name, converted, expected, *tolerances, expected_by=sides[0], actual_by=sides[1])
            )
    return tuple(reports)
