"""The `sym` dialect: Python arithmetic on symbolic ints (zero-dim INT64) and floats (zero-dim DOUBLE)."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ...registration.inference.folding import MAXIMUM_ELEMENTS
from ..compositions.integers import quotient
from ..compositions.size_arithmetic import Size, compute, fold_size, is_non_negative, where_true

INT, FLOAT, BOOL = DataType.INT64, DataType.DOUBLE, DataType.BOOL

Function = Callable[..., Value]


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


def _binary(op_type: str) -> Function:
    return lambda g, a, b: g.op(op_type, *_numbers(g, a, b))


def _negate(function: Function) -> Function:
    return lambda g, a, b: g.op("Not", function(g, a, b))


def _logical(op_type: str) -> Function:
    """Of two booleans; of integers bit by bit."""

    def symbolic(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
        if _dtype(g, a) == _dtype(g, b) == BOOL:
            return g.op(op_type, g.constant(a, BOOL), g.constant(b, BOOL))
        return g.call(f"aten::bitwise_{op_type.lower()}", *_numbers(g, a, b))

    return symbolic


def _rounding(op_type: str) -> Function:
    """Python's floor and ceil return ints."""
    return lambda g, a: g.constant(g.op(op_type, g.constant(a, FLOAT)) if _is_float(g, a) else a, INT)


def _logarithm(g: GraphContext, a: Value | Number) -> Value:
    """Python's `log2`, which is exact for powers of 2, where a quotient of logarithms is rounded."""
    number = g.constant(a, FLOAT)
    quotient_of_logs = g.op("Div", g.op("Log", number), float(np.log(2)))
    nearest = g.op("Floor", g.op("Add", quotient_of_logs, 0.5))
    power = g.op("Pow", g.constant(2.0, FLOAT), nearest)
    return g.op("Where", g.call("aten::eq", power, number), nearest, quotient_of_logs)


_UNARY: dict[str, Function] = {
    "abs": lambda g, a: g.op("Abs", *_numbers(g, a)),
    "ceil": _rounding("Ceil"),
    "float": lambda g, a: g.constant(a, FLOAT),
    "floor": _rounding("Floor"),
    # Cast rounds towards zero, as Python's int does.
    "int": lambda g, a: g.constant(a, INT),
    "log2": _logarithm,
    "neg": lambda g, a: g.op("Neg", *_numbers(g, a)),
    "not": lambda g, a: g.op("Not", g.constant(a, BOOL)),
    "pos": lambda g, a: _numbers(g, a)[0],
    "sqrt": lambda g, a: g.op("Sqrt", g.constant(a, FLOAT)),
    "trunc": lambda g, a: g.constant(a, INT),
}
_BINARY: dict[str, Function] = {
    "add": _binary("Add"),
    "and": _logical("And"),
    # Equal takes no floats before opset 11.
    "eq": lambda g, a, b: g.call("aten::eq", *_numbers(g, a, b)),
    "ge": _negate(_binary("Less")),
    "gt": _binary("Greater"),
    "le": _negate(_binary("Greater")),
    "lt": _binary("Less"),
    "mul": _binary("Mul"),
    "ne": _negate(lambda g, a, b: g.call("sym::eq", a, b)),
    "or": _logical("Or"),
    "sub": _binary("Sub"),
    "truediv": lambda g, a, b: g.op("Div", g.constant(a, FLOAT), g.constant(b, FLOAT)),
    "xor": _logical("Xor"),
}


def _register_unary(name: str, function: Function) -> None:
    @onnx_symbolic(f"sym::{name}")
    def symbolic(g: GraphContext, a: Value | Number) -> Value:
        return function(g, a)


