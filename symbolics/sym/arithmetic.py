"""The `sym` dialect: Python arithmetic on symbolic ints (zero-dim INT64) and floats (zero-dim DOUBLE)."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ...registration.emission.folding import MAXIMUM_ELEMENTS
from ..compositions.integers import quotient
from ..compositions.sizes import Size, compute, is_non_negative, known, where_true

INT, FLOAT, BOOL = DataType.INT64, DataType.DOUBLE, DataType.BOOL


def _dtype(g: GraphContext, number: Value | Number) -> DataType:
    if isinstance(number, Value):
        return FLOAT if g.dtype(number) in (DataType.FLOAT, DataType.DOUBLE) else g.dtype(number) or INT
    return BOOL if isinstance(number, bool) else INT if isinstance(number, int) else FLOAT


def _numbers(g: GraphContext, *numbers: Value | Number) -> list[Value]:
    """Numbers converted to one type as in Python: float if any is a float, else int."""
    dtype = FLOAT if any(_dtype(g, number) == FLOAT for number in numbers) else INT
    return [g.constant(number, dtype) for number in numbers]


def _is_float(g: GraphContext, *numbers: Value | Number) -> bool:
    return any(_dtype(g, number) == FLOAT for number in numbers)


def _binary(op_type: str, negated: bool = False) -> Callable[..., Value]:
    def symbolic(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
        result = g.op(op_type, *_numbers(g, a, b))
        return g.op("Not", result) if negated else result

    return symbolic


for _name, _op_type, _negated in (
    ("add", "Add", False),
    ("sub", "Sub", False),
    ("mul", "Mul", False),
    ("lt", "Less", False),
    ("gt", "Greater", False),
    ("le", "Greater", True),
    ("ge", "Less", True),
):
    onnx_symbolic(f"sym::{_name}")(_binary(_op_type, _negated))


@onnx_symbolic("sym::eq")
def eq(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
    """Calls `aten::eq`, because Equal takes no floats before opset 11."""
    first, second = _numbers(g, a, b)
    return g.call("aten::eq", self=first, other=second)


@onnx_symbolic("sym::ne")
def ne(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
    return g.op("Not", g.call("sym::eq", a=a, b=b))


def _extreme(comparison: str) -> Callable[..., Value]:
    """Composed, because Max and Min take no integers before opset 12, and return NaN if a float is NaN."""

    def symbolic(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
        first, second = _numbers(g, a, b)
        return g.op("Where", g.op(comparison, first, second), first, second)

    return symbolic


def _extreme_of_ints(op_type: str, comparison: str) -> Callable[..., Value]:
    def symbolic(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
        if _is_float(g, a, b):
            return _extreme(comparison)(g, a, b)
        return g.op(op_type, *_numbers(g, a, b))

    return symbolic


for _name, _op_type, _comparison in (("max", "Max", "Greater"), ("min", "Min", "Less")):
    onnx_symbolic(f"sym::{_name}")(_extreme(_comparison))
    onnx_symbolic(f"sym::{_name}", opset=12)(_extreme_of_ints(_op_type, _comparison))


def _logical(op_type: str) -> Callable[..., Value]:
    def symbolic(g: GraphContext, a: Value | bool, b: Value | bool) -> Value:
        return g.op(op_type, g.constant(a, BOOL), g.constant(b, BOOL))

    return symbolic


for _name, _op_type in (("and", "And"), ("or", "Or"), ("xor", "Xor")):
    onnx_symbolic(f"sym::{_name}")(_logical(_op_type))


@onnx_symbolic("sym::not")
def not_(g: GraphContext, a: Value | bool) -> Value:
    return g.op("Not", g.constant(a, BOOL))


@onnx_symbolic("sym::ite")
def ite(g: GraphContext, cond: Value | bool, a: Value | Number, b: Value | Number) -> Value:
    if _dtype(g, a) == BOOL and _dtype(g, b) == BOOL:
        chosen = g.op("Where", g.constant(cond, BOOL), g.constant(a, INT), g.constant(b, INT))
        return g.cast(chosen, BOOL)
    return g.op("Where", g.constant(cond, BOOL), *_numbers(g, a, b))


@onnx_symbolic("sym::sum")
def sum_(g: GraphContext, a: list[Value | Number]) -> Value | int:
    total: Size = 0
    for item in a:
        total = compute(g, "add", total, item)  # type: ignore[arg-type]
    return total


@onnx_symbolic("sym::floordiv")
def floordiv(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
    """Rounds down; ONNX's integer Div rounds towards zero."""
    first, second = _numbers(g, a, b)
    if _is_float(g, a, b):
        return g.op("Floor", g.op("Div", first, second))
    if is_non_negative(first) and is_non_negative(second):
        return quotient(g, first, second)
    return quotient(g, g.op("Sub", first, g.call("sym::mod", a=first, b=second)), second)


def _truncated_remainder(g: GraphContext, a: Value, b: Value) -> Value:
    return g.op("Sub", a, g.op("Mul", quotient(g, a, b), b))


def _truncated_float_remainder(g: GraphContext, a: Value, b: Value) -> Value:
    return g.op("Sub", a, g.op("Mul", g.call("aten::trunc", g.op("Div", a, b)), b))


