"""Running maxima and minima with their positions."""

from collections.abc import Sequence

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.doubling import inclusive_scan
from ....compositions.operands import is_integral
from ....compositions.size_arithmetic import axis


def _combine_extremes(
    g: GraphContext, largest: bool, earlier: Sequence[Value], later: Sequence[Value]
) -> tuple[Value, Value]:
    """Combine two running extremes: equal ones give the later one; a NaN stays until another NaN."""
    (old, old_position), (new, new_position) = earlier, later
    takes = g.call("aten::ge" if largest else "aten::le", new, old)
    if not is_integral(g, new):
        takes = g.op("Or", takes, g.call("aten::isnan", new))
    value = g.call("composed::where", condition=takes, self=new, other=old)
    return value, g.op("Where", takes, new_position, old_position)


def _register_running(name: str, largest: bool) -> None:
    @onnx_symbolic(f"aten::{name}")
    def running(g: GraphContext, self: Value, dim: int) -> list[Value]:
        if g.rank(self) == 0:
            return [self, g.constant(0, DataType.INT64)]
        dimension = axis(g, self, dim)
        positions = g.call("sym::range", start=0, end=g.size(self, dimension))
        broadcast_axes = [i for i in range(g.rank(self) or 0) if i != dimension]
        positions = g.op("Unsqueeze", positions, axes=broadcast_axes) if broadcast_axes else positions
        positions = g.call("aten::expand_as", positions, self)
        dtype = g.dtype(self)
        # Less and Greater do not take BOOL.
        values = g.cast(self, DataType.INT32) if dtype == DataType.BOOL else self
        value, index = inclusive_scan(
            g, (values, positions), dimension, lambda *pairs: _combine_extremes(g, largest, *pairs)
        )
        return [value if dtype is None else g.cast(value, dtype), index]


_register_running("cummax", largest=True)
_register_running("cummin", largest=False)
