"""Running extremes with their positions, and the scan by doubling that gives them."""

import onnx_ir as ir

from ....registration import DataType, GraphContext, Value
from ...list_values import loop_inputs
from ...sizes import axis
from ._common import aten, is_integral

Pair = tuple[Value, Value]


def _later(g: GraphContext, largest: bool, earlier: Pair, later: Pair) -> Pair:
    """Of two extremes the later one where they are equal; a NaN stays until another one comes."""
    (old, old_at), (new, new_at) = earlier, later
    takes = g.call("aten::ge" if largest else "aten::le", new, old)
    if not is_integral(g, new):
        takes = g.op("Or", takes, g.call("aten::isnan", new))
    value = g.call("composed::where", condition=takes, self=new, other=old)
    return value, g.op("Where", takes, new_at, old_at)


def _doubled(
    g: GraphContext, pair: Pair, at: int, step: int | Value, size: int | Value, largest: bool
) -> Pair:
    """After the step of s, an element is the extreme of the 2 s elements up to itself."""
    rest = size - step if isinstance(size, int) and isinstance(step, int) else g.op("Sub", size, step)

    def part(value: Value, start: int | Value, end: int | Value) -> Value:
        return g.call("aten::slice", self=value, dim=at, start=start, end=end)

    value, index = pair
    earlier = part(value, 0, rest), part(index, 0, rest)
    later = part(value, step, size), part(index, step, size)
    new, new_at = _later(g, largest, earlier, later)
    return (
        g.op("Concat", part(value, 0, step), new, axis=at),
        g.op("Concat", part(index, 0, step), new_at, axis=at),
    )


def _scanned(g: GraphContext, pair: Pair, at: int, largest: bool) -> Pair:
    """The scan over a dim; of a size that is not known, by a loop until the step has passed it."""
    size = g.size(pair[0], at)
    if isinstance(size, int):
        step = 1
        while step < size:
            pair = _doubled(g, pair, at, step, size, largest)
            step *= 2
        return pair
    formals = [Value(name="step", type=ir.TensorType(DataType.INT64), shape=ir.Shape([]))]
    formals += [Value(name="running", type=value.type, shape=value.shape) for value in pair]

    def build(iteration: Value, going: Value, step: Value, value: Value, index: Value) -> list[Value]:
        doubled = g.op("Mul", step, 2)
        next_pair = _doubled(g, (value, index), at, step, size, largest)
        return [g.call("sym::lt", a=doubled, b=size), doubled, *next_pair]

    body = g.subgraph(build, [*loop_inputs(), *formals], "scan")
    going = g.call("sym::gt", a=size, b=1)
    _, *results = g.op("Loop", None, going, g.constant(1), *pair, body=body, outputs=3)
    for result, value in zip(results, pair, strict=True):
        result.type, result.shape = value.type, value.shape
    return results[0], results[1]


def _register_running(name: str, largest: bool) -> None:
    @aten(name)
    def running(g: GraphContext, self: Value, dim: int) -> list[Value]:
        if g.rank(self) == 0:
            return [self, g.constant(0, DataType.INT64)]
        at = axis(g, self, dim)
        places = g.call("sym::range", start=0, end=g.size(self, at))
        others = [i for i in range(g.rank(self) or 0) if i != at]
        places = g.op("Unsqueeze", places, axes=others) if others else places
        places = g.call("aten::expand_as", places, self)
        kind = g.dtype(self)
        held = g.cast(self, DataType.INT32) if kind == DataType.BOOL else self
        value, index = _scanned(g, (held, places), at, largest)
        return [value if kind is None else g.cast(value, kind), index]


_register_running("cummax", largest=True)
_register_running("cummin", largest=False)
