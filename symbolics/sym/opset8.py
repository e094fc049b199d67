"""Arithmetic on symbolic numbers below opset 9, where Greater takes only floats, and Where is missing.

Numbers are INT64 or DOUBLE scalars. The version ladder composes the same operators for tensors of any element
type and shape, which gives larger graphs. What changes below 9:

- Comparisons: ints are compared as doubles, and by their difference if these are equal.
- `max`, `min`: selection by arithmetic or Gather.
- `composed::wrap`: the size is multiplied by the comparison and added.
- `sym::range`: NonZero is missing, so a Loop counts.
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ...registration.inference.folding import MAXIMUM_ELEMENTS
from ..compositions.list_values import loop_inputs
from ..compositions.size_arithmetic import Size, compute, fold_size, is_non_negative

INT, DOUBLE = DataType.INT64, DataType.DOUBLE


def _is_integral(g: GraphContext, number: Value | Number) -> bool:
    return g.dtype(number) in (INT, DataType.BOOL) if isinstance(number, Value) else isinstance(number, int)


def _greater(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
    """Ints compare as doubles; two ints that round to the same double are compared by their difference."""
    larger = g.op("Greater", g.constant(a, DOUBLE), g.constant(b, DOUBLE))
    if not (_is_integral(g, a) and _is_integral(g, b)):
        return larger
    smaller = g.op("Less", g.constant(a, DOUBLE), g.constant(b, DOUBLE))
    difference = g.op("Sub", g.constant(a, INT), g.constant(b, INT))
    positive = g.op("Greater", g.cast(difference, DataType.FLOAT), 0.0)
    return g.op("Or", larger, g.op("And", g.op("Not", smaller), positive))


def _comparison(swapped: bool, negated: bool) -> Callable[..., Value]:
    def symbolic(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
        result = _greater(g, b, a) if swapped else _greater(g, a, b)
        return g.op("Not", result) if negated else result

    return symbolic


for _name, _swapped, _negated in (
    ("gt", False, False),
    ("lt", True, False),
    ("le", False, True),
    ("ge", True, True),
):
    onnx_symbolic(f"sym::{_name}", opset=8)(_comparison(_swapped, _negated))


def _extreme(sign: int) -> Callable[..., Value]:
    """The first number if it is larger (or smaller), else the second, also if one is NaN."""

    def symbolic(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
        dtype = INT if _is_integral(g, a) and _is_integral(g, b) else DOUBLE
        first, second = g.constant(a, dtype), g.constant(b, dtype)
        takes_first = _greater(g, first, second) if sign > 0 else _greater(g, second, first)
        if dtype == INT:
            return g.op("Add", second, g.op("Mul", g.cast(takes_first, dtype), g.op("Sub", first, second)))
        # Gather selects one of two numbers, not element by element.
        if g.rank(first) != 0 or g.rank(second) != 0:
            return g.op_of_target("Max" if sign > 0 else "Min", first, second)
        pair = g.op("Concat", *(g.op("Unsqueeze", number, axes=[0]) for number in (second, first)), axis=0)
        return g.op("Gather", pair, g.cast(takes_first, INT), axis=0)

    return symbolic


onnx_symbolic("sym::max", opset=8)(_extreme(1))
onnx_symbolic("sym::min", opset=8)(_extreme(-1))


@onnx_symbolic("composed::wrap", opset=8)
def wrap(g: GraphContext, index: Value, size: int | Value) -> Value:
    """Below 9: adds the size to negative positions."""
    if is_non_negative(index):
        return index
    index = g.cast(index, INT)
    negative = g.cast(_greater(g, 0, index), INT)
    return g.op("Add", index, g.op("Mul", negative, g.constant(size, INT)))


@onnx_symbolic("sym::range", opset=8)
def range_(g: GraphContext, start: Value | int, end: Value | int, step: int = 1) -> Value:
    """Below 9: the iteration numbers of a Loop, which must carry a value.

    onnxruntime 1.0 returns the last iteration number for each, so they are computed: they count from 1.
    """
    start, end = fold_size(g, start), fold_size(g, end)
    if isinstance(start, int) and isinstance(end, int):
        numbers = range(start, end, step)
        if len(numbers) <= MAXIMUM_ELEMENTS:
            return g.constant(np.array(numbers, dtype=np.int64))
    span = compute(g, "sub", end, start)
    steps: Size = compute(g, "add", span, step - (1 if step > 0 else -1))
    steps = compute(g, "floordiv", steps, step)
    nothing = Value(name="nothing", type=ir.TensorType(DataType.BOOL), shape=ir.Shape([]))

    def build(iteration: Value, keep_going: Value, nothing: Value) -> list[Value]:
        return [keep_going, nothing, g.op("Add", iteration, 1)]

    body = g.subgraph(build, [*loop_inputs(), nothing], "count")
    counted = g.op("Loop", g.constant(steps, INT), g.constant(True), g.constant(False), body=body, outputs=2)[
        1
    ]
    counted.type, counted.shape = ir.TensorType(INT), ir.Shape([None])
    result = counted if step == 1 else g.op("Mul", counted, step)
    return g.op("Add", result, compute(g, "sub", start, step))
