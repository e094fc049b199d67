"""Target pass: fuses Gelu, written as separate operators, into Gelu.

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
from .patterns import constant_operand, made_by, number, replace

_PRECISION = {ir.DataType.FLOAT16: 1e-3, ir.DataType.BFLOAT16: 8e-3}
"""The relative error with which an element type holds a number; for other types it is 1e-6."""
_MAXIMUM_DEPTH = 6
"""Products within one another that are followed; more have no part in a Gelu."""


class FuseGelu(NodePass):
    """Replaces the composition by Gelu, if the model's opset has it."""

    op_types = ("Mul",)
    writes = "Gelu"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in a Mul."""
        found = _gelu(node)
        if found is None or found[0].dtype is None or not has_kernel("Gelu", found[0].dtype):
            return False
        x, _, approximate = found
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
        found = _gelu(node)
        if found is None or found[2] != "none" or found[0].dtype not in _WIDE:
            return False
        x, total, _ = found
        for place, value in enumerate(node.inputs):
            inner = made_by(value, "Mul")
            halved = constant_operand(inner) if inner is not None else None
            if (
                inner is None
                or halved is None
                or halved[0] is not total.outputs[0]
                or node.inputs[1 - place] is not x
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
    inner = _behind_one(total)
    if inner is None or inner.inputs[0] is None:
        return None
    if inner.op_type == "Erf":
        return (x, total, "none") if _is_multiple(inner.inputs[0], x, math.sqrt(0.5)) else None
    return (x, total, "tanh") if _is_cubic(inner.inputs[0], x) else None


def _is_near(value: float, wanted: float, x: ir.Value) -> bool:
    """Whether a number is the one that is wanted, in the element type of x."""
    precision = 1e-6 if x.dtype is None else _PRECISION.get(x.dtype, 1e-6)
    return math.isclose(value, wanted, rel_tol=precision)


def _factors(node: ir.Node) -> tuple[ir.Value, ir.Node, list[float]] | None:
    """The factors of a product of three: x, a sum, and numbers."""
    numbers: list[float] = []
    values: list[ir.Value] = []
    pending = [node]
    while pending:
        for value in pending.pop().inputs:
            found = number(value)
            made = made_by(value, "Mul") if not numbers or len(values) < 2 else None
            if value is None:
                return None
            if found is not None and numbers:
                return None
            if found is not None:
                numbers.append(found)
            elif made is not None and len(pending) + len(values) < 2 and _has_part(made):
                pending.append(made)
            else:
                values.append(value)
    if len(values) != 2 or len(numbers) != 1:
        return None
    for x, other in (values, values[::-1]):
        total = made_by(other, "Add")
        if total is not None:
            return x, total, numbers
    return None


def _has_part(node: ir.Node) -> bool:
    """Whether a product has 0.5 or a sum as a factor, as the inner product of a Gelu has."""
    return any(number(value) == 0.5 or made_by(value, "Add") is not None for value in node.inputs)


def _behind_one(total: ir.Node) -> ir.Node | None:
    """The Erf or Tanh to which a node adds 1."""
    found = constant_operand(total)
    if found is None or found[1] != 1:
        return None
    return made_by(found[0], "Erf", "Tanh")


def _is_multiple(value: ir.Value, x: ir.Value, factor: float) -> bool:
    """Whether a value is x times a factor."""
    product = made_by(value, "Mul")
    if product is not None:
        found = constant_operand(product)
        return found is not None and found[0] is x and _is_near(found[1], factor, x)
    quotient = made_by(value, "Div")
    if quotient is None or quotient.inputs[0] is not x:
        return False
    divisor = number(quotient.inputs[1])
    return divisor is not None and _is_near(divisor * factor, 1.0, x)


def _is_cubic(value: ir.Value, x: ir.Value) -> bool:
    """Whether a value is `sqrt(2 / pi) * (x + 0.044715 * x ** 3)`, perhaps with x or numbers distributed."""
    found = _binomial(value, x)
    if found is None:
        return False
    factor = math.sqrt(2 / math.pi)
    wanted = [(1, factor), (3, 0.044715 * factor)]
    return all(
        power == degree and _is_near(coefficient, number_wanted, x)
        for (power, coefficient), (degree, number_wanted) in zip(sorted(found), wanted, strict=True)
    )


def _binomial(
    value: ir.Value | None, x: ir.Value, depth: int = _MAXIMUM_DEPTH
) -> list[tuple[float, float]] | None:
    """The powers of x and their coefficients in a sum of two, which may be multiplied with others."""
    total = made_by(value, "Add")
    if total is not None:
        terms = [_monomial(each, x) for each in total.inputs]
        return None if None in terms else [term for term in terms if term is not None]
    product = made_by(value, "Mul") if depth else None
    for first, second in (product.inputs, product.inputs[::-1]) if product is not None else ():
        factor = _monomial(first, x)
        found = _binomial(second, x, depth - 1) if factor is not None else None
        if factor is not None and found is not None:
            return [(power + factor[0], coefficient * factor[1]) for power, coefficient in found]
    return None


def _monomial(value: ir.Value | None, x: ir.Value, depth: int = _MAXIMUM_DEPTH) -> tuple[float, float] | None:
    """The power of x and its coefficient in a product of x and numbers."""
    if value is x:
        return 1, 1.0
    constant = number(value)
    if constant is not None:
        return 0, constant
    power = made_by(value, "Pow")
    if power is not None:
        exponent = number(power.inputs[1])
        return (exponent, 1.0) if power.inputs[0] is x and exponent is not None else None
    product = made_by(value, "Mul") if depth else None
    factors = [_monomial(each, x, depth - 1) for each in product.inputs] if product is not None else [None]
    known = [factor for factor in factors if factor is not None]
    if len(known) < len(factors):
        return None
    return sum(power for power, _ in known), math.prod(coefficient for _, coefficient in known)
