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
from ..node_pass import NodePass
from .patterns import constant_operand, exclusive_producer, number, replace

_PRECISION = {ir.DataType.FLOAT16: 1e-3, ir.DataType.BFLOAT16: 8e-3}
"""The relative error of a number in an element type; for other types it is 1e-6."""
_MAXIMUM_DEPTH = 6
"""The maximum depth of nested products; a Gelu has fewer."""


class FuseGelu(NodePass):
    """Replaces the composition by Gelu, if the model's opset has it."""

    op_types = ("Mul",)
    writes = "Gelu"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in a Mul."""
        match = _gelu(node)
        if match is None or match[0].dtype is None or not has_kernel("Gelu", match[0].dtype):
            return False
        x, _, approximate = match
        attributes = [ir.AttrString("approximate", "tanh")] if approximate == "tanh" else []
        replace(node, "Gelu", [x], attributes, self.opset)
        return True


class OrderGelu(NodePass):
    """Writes `x * ((1 + Erf(...)) * 0.5)` as `x * (1 + Erf(...)) * 0.5`: OpenCV 5 crashes on the first.

    Both give the same numbers, unless x is over half of the largest number of its type.
    """

    op_types = ("Mul",)

    def rewrite(self, node: ir.Node) -> bool:
        """Exchange the factors of the two products of a Gelu."""
        match = _gelu(node)
        if match is None or match[2] != "none" or match[0].dtype not in _WIDE:
            return False
        x, total, _ = match
        # Only the form with x outside of the inner product is affected.
        for input_index, value in enumerate(node.inputs):
            inner = exclusive_producer(value, "Mul")
            halved = constant_operand(inner) if inner is not None else None
            if (
                inner is None
                or halved is None
                or halved[0] is not total.outputs[0]
                or node.inputs[1 - input_index] is not x
            ):
                continue
            half = inner.inputs[1 if inner.inputs[0] is halved[0] else 0]
            for index, operand in enumerate((x, halved[0])):
                inner.replace_input_with(index, operand)
            node.replace_input_with(0, inner.outputs[0])
            node.replace_input_with(1, half)
            return True
        return False


_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Types in which no activation is over half of the largest number."""


def _gelu(node: ir.Node) -> tuple[ir.Value, ir.Node, str] | None:
    """For the last product of a Gelu: its x, the node that adds 1, and the value of `approximate`."""
    factors = _factors(node)
    if factors is None or math.prod(factors[2]) != 0.5:
        return None
    x, total, _ = factors
    sum_operands = constant_operand(total)
    if sum_operands is None or sum_operands[1] != 1:
        return None
    inner = exclusive_producer(sum_operands[0], "Erf", "Tanh")
    if inner is None or inner.inputs[0] is None:
        return None
    if inner.op_type == "Erf":
        return (x, total, "none") if _is_multiple(inner.inputs[0], x, math.sqrt(0.5)) else None
    return (x, total, "tanh") if _is_cubic(inner.inputs[0], x) else None


def _is_near(value: float, expected: float, x: ir.Value) -> bool:
    """Whether a number equals the expected one within the precision of the element type of x."""
    precision = 1e-6 if x.dtype is None else _PRECISION.get(x.dtype, 1e-6)
    return math.isclose(value, expected, rel_tol=precision)


def _factors(node: ir.Node) -> tuple[ir.Value, ir.Node, list[float]] | None:
    """The factors of a product of three: x, a sum, and numbers."""
    numbers: list[float] = []
    values: list[ir.Value] = []
    pending = [node]
    while pending:
        for value in pending.pop().inputs:
            factor = number(value)
            inner_product = exclusive_producer(value, "Mul") if not numbers or len(values) < 2 else None
            if value is None:
                return None
            if factor is not None and numbers:
                return None
            if factor is not None:
                numbers.append(factor)
            # x itself may be a product, which must not be taken apart.
            elif inner_product is not None and len(pending) + len(values) < 2 and _has_part(inner_product):
                pending.append(inner_product)
            else:
                values.append(value)
    if len(values) != 2 or len(numbers) != 1:
        return None
    for x, operand in (values, values[::-1]):
        total = exclusive_producer(operand, "Add")
        if total is not None:
            return x, total, numbers
    return None


def _has_part(node: ir.Node) -> bool:
    """Whether a product has 0.5 or a sum as a factor, as the inner product of a Gelu has."""
    return any(number(value) == 0.5 or exclusive_producer(value, "Add") is not None for value in node.inputs)


def _is_multiple(value: ir.Value, x: ir.Value, factor: float) -> bool:
    """Whether a value is x times a factor."""
    product = exclusive_producer(value, "Mul")
    if product is not None:
        factors = constant_operand(product)
        return factors is not None and factors[0] is x and _is_near(factors[1], factor, x)
    quotient = exclusive_producer(value, "Div")
    if quotient is None or quotient.inputs[0] is not x:
        return False
    divisor = number(quotient.inputs[1])
    return divisor is not None and _is_near(divisor * factor, 1.0, x)


def _is_cubic(value: ir.Value, x: ir.Value) -> bool:
    """Whether a value is `sqrt(2 / pi) * (x + 0.044715 * x ** 3)`, perhaps with x or numbers distributed."""
    terms = _binomial(value, x)
    if terms is None:
        return False
    factor = math.sqrt(2 / math.pi)
    expected_terms = [(1, factor), (3, 0.044715 * factor)]
    return all(
        power == degree and _is_near(coefficient, expected, x)
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
