"""ONNX pass: fuses Gelu, written as separate operators, into Gelu.

    x * (1 + Erf(x / sqrt(2))) * 0.5                                           in any order of the factors
    x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) * 0.5               approximate="tanh"

The argument of Tanh may also be `sqrt(2 / pi) * x * (1 + 0.044715 * x * x)`. A product may stand for a power.

Applies from opset 20, where the operator begins (https://onnx.ai/onnx/operators/onnx__Gelu.html).

1. No intermediate result has another reader or is a graph output.
2. The numbers are those of the formula, within the precision of the element type.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from ....registration.runtimes import has_kernel
from ..node_pass import NodePass, exclusive_producer, replace_match
from ..pass_order import Run
from ..pattern_matcher import is_near, near, number, op, value

_MAXIMUM_DEPTH = 6
"""The maximum depth of nested products; a Gelu has fewer."""
_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Types in which no activation is over half of the largest number."""


class FuseGelu(NodePass):
    """Replaces the composition by Gelu, if the model's opset has it."""

    runs = (Run("full", after={"FoldScales": "A factor behind a layer goes into its weights first."}),)
    op_types = ("Mul",)
    writes = "Gelu"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in a Mul."""
        match = _GELU.find(node)
        x = match["x"] if match is not None else None
        if match is None or x is None or x.dtype is None or not has_kernel("Gelu", x.dtype):
            return False
        attributes = [ir.AttrString("approximate", "tanh")] if "cubic" in match else []
        replace_match(node, "Gelu", [x], attributes, self.opset)
        return True


class OrderGelu(NodePass):
    """Writes `x * ((1 + Erf(...)) * 0.5)` as `x * (1 + Erf(...)) * 0.5`: OpenCV 5 crashes on the first.

    Both give the same numbers, unless x is over half of the largest number of its type.
    """

    runs = (Run("full", after={"FuseGelu": "In opsets with Gelu nothing remains to be ordered."}),)
    op_types = ("Mul",)

    def rewrite(self, node: ir.Node) -> bool:
        """Exchange the factors of the two products of a Gelu."""
        match = _HALVED_SUM.find(node)
        if match is None or match["x"].dtype not in _WIDE:
            return False
        product, x, total = match.node("product"), match["x"], match["total"]
        half = product.inputs[1 if product.inputs[0] is total else 0]
        product.replace_input_with(0, x)
        product.replace_input_with(1, total)
        node.replace_input_with(0, product.outputs[0])
        node.replace_input_with(1, half)
        return True


class HalveGeluInput(NodePass):
    """Writes `x * (1 + Erf(...)) * 0.5` as `x * 0.5 * (1 + Erf(...))`, for targets that fuse this order.

    MNN computes the other order in its own approximation, which loses three digits.
    """

    op_types = ("Mul",)

    def rewrite(self, node: ir.Node) -> bool:
        """Exchange the factors of the two products of a Gelu."""
        match = _HALVED_PRODUCT.find(node)
        if match is None or match["x"].dtype not in _WIDE:
            return False
        product, x, total = match.node("product"), match["x"], match["total"]
        half = node.inputs[1 if node.inputs[0] is product.outputs[0] else 0]
        product.replace_input_with(0, x)
        product.replace_input_with(1, half)
        node.replace_input_with(0, product.outputs[0])
        node.replace_input_with(1, total)
        return True


def _is_cubic(value: ir.Value, x: ir.Value) -> bool:
    """Whether a value is `sqrt(2 / pi) * (x + 0.044715 * x ** 3)`, perhaps with x or numbers distributed."""
    terms = _binomial(value, x)
    if terms is None:
        return False
    factor = math.sqrt(2 / math.pi)
    expected_terms = [(1, factor), (3, 0.044715 * factor)]
    return all(
        power == degree and is_near(coefficient, expected, x.dtype)
        for (power, coefficient), (degree, expected) in zip(sorted(terms), expected_terms, strict=True)
    )


def _binomial(
    value: ir.Value | None, x: ir.Value, depth: int = _MAXIMUM_DEPTH
) -> list[tuple[float, float]] | None:
    """The powers of x and their coefficients in a sum of two, which may be multiplied with others."""
    total = exclusive_producer(value, "Add")
    if total is not None:
        terms = [_monomial(summand, x) for summand in total.inputs]
        return None if None in terms else [term for term in terms if term is not None]
    # The depth ends the recursion: a file may have products of thousands of factors.
    product = exclusive_producer(value, "Mul") if depth else None
    for first, second in (product.inputs, product.inputs[::-1]) if product is not None else ():
        factor = _monomial(first, x)
        inner_terms = _binomial(second, x, depth - 1) if factor is not None else None
        if factor is not None and inner_terms is not None:
            return [(power + factor[0], coefficient * factor[1]) for power, coefficient in inner_terms]
    return None


def _monomial(value: ir.Value | None, x: ir.Value, depth: int = _MAXIMUM_DEPTH) -> tuple[float, float] | None:
    """The power of x and its coefficient in a product of x and numbers."""
    if value is x:
        return 1, 1.0
    constant = number(value)
    if constant is not None:
        return 0, constant
    power = exclusive_producer(value, "Pow")
    if power is not None:
        exponent = number(power.inputs[1])
        return (exponent, 1.0) if power.inputs[0] is x and exponent is not None else None
    product = exclusive_producer(value, "Mul") if depth else None
    factors = (
        [_monomial(operand, x, depth - 1) for operand in product.inputs] if product is not None else [None]
    )
    monomials = [factor for factor in factors if factor is not None]
    if len(monomials) < len(factors):
        return None
    return sum(power for power, _ in monomials), math.prod(coefficient for _, coefficient in monomials)


_X = value("x")
_ERF = op("Erf", _X * near(math.sqrt(0.5)) | _X / near(math.sqrt(2)))
# Exporters distribute the factors of the polynomial in many ways, so that its coefficients are compared.
_TANH = op("Tanh", value("cubic"), where=lambda _, match: _is_cubic(match["cubic"], match["x"]))
_TOTAL = 1 + (_ERF | _TANH)
_GELU = _X * _TOTAL * 0.5 | _X * 0.5 * _TOTAL | _X * (_TOTAL * 0.5)
_HALVED_PRODUCT = (_X * (1 + (_ERF | _TANH)).label("total")).label("product") * 0.5
_HALVED_SUM = _X * ((1 + _ERF).label("total") * 0.5).label("product")