def _register_binary(name: str, function: Function, opset: int = 9) -> None:
    @onnx_symbolic(f"sym::{name}", opset=opset)
    def symbolic(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
        return function(g, a, b)


for _name, _function in _UNARY.items():
    _register_unary(_name, _function)
for _name, _function in _BINARY.items():
    _register_binary(_name, _function)


def _register_extreme(name: str, op_type: str, comparison: str) -> None:
    """Composed, because Max and Min take no integers before opset 12, and return NaN if a float is NaN."""

    def select(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
        first, second = _numbers(g, a, b)
        return g.op("Where", g.op(comparison, first, second), first, second)

    def by_operator(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
        return select(g, a, b) if _is_float(g, a, b) else g.op(op_type, *_numbers(g, a, b))

    _register_binary(name, select)
    _register_binary(name, by_operator, opset=12)


_register_extreme("max", "Max", "Greater")
_register_extreme("min", "Min", "Less")


@onnx_symbolic("sym::ite")
def ite(g: GraphContext, cond: Value | bool, a: Value | Number, b: Value | Number) -> Value:
    if _dtype(g, a) == BOOL and _dtype(g, b) == BOOL:
        selected = g.op("Where", g.constant(cond, BOOL), g.constant(a, INT), g.constant(b, INT))
        return g.cast(selected, BOOL)
    return g.op("Where", g.constant(cond, BOOL), *_numbers(g, a, b))


@onnx_symbolic("sym::sum")
def sum_(g: GraphContext, a: list[Value | Number]) -> Value | int:
    total: Size = 0
    for number in a:
        total = compute(g, "add", total, number)  # type: ignore[arg-type]
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


@onnx_symbolic("sym::pow")
def pow_(g: GraphContext, a: Value | Number, b: Value | Number) -> Value:
    """Small integer powers are products, which keeps integers exact at every opset."""
    power = fold_size(g, b) if isinstance(b, Value) and _dtype(g, b) == INT else b
    if isinstance(power, int) and 0 <= power <= 8:
        [base] = _numbers(g, a)
        if power == 0:
            return g.constant(1, g.dtype(base))
        result = base
        # Pow takes no integers before opset 12.
        for _ in range(power - 1):
            result = g.op("Mul", result, base)
        return result
    if _is_float(g, a, b):
        return g.op("Pow", *_numbers(g, a, b))
    # DOUBLE holds the integers up to 2**53 exactly.
    return g.cast(g.op("Pow", g.constant(a, FLOAT), g.constant(b, FLOAT)), INT)


@onnx_symbolic("sym::lshift")
def lshift(g: GraphContext, a: Value | int, b: int) -> Value:
    return g.op("Mul", *_numbers(g, a, 2**b))


@onnx_symbolic("sym::rshift")
def rshift(g: GraphContext, a: Value | int, b: int) -> Value:
    return g.call("sym::floordiv", a=a, b=2**b)


@onnx_symbolic("sym::round")
def round_(g: GraphContext, a: Value | Number, b: int | None = None) -> Value:
    """Without digits: half to even. Round begins at opset 11."""
    if b is not None:
        raise g.refuse("rounding a symbolic number to digits is not supported")
    return g.constant(a, INT) if not _is_float(g, a) else g.cast(g.op("Round", g.constant(a, FLOAT)), INT)


@onnx_symbolic("sym::require")
def require(g: GraphContext, self: Value, condition: Value | bool, text: str) -> Value:
    """The value itself; running the file fails if the condition is false, with the text in the message.

    Each size is requested one larger then, which is another number of elements at all sizes, 0 included. All
    runtimes check this, because they must: it decides how much memory the result has. They do not check the
    indices of Gather on every device, and remove an If whose branches are equal.
    """
    is_wrong = g.cast(g.call("sym::not", a=condition), INT)
    shape = g.op("Add", g.op("Shape", self), is_wrong)
    result = g.op("Reshape", self, shape)
    node = result.producer()
    if node is not None:
        node.name = g.construction.names.unique(text)
    return result


@onnx_symbolic("sym::range")
def range_(g: GraphContext, start: Value | int, end: Value | int, step: int = 1) -> Value:
    """`range(start, end, step)` as a one-dimensional INT64 tensor.

    Range begins at opset 11. Below, the positions of nonzero elements in a tensor of ones.
    """
    start, end = fold_size(g, start), fold_size(g, end)
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
    filled = g.op("ConstantOfShape", g.stack([steps]), value=[1])
    result = where_true(g, filled)
    result = result if step == 1 else g.op("Mul", result, step)
    return result if start == 0 and isinstance(start, int) else g.op("Add", result, g.constant(start, INT))


@onnx_symbolic("sym::range", opset=11)
def range_11(g: GraphContext, start: Value | int, end: Value | int, step: int = 1) -> Value:
    """From 11: Range.

    onnxruntime makes a Slice of a Range that only Gather reads. There, a negative number counts from the end
    of the axis, so a range whose ends may be negative counts from 0.
    """
    start, end = fold_size(g, start), fold_size(g, end)
    if not is_non_negative(end if step < 0 else start):
        first, last = (start, end) if step > 0 else (end, start)
        counted = g.call("sym::range", start=0, end=compute(g, "sub", last, first), step=abs(step))
        return g.op("Add" if step > 0 else "Sub", g.constant(start, INT), counted)
    result = g.op("Range", g.constant(start, INT), g.constant(end, INT), g.constant(step, INT))
    if result.producer() is not None:
        result.shape = ir.Shape([None])
    return result
