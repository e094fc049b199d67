"""Trigonometric and hyperbolic functions, composed if the runtime lacks the operator."""

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.operands import floating
from ....compositions.special.formulas import Formula
from ....compositions.special.hyperbolic_formulas import FORMULAS


def _register(names: str, op_type: str) -> None:
    @onnx_symbolic([f"aten::{name}" for name in names.split()])
    def function(g: GraphContext, self: Value) -> Value:
        self = floating(g, self)
        return (
            g.op(op_type, self) if g.has_kernel(op_type, self) else FORMULAS[op_type](Formula(g, self)).value
        )


_register("acos arccos", "Acos")
_register("acosh arccosh", "Acosh")
_register("asin arcsin", "Asin")
_register("asinh arcsinh", "Asinh")
_register("atan arctan", "Atan")
_register("atanh arctanh", "Atanh")
_register("cosh", "Cosh")
_register("sinh", "Sinh")
_register("tan", "Tan")
