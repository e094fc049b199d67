"""Registers special functions: formulas of one or two tensors, with half precision computed in FLOAT."""

from collections.abc import Callable

from .....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ....compositions.operands import as_operands, floating
from ....compositions.special.formulas import Formula


def wide(g: GraphContext, value: Value) -> Formula:
    """The value in the element type in which ATen computes special functions: FLOAT or DOUBLE."""
    value = floating(g, value)
    return Formula(g, g.cast(value, DataType.FLOAT) if g.dtype(value) in dtypes.HALVES else value)


def cast_result(g: GraphContext, result: Formula, like: Value) -> Value:
    """The result in the element type of the operand; FLOAT for integers."""
    dtype = g.dtype(like)
    return g.cast(result.value, dtype) if dtype in dtypes.HALVES else result.value


def unary(*names: str) -> Callable[[Callable[[Formula], Formula]], Callable[[Formula], Formula]]:
    """Register a formula as ATen operators of one tensor, `self`."""

    def register(formula: Callable[[Formula], Formula]) -> Callable[[Formula], Formula]:
        def function(g: GraphContext, self: Value) -> Value:
            return cast_result(g, formula(wide(g, self)), self)

        function.__doc__ = formula.__doc__
        onnx_symbolic([f"aten::{name}" for name in names])(function)
        return formula

    return register


def unary_of_x(name: str) -> Callable[[Callable[[Formula], Formula]], Callable[[Formula], Formula]]:
    """Register a formula as the ATen operator of one tensor that its schema calls `x`."""

    def register(formula: Callable[[Formula], Formula]) -> Callable[[Formula], Formula]:
        def function(g: GraphContext, x: Value) -> Value:
            return cast_result(g, formula(wide(g, x)), x)

        function.__doc__ = formula.__doc__
        onnx_symbolic(f"aten::{name}")(function)
        return formula

    return register


def two_operands(
    g: GraphContext, first: Value | Number, second: Value | Number
) -> tuple[Formula, Formula, Value]:
    """Both operands in the element type of the computation, and the operand that decides the result type."""
    like = first if isinstance(first, Value) else second
    assert isinstance(like, Value)
    first_operand, second_operand = as_operands(g, first, second)
    a = wide(g, first_operand)
    b = (
        wide(g, second_operand)
        if isinstance(second_operand, Value)
        else Formula(g, g.constant(second_operand, a.value.dtype))
    )
    return a, b, like
