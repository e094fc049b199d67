"""Scans and reductions along a dim in a logarithmic number of steps."""

from collections.abc import Callable, Sequence

import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value
from .list_values import loop_inputs
from .sizes import Size, compute, sizes_of

Pair = Callable[[Value, Value], Value]
Combine = Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]]
"""Combines the result of earlier elements with the result of later ones."""


def inclusive_scan(g: GraphContext, values: Sequence[Value], at: int, combine: Combine) -> list[Value]:
    """The inclusive scan of all values along one dim.

    Unrolled if the size of the dim is known; else a Loop until the step has passed it.

    Args:
        values: the values to combine, of the same shape.
        at: the dim, not negative.
        combine: an associative combination.
    """
    size = g.size(values[0], at)
    values = list(values)
    if isinstance(size, int):
        step = 1
        while step < size:
            values = _doubled(g, values, at, step, size, combine)
            step *= 2
        return values
    formals = [Value(name="step", type=ir.TensorType(DataType.INT64), shape=ir.Shape([]))]
    formals += [Value(name="running", type=value.type, shape=value.shape) for value in values]

    def build(iteration: Value, going: Value, step: Value, *running: Value) -> list[Value]:
        doubled = g.op("Mul", step, 2)
        later = _doubled(g, running, at, step, size, combine)
        return [g.call("sym::lt", a=doubled, b=size), doubled, *later]

    body = g.subgraph(build, [*loop_inputs(), *formals], "scan")
    going = g.call("sym::gt", a=size, b=1)
    _, *results = g.op("Loop", None, going, g.constant(1), *values, body=body, outputs=len(values) + 1)
    for result, value in zip(results, values, strict=True):
        result.type, result.shape = value.type, value.shape
    value_of_result: list[Value] = results
    return value_of_result


def _doubled(
    g: GraphContext, values: Sequence[Value], at: int, step: Size, size: Size, combine: Combine
) -> list[Value]:
    """After the step of size s, an element combines the last 2 s elements up to itself."""
    rest = compute(g, "sub", size, step)

    def part(value: Value, start: Size, end: Size) -> Value:
        return g.call("aten::slice", self=value, dim=at, start=start, end=end)

    earlier = [part(value, 0, rest) for value in values]
    later = [part(value, step, size) for value in values]
    return [
        g.op("Concat", part(value, 0, step), new, axis=at)
        for value, new in zip(values, combine(earlier, later), strict=True)
    ]


def reduced_by_halves(g: GraphContext, value: Value, at: int, neutral: Number, combine: Pair) -> Value:
    """The reduction of all elements along a dim; the dim stays, with size 1.

    Unrolled if the size of the dim is known; else a Loop until one element is left.

    Args:
        at: the dim, not negative.
        neutral: the neutral element, which is the result without elements.
        combine: an associative and commutative combination of two slices.
    """
    sizes = sizes_of(g, value)
    size = sizes[at]
    if not isinstance(size, int) or size == 0:
        one = [*sizes[:at], 1, *sizes[at + 1 :]]
        start = g.call("composed::full", size=one, fill_value=neutral, dtype=value.dtype)
        if size == 0:
            return start
        value = g.op("Concat", value, start, axis=at)
        return _halved_in_loop(g, value, at, compute(g, "add", size, 1), combine)
    while size > 1:
        value, size = _halved(g, value, at, size, combine), size - size // 2
    return value


def _halved_in_loop(g: GraphContext, value: Value, at: int, size: Size, combine: Pair) -> Value:
    shape = list(value.shape) if value.shape is not None else []
    unknown = ir.Shape([*shape[:at], None, *shape[at + 1 :]])
    formals = [
        Value(name="size", type=ir.TensorType(DataType.INT64), shape=ir.Shape([])),
        Value(name="held", type=value.type, shape=unknown),
    ]

    def build(iteration: Value, going: Value, size: Value, held: Value) -> list[Value]:
        left = compute(g, "sub", size, compute(g, "floordiv", size, 2))
        going = g.call("sym::gt", a=left, b=1)
        return [going, g.constant(left), _halved(g, held, at, size, combine)]

    body = g.subgraph(build, [*loop_inputs(), *formals], "halves")
    going = g.call("sym::gt", a=size, b=1)
    _, result = g.op("Loop", None, going, g.constant(size), value, body=body, outputs=2)
    result.type, result.shape = value.type, ir.Shape([*shape[:at], 1, *shape[at + 1 :]])
    value_of_result: Value = result
    return value_of_result


def _halved(g: GraphContext, value: Value, at: int, size: Size, combine: Pair) -> Value:
    """Combine the first and the last half; append the element between them, if there is one."""
    half = compute(g, "floordiv", size, 2)
    rest = compute(g, "sub", size, half)

    def part(start: Size, end: Size) -> Value:
        if isinstance(start, int) and isinstance(end, int):
            return g.call("aten::slice", self=value, dim=at, start=start, end=end)
        return g.op("Gather", value, g.call("sym::range", start=start, end=end), axis=at)

    result = combine(part(0, half), part(rest, size))
    return result if half == rest else g.op("Concat", result, part(half, rest), axis=at)
