"""Compares the results of a written model with the original: outputs, and intermediate results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from ...registration import MODULE, OpsettaError
from ...registration.arguments import overloaded_name
from ...registration.inference.tensor_sizes import packed_bytes
from ..running.captured_calls import CapturedCalls
from ..running.comparisons.verification import TOLERANCES, OutputReport, compare_outputs
from ..running.runner import Runner
from .pictures import short, type_text
from .records import Compared, Parity

MOST_COMPARED = 3000
"""The most intermediate results that are compared; of more, every second or third one."""
MOST_BYTES = 1 << 30
"""Memory for intermediate results, as far as their sizes are known."""


def with_eager(
    calls: CapturedCalls,
    model: ir.Model,
    input_names: Sequence[str],
    lower: Callable[[Sequence[ir.Value]], ir.Model],
    rows: Mapping[ir.Node, int],
) -> Parity:
    """Compare an ONNX model with eager PyTorch, on the example of the capture.

    Args:
        model: the model that was written.
        lower: returns that model with further outputs, for values of the source graph.
        rows: the row of each source node in the picture.
    """
    if calls.obstacle or calls.capture.example is None:
        return Parity("", note=calls.obstacle or "there are no example arguments to compare with")
    from ..running.comparisons import mismatch
    from ..running.sessions import torch_values
    from ..torch_boundary.boundary import boundary

    args, kwargs = calls.capture.example
    outputs: tuple[Compared, ...] = ()
    compared_nodes: list[Compared] = []
    try:
        with boundary():
            leaves, feed = calls.input_values(input_names, args, kwargs)
            expected = calls.eager_results(args, kwargs)
            results = [torch_values.to_torch(value) for value in Runner.of_model(model).run(feed)]
            # ONNX has complex results as pairs of real numbers.
            for position in calls.interface.complex_outputs:
                results[position] = torch_values.as_complex(results[position])
            outputs = _outputs(model, results, expected)
            compared_values, note = selected_values(mismatch.comparable(calls.capture.source))
            for node, value, report in mismatch.node_errors(
                calls.capture, lower(compared_values), compared_values, leaves, feed
            ):
                compared_nodes.append(_comparison_record(node, value, report, rows.get(node, -1)))
    except OpsettaError as error:
        note = str(error)
    return Parity("eager PyTorch", outputs, tuple(compared_nodes), _tolerances(outputs, compared_nodes), note)


def with_original(
    source: ir.Model, model: ir.Model, feed: Mapping[str, object], rows: Mapping[ir.Node, int]
) -> Parity:
    """Compare a converted model with the file, both in onnxruntime, on random inputs.

    Intermediate results with equal names are compared too.
    """
    # Conversion keeps the names of values that both graphs compute, so equal names are comparable.
    makers = {value.name: node for node in source.graph for value in node.outputs if value.name}
    shared = [
        value
        for node in model.graph
        for value in node.outputs
        if value.name in makers and not value.is_graph_output()
    ]
    compared_values, note = selected_values(shared)
    names = [value.name or "" for value in compared_values]
    outputs: tuple[Compared, ...] = ()
    compared_nodes: list[Compared] = []
    try:
        expected, actual = (_run(either_model, names, feed) for either_model in (source, model))
        count = len(model.graph.outputs)
        outputs = _outputs(model, actual[:count], expected[:count])
        reports = compare_outputs(names, actual[count:], expected[count:])
        for value, report in zip(compared_values, reports, strict=True):
            node = makers[value.name or ""]
            compared_nodes.append(_comparison_record(node, value, report, rows.get(node, -1)))
    except OpsettaError as error:
        note = str(error)
    compared_nodes.sort(key=lambda compared: compared.position)
    return Parity(
        "the original file", outputs, tuple(compared_nodes), _tolerances(outputs, compared_nodes), note
    )


def _run(model: ir.Model, names: Sequence[str], feed: Mapping[str, object]) -> list[object]:
    """The outputs of a model, then its values with these names."""
    # The further outputs must not appear in the caller's model.
    copy = model.clone()
    by_name = {value.name: value for node in copy.graph for value in node.outputs}
    copy.graph.outputs.extend(by_name[name] for name in names)
    return Runner.of_model(copy).arrays(feed)


def selected_values(values: Sequence[ir.Value]) -> tuple[list[ir.Value], str]:
    """Select values to compare, evenly spaced if there are too many; also return a sentence about that."""
    size = sum(_bytes(value) for value in values)
    step = max(1, -(-len(values) // MOST_COMPARED), -(-size // MOST_BYTES))
    if step == 1:
        return list(values), ""
    selection = list(values[::step])
    return selection, f"of {len(values)} intermediate results, {len(selection)} are compared, evenly spread"


def _bytes(value: ir.Value) -> int:
    if value.shape is None or value.dtype is None or not value.shape.is_static():
        return 0
    return packed_bytes(value.dtype, math.prod(value.shape.numpy()))


def _outputs(model: ir.Model, actual: Sequence[object], expected: Sequence[object]) -> tuple[Compared, ...]:
    values = list(model.graph.outputs)[: len(actual)]
    reports = compare_outputs([value.name or "" for value in values], actual, expected)
    return tuple(
        _comparison_record(None, value, report, -1) for value, report in zip(values, reports, strict=True)
    )


def _comparison_record(node: ir.Node | None, value: ir.Value, report: OutputReport, row: int) -> Compared:
    return Compared(
        name=short(report.name),
        operator="" if node is None else short(overloaded_name(node)),
        module="" if node is None else short(node.metadata_props.get(MODULE, "")),
        position=row,
        type=type_text(value),
        error=report.max_absolute_error,
        relative=report.max_relative_error,
        share=report.share,
        index=report.index,
        problem=report.problem,
    )


def _tolerances(*groups: Sequence[Compared]) -> dict[str, tuple[float, float]]:
    """The tolerances of the element types that were compared."""
    dtypes = dict.fromkeys(compared.type.partition("[")[0] for group in groups for compared in group)
    return {dtype: TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes}
