"""Logic as arithmetic with numbers 0 and 1."""

from collections.abc import Callable

import onnx_ir as ir

from ...registration import GraphContext, Value, onnx_symbolic


def _register(op_type: str, combine: Callable[[GraphContext, Value, Value], Value]) -> None:
    @onnx_symbolic(f"form::{op_type}_arithmetic")
    def combine_numbers(g: GraphContext, A: Value, B: Value) -> Value:
        """Of floats, which are 0 and 1."""
        first, second = (g.cast(value, ir.DataType.FLOAT) for value in (A, B))
        return g.cast(combine(g, first, second), ir.DataType.BOOL)


_register("And", lambda g, a, b: g.op("Mul", a, b))
_register("Or", lambda g, a, b: g.op("Max", a, b))
_register("Xor", lambda g, a, b: g.op("Abs", g.op("Sub", a, b)))


@onnx_symbolic("form::Not_arithmetic")
def logical_not(g: GraphContext, X: Value) -> Value:
    """`1 - X` of floats, which are 0 and 1."""
    return g.cast(g.op("Sub", 1.0, g.cast(X, ir.DataType.FLOAT)), ir.DataType.BOOL)


@onnx_symbolic("form::Where_arithmetic")
def where(g: GraphContext, condition: Value, X: Value, Y: Value) -> Value:
    """`condition * X + (1 - condition) * Y`, of finite constants only: 0 times infinity is NaN."""
    for operand in (X, Y):
        array = g.constant_value(operand)
        if array is None or array.dtype.kind != "f" or not bool((abs(array) < 1e30).all()):
            raise g.refuse("only finite constants are selected by arithmetic")
    chosen = g.cast(condition, g.dtype(X) or ir.DataType.FLOAT)
    return g.op("Add", Y, g.op("Mul", chosen, g.op("Sub", X, Y)))
