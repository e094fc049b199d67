"""Scans along a dim by doubling: in as many steps as the size of the dim has binary digits."""

from collections.abc import Callable, Sequence

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value
from ..list_values import loop_inputs
from ..sizes import Size, compute

Combine = Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]]
"""From what earlier elements give and what later ones do to what both give together."""


def scanned(g: GraphContext, values: Sequence[Value], at: int, combine: Combine) -> list[Value]:
    """What the elements up to each one give together, along one dim of all values.

    Laid out where the size of the dim is known; else a Loop until the step has passed it.

    Args:
        values: what is combined, of one shape.
        at: the dim, counted from the front.
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
    return results


def _doubled(
    g: GraphContext, values: Sequence[Value], at: int, step: Size, size: Size, combine: Combine
) -> list[Value]:
    """After the step of s, an element combines the 2 s elements up to itself."""
    rest = compute(g, "sub", size, step)

    def part(value: Value, start: Size, end: Size) -> Value:
        return g.call("aten::slice", self=value, dim=at, start=start, end=end)

    earlier = [part(value, 0, rest) for value in values]
    later = [part(value, step, size) for value in values]
    return [
        g.op("Concat", part(value, 0, step), new, axis=at)
        for value, new in zip(values, combine(earlier, later), strict=True)
    ]
