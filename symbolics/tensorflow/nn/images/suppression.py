"""Suppression of overlapping boxes that ONNX's NonMaxSuppression lacks: soft, or by given overlaps.

Semantics: tensorflow/core/kernels/image/non_max_suppression_op.cc.
"""

from collections.abc import Callable

import onnx_ir as ir

from .....registration import DataType, GraphContext, Number, Value
from ....compositions.list_values import loop_inputs
from ....compositions.matrices import first_largest, numbers
from ....compositions.special.formulas import Formula
from ..layout import set_rank

Overlaps = Callable[[Value], Value]
"""Maps the number of a box, zero-dim INT64, to the overlap of each box with it, `[boxes]`."""


def overlaps_of(g: GraphContext, boxes: Value) -> Overlaps:
    """Intersection over union of boxes `[boxes, 4]` with any two opposite corners; 0 for empty boxes."""
    corners = [g.op("Slice", boxes, starts=[i], ends=[i + 2], axes=[1]) for i in (0, 2)]
    corners = [set_rank(g, g.cast(corner, DataType.FLOAT), 2) for corner in corners]
    low, high = (Formula(g, g.op(name, *corners)) for name in ("Min", "Max"))

    def multiply(sides: Formula) -> Formula:
        return Formula(g, g.op("ReduceProd", sides.value, axes=[1], keepdims=0))

    areas = multiply(high - low)

    def overlaps_with(box: Value) -> Value:
        row = g.op("Unsqueeze", box, axes=[0])
        corner_low, corner_high = (
            Formula(g, g.op("Gather", part.value, row, axis=0)) for part in (low, high)
        )
        area = Formula(g, g.op("Gather", areas.value, box, axis=0))
        common = multiply((high.op("Min", corner_high) - low.op("Max", corner_low)).op("Max", 0.0))
        is_empty = (areas <= 0.0) | (area <= 0.0)
        union = is_empty.chosen(1.0, areas + area - common)
        return is_empty.chosen(0.0, common / union).value

    return overlaps_with


def suppress(
    g: GraphContext,
    overlaps_with: Overlaps,
    scores: Value,
    max_output_size: Value,
    threshold: Value | Number,
    score_threshold: Value | None,
    sigma: float = 0.0,
) -> tuple[Value, Value]:
    """A loop that selects the best box, and lowers or removes the scores of those that overlap it.

    Args:
        threshold: boxes that overlap a selected box more are removed.
        score_threshold: only boxes above it are selected.
        sigma: if it is not 0, no box is removed; scores are multiplied by `exp(-overlap ** 2 / (2 * sigma))`.

    Returns:
        The numbers of the boxes, INT64, and their scores when they were selected, FLOAT, best first.
    """
    count = g.size(scores, 0)
    least = None if score_threshold is None else g.cast(score_threshold, DataType.FLOAT)
    removed = float("-inf")
    candidates = Formula(g, g.cast(scores, DataType.FLOAT))
    if least is not None:
        candidates = (candidates > Formula(g, least)).chosen(candidates, removed)
    limit = g.constant(threshold, DataType.FLOAT)

    def has_candidates(remaining: Formula) -> Value:
        # The sum, because ReduceMax of no elements is undefined.
        is_left = g.cast((remaining > removed).value, DataType.FLOAT)
        return g.op("Greater", g.op("ReduceSum", is_left, axes=[0], keepdims=0), 0.5)

    def build(iteration: Value, keep_going: Value, remaining: Value) -> list[Value]:
        best, position = (g.op("Squeeze", value, axes=[0]) for value in first_largest(g, remaining, count))
        box = g.cast(position, DataType.INT64)
        overlaps = Formula(g, g.cast(overlaps_with(box), DataType.FLOAT))
        lowered = Formula(g, remaining)
        if sigma:
            lowered = lowered * (overlaps * overlaps * (-0.5 / sigma)).exp()
        else:
            lowered = (overlaps > Formula(g, limit)).chosen(removed, lowered)
        is_chosen = Formula(g, g.op("Equal", numbers_of_boxes, box))
        is_out = is_chosen | ~(Formula(g, remaining) > removed)
        if least is not None:
            is_out = is_out | ~(lowered > Formula(g, least))
        later = is_out.chosen(removed, lowered)
        return [has_candidates(later), later.value, box, best]

    numbers_of_boxes = g.cast(numbers(g, count), DataType.INT64)
    formal = Value(name="remaining", type=ir.TensorType(DataType.FLOAT), shape=ir.Shape([None]))
    body = g.subgraph(build, [*loop_inputs(), formal], "boxes")
    trips = g.op("Reshape", g.cast(max_output_size, DataType.INT64), g.constant([], DataType.INT64))
    start = has_candidates(candidates)
    _, selected, best = g.op("Loop", trips, start, candidates.value, body=body, outputs=3)
    for value, dtype in ((selected, DataType.INT64), (best, DataType.FLOAT)):
        value.type, value.shape = ir.TensorType(dtype), ir.Shape([None])
    return selected, best