@onnx_symbolic("sym::mod")
def mod(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
    """The remainder has the divisor's sign."""
    first, second = _numbers(g, a, b)
    if _is_float(g, a, b):
        # TorchScript adds the divisor, which rounds.
        total = g.op("Add", _truncated_float_remainder(g, first, second), second)
        return _truncated_float_remainder(g, total, second)
    remainder = _truncated_remainder(g, first, second)
    if is_non_negative(first) and is_non_negative(second):
        return remainder
    return _truncated_remainder(g, g.op("Add", remainder, second), second)


@onnx_symbolic("sym::mod", opset=10)
def mod_10(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
    """From 10: Mod, whose integer remainder has the divisor's sign and whose float remainder is exact."""
    first, second = _numbers(g, a, b)
    if not _is_float(g, a, b):
        return g.op("Mod", first, second)
    remainder = g.op("Mod", first, second, fmod=1)
    return g.op("Mod", g.op("Add", remainder, second), second, fmod=1)


@onnx_symbolic("sym::truediv")
def truediv(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
    return g.op("Div", g.constant(a, FLOAT), g.constant(b, FLOAT))


@onnx_symbolic("sym::pow")
def pow_(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
    """Small integer powers are products, which keeps integers exact at every opset."""
    power = known(g, b) if isinstance(b, Value) and _dtype(g, b) == INT else b
    if isinstance(power, int) and 0 <= power <= 8:
        [base] = _numbers(g, a)
        if power == 0:
            return g.constant(1, g.dtype(base))
        result = base
        for _ in range(power - 1):
            result = g.op("Mul", result, base)
        return result
    if _is_float(g, a, b):
        return g.op("Pow", *_numbers(g, a, b))
    return g.cast(g.op("Pow", g.constant(a, FLOAT), g.constant(b, FLOAT)), INT)


@onnx_symbolic("sym::lshift")
def lshift(g: GraphContext, a: Value | int, b: int) -> Value:
    return g.op("Mul", *_numbers(g, a, 2**b))


@onnx_symbolic("sym::rshift")
def rshift(g: GraphContext, a: Value | int, b: int) -> Value:
    return g.call("sym::floordiv", a=a, b=2**b)


@onnx_symbolic("sym::float")
def float_(g: GraphContext, a: Value | Number) -> Value:
    return g.constant(a, FLOAT)


@onnx_symbolic("sym::sqrt")
def sqrt(g: GraphContext, a: Value | Number) -> Value:
    return g.op("Sqrt", g.constant(a, FLOAT))


@onnx_symbolic(["sym::int", "sym::trunc"])
def int_(g: GraphContext, a: Value | Number) -> Value:
    """Cast rounds towards zero, as Python's int does."""
    return g.constant(a, INT)


def _whole(op_type: str) -> Callable[..., Value]:
    """Python's floor and ceil return ints."""

    def symbolic(g: GraphContext, a: Value | Number) -> Value:
        if not _is_float(g, a):
            return g.constant(a, INT)
        return g.cast(g.op(op_type, g.constant(a, FLOAT)), INT)

    return symbolic


onnx_symbolic("sym::floor")(_whole("Floor"))
onnx_symbolic("sym::ceil")(_whole("Ceil"))


@onnx_symbolic("sym::round")
def round_(g: GraphContext, a: Value | Number, b: int | None = None) -> Value:
    """Without digits: half to even. Round begins at opset 11."""
    if b is not None:
        raise g.refuse("rounding a symbolic number to digits has no ONNX form")
    return g.constant(a, INT) if not _is_float(g, a) else g.cast(g.op("Round", g.constant(a, FLOAT)), INT)


def _unary(op_type: str) -> Callable[..., Value]:
    def symbolic(g: GraphContext, a: Value | Number) -> Value:
        return g.op(op_type, *_numbers(g, a))

    return symbolic


onnx_symbolic("sym::neg")(_unary("Neg"))
onnx_symbolic("sym::abs")(_unary("Abs"))


@onnx_symbolic("sym::pos")
def pos(g: GraphContext, a: Value | Number) -> Value:
    return _numbers(g, a)[0]


@onnx_symbolic("sym::range")
def range_(g: GraphContext, start: Value | int, end: Value | int, step: int = 1) -> Value:
    """`range(start, end, step)` as a one-dimensional INT64 tensor.

    Range begins at opset 11. Below, the positions of nonzero elements in a tensor of ones.
    """
    start, end = known(g, start), known(g, end)
    if isinstance(start, int) and isinstance(end, int):
        numbers = range(start, end, step)
        if len(numbers) <= MAXIMUM_ELEMENTS:
            return g.constant(np.array(numbers, dtype=np.int64))
    span = compute(g, "sub", end, start)
    if step != 1:
        steps = compute(g, "floordiv", compute(g, "add", span, step - (1 if step > 0 else -1)), step)
    else:
        steps = span
    if not is_non_negative(steps):
        steps = compute(g, "max", steps, 0)
    ones = g.op("ConstantOfShape", g.stack([steps]), value=[1])
    result = where_true(g, ones)
    result = result if step == 1 else g.op("Mul", result, step)
    return result if start == 0 and isinstance(start, int) else g.op("Add", result, start)


@onnx_symbolic("sym::range", opset=11)
def range_11(g: GraphContext, start: Value | int, end: Value | int, step: int = 1) -> Value:
    """From 11: Range."""
    result = g.op("Range", g.constant(start, INT), g.constant(end, INT), g.constant(step, INT))
    if result.producer() is not None:
        result.shape = ir.Shape([None])
    return result
