"""Scans and reductions along a dim in a logarithmic number of steps."""

from collections.abc import Callable, Sequence

import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value
from .list_values import loop_inputs
from .size_arithmetic import Size, compute, sizes_of

Pair = Callable[[Value, Value], Value]
Combine = Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]]
"""Combines the result of earlier elements with the result of later ones."""


def inclusive_scan(g: GraphContext, values: Sequence[Value], axis: int, combine: Combine) -> list[Value]:
    """The inclusive scan of all values along one dim.

    Unrolled if the size of the dim is known; else a Loop until the step has passed it.

    Args:
        values: the values to combine, of the same shape.
        axis: the dim, not negative.
        combine: an associative combination.
    """
    size = g.size(values[0], axis)
    values = list(values)
    if isinstance(size, int):
        step = 1
        while step < size:
            values = _combine_at_distance(g, values, axis, step, size, combine)
            step *= 2
        return values
    formals = [Value(name="step", type=ir.TensorType(DataType.INT64), shape=ir.Shape([]))]
    formals += [Value(name="running", type=value.type, shape=value.shape) for value in values]

    def build(iteration: Value, keep_going: Value, step: Value, *running: Value) -> list[Value]:
        doubled = g.op("Mul", step, 2)
        later = _combine_at_distance(g, running, axis, step, size, combine)
        return [g.call("sym::lt", a=doubled, b=size), doubled, *later]

    body = g.subgraph(build, [*loop_inputs(), *formals], "scan")
    keep_going = g.call("sym::gt", a=size, b=1)
    _, *results = g.op("Loop", None, keep_going, g.constant(1), *values, body=body, outputs=len(values) + 1)
    for result, value in zip(results, values, strict=True):
        result.type, result.shape = value.type, value.shape
    return results


def _combine_at_distance(
    g: GraphContext, values: Sequence[Value], axis: int, step: Size, size: Size, combine: Combine
) -> list[Value]:
    """After the step of size s, an element combines the last 2 s elements up to itself."""
    paired_count = compute(g, "sub", size, step)

    def take_slice(value: Value, start: Size, end: Size) -> Value:
        return g.call("aten::slice", self=value, dim=axis, start=start, end=end)

    earlier = [take_slice(value, 0, paired_count) for value in values]
    later = [take_slice(value, step, size) for value in values]
    return [
        # The first elements have nothing at this distance before them.
        g.op("Concat", take_slice(value, 0, step), combined, axis=axis)
        for value, combined in zip(values, combine(earlier, later), strict=True)
    ]


def reduce_by_halves(g: GraphContext, value: Value, axis: int, neutral: Number, combine: Pair) -> Value:
    """The reduction of all elements along a dim; the dim stays, with size 1.

    Unrolled if the size of the dim is known; else a Loop until one element is left.

    Args:
        axis: the dim, not negative.
        neutral: the neutral element, which is the result without elements.
        combine: an associative and commutative combination of two slices.
    """
    sizes = sizes_of(g, value)
    size = sizes[axis]
    if not isinstance(size, int) or size == 0:
        reduced_sizes = [*sizes[:axis], 1, *sizes[axis + 1 :]]
        start = g.call("composed::full", size=reduced_sizes, fill_value=neutral, dtype=value.dtype)
        if size == 0:
            return start
        # With the neutral element there is always one, so that the Loop starts with a size above 0.
        value = g.op("Concat", value, start, axis=axis)
        return _combine_halves_in_loop(g, value, axis, compute(g, "add", size, 1), combine)
    while size > 1:
        value, size = _combine_halves(g, value, axis, size, combine), size - size // 2
    return value


def _combine_halves_in_loop(g: GraphContext, value: Value, axis: int, size: Size, combine: Pair) -> Value:
    shape = list(value.shape) if value.shape is not None else []
    unknown = ir.Shape([*shape[:axis], None, *shape[axis + 1 :]])
    formals = [
        Value(name="size", type=ir.TensorType(DataType.INT64), shape=ir.Shape([])),
        Value(name="held", type=value.type, shape=unknown),
    ]

    def build(iteration: Value, keep_going: Value, size: Value, elements: Value) -> list[Value]:
        remaining_size = compute(g, "sub", size, compute(g, "floordiv", size, 2))
        keep_going = g.call("sym::gt", a=remaining_size, b=1)
        return [keep_going, g.constant(remaining_size), _combine_halves(g, elements, axis, size, combine)]

    body = g.subgraph(build, [*loop_inputs(), *formals], "halves")
    keep_going = g.call("sym::gt", a=size, b=1)
    _, result = g.op("Loop", None, keep_going, g.constant(size), value, body=body, outputs=2)
    result.type, result.shape = value.type, ir.Shape([*shape[:axis], 1, *shape[axis + 1 :]])
    return result


def _combine_halves(g: GraphContext, value: Value, axis: int, size: Size, combine: Pair) -> Value:
    """Combine the first and the last half; append the element between them, if there is one."""
    half = compute(g, "floordiv", size, 2)
    second_start = compute(g, "sub", size, half)

    def take_slice(start: Size, end: Size) -> Value:
        if isinstance(start, int) and isinstance(end, int):
            return g.call("aten::slice", self=value, dim=axis, start=start, end=end)
        return g.op("Gather", value, g.call("sym::range", start=start, end=end), axis=axis)

    result = combine(take_slice(0, half), take_slice(second_start, size))
    return (
        result if half == second_start else g.op("Concat", result, take_slice(half, second_start), axis=axis)
    )
