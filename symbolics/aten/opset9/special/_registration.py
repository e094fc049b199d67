"""How special functions are registered: a formula of one or two tensors, halves computed in FLOAT."""

from collections.abc import Callable

from .....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ....compositions.formulas import Formula
from .._common import both, floating

_HALVES = (DataType.FLOAT16, DataType.BFLOAT16)


def wide(g: GraphContext, value: Value) -> Formula:
    """The value in the element type that ATen computes special functions in: FLOAT or DOUBLE."""
    value = floating(g, value)
    return Formula(g, g.cast(value, DataType.FLOAT) if g.dtype(value) in _HALVES else value)


def narrowed(g: GraphContext, result: Formula, like: Value) -> Value:
    """The result in the element type of the operand; integers have become FLOAT."""
    dtype = g.dtype(like)
    return g.cast(result.value, dtype) if dtype in _HALVES else result.value


def unary(*names: str) -> Callable[[Callable[[Formula], Formula]], Callable[[Formula], Formula]]:
    """Register a formula as ATen operators of one tensor, `self`."""

    def register(formula: Callable[[Formula], Formula]) -> Callable[[Formula], Formula]:
        def function(g: GraphContext, self: Value) -> Value:
            return narrowed(g, formula(wide(g, self)), self)

        function.__doc__ = formula.__doc__
        for name in names:
            onnx_symbolic(f"aten::{name}", opset=9)(function)
        return formula

    return register


def unary_of_x(name: str) -> Callable[[Callable[[Formula], Formula]], Callable[[Formula], Formula]]:
    """Register a formula as the ATen operator of one tensor that its schema calls `x`."""

    def register(formula: Callable[[Formula], Formula]) -> Callable[[Formula], Formula]:
        def function(g: GraphContext, x: Value) -> Value:
            return narrowed(g, formula(wide(g, x)), x)

        function.__doc__ = formula.__doc__
        onnx_symbolic(f"aten::{name}", opset=9)(function)
        return formula

    return register


def two_operands(
    g: GraphContext, first: Value | Number, second: Value | Number
) -> tuple[Formula, Formula, Value]:
    """Both operands in the element type they are computed in, and the one that decides the result's."""
    like = first if isinstance(first, Value) else second
    assert isinstance(like, Value)
    left, right = both(g, first, second)
    a = wide(g, left)
    b = wide(g, right) if isinstance(right, Value) else Formula(g, g.constant(right, a.value.dtype))
    return a, b, like
