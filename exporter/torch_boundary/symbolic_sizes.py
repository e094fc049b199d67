"""The functions and symbols of torch's symbolic sizes, and sums and products of floats."""

from __future__ import annotations

from collections.abc import Callable

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy import functions
from torch.utils._sympy.functions import (
    CeilToInt,
    CleanDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Max,
    Min,
    Mod,
    PythonMod,
    RoundToInt,
    ToFloat,
    TruncToInt,
)

from ...registration import CaptureError

__all__ = [
    "CHECK",
    "FLOAT_ARITHMETIC",
    "CeilToInt",
    "CleanDiv",
    "DimDynamic",
    "FloatFloorDiv",
    "FloatProduct",
    "FloatSum",
    "FloorDiv",
    "FloorToInt",
    "IntTrueDiv",
    "Max",
    "Min",
    "Mod",
    "PythonMod",
    "RoundToInt",
    "ShapeEnv",
    "ToFloat",
    "TruncToInt",
    "check",
    "functions",
    "new_symbol",
]

check = torch._check
"""Tells torch.export the range of a number; an error where the condition is false."""
CHECK = f"torch.{check.__name__}"
"""The name of that function, for messages."""


class FloatSum(sympy.Function):  # type: ignore[misc]
    """The sum of two floats, as Python rounds it: sympy would reorder the terms of nested sums."""

    is_real = True
    # torch's analyses of expressions find their rule for a function by this name.
    _torch_handler_name = "add"

    @classmethod
    def eval(cls, first: sympy.Expr, second: sympy.Expr) -> sympy.Float | None:
        """The sum of two numbers; None for other terms."""
        # None makes sympy keep the call as it is.
        if first.is_Number and second.is_Number:
            return sympy.Float(float(first) + float(second))
        return None


class FloatProduct(sympy.Function):  # type: ignore[misc]
    """The product of two floats, as Python rounds it: sympy would multiply constants of nested products."""

    is_real = True
    _torch_handler_name = "mul"

    @classmethod
    def eval(cls, first: sympy.Expr, second: sympy.Expr) -> sympy.Float | None:
        """The product of two numbers; None for other factors."""
        if first.is_Number and second.is_Number:
            return sympy.Float(float(first) * float(second))
        return None


class FloatFloorDiv(sympy.Function):  # type: ignore[misc]
    """The quotient of two floats, rounded down as by Python: torch would join the divisors of nested ones."""

    is_real = True
    _torch_handler_name = "floordiv"

    @classmethod
    def eval(cls, dividend: sympy.Expr, divisor: sympy.Expr) -> sympy.Float | None:
        """The quotient of two numbers; None for others."""
        if dividend.is_Number and divisor.is_Number:
            return sympy.Float(float(dividend) // float(divisor))
        return None


def _remainder(dividend: object, divisor: object) -> object:
    # torch takes all remainders for integers, and so answers `n % 2.5 == 0.5` without a guard.
    raise CaptureError(
        "a remainder of floats (%) that depends on a dynamic size is not supported: use integers, or make "
        "the dimension static"
    )


def _difference(minuend: sympy.Expr, subtrahend: sympy.Expr) -> sympy.Expr:
    # The negative of a float is exact.
    return FloatSum(minuend, -subtrahend)


FLOAT_ARITHMETIC: dict[str, Callable[[object, object], object]] = {
    "add": FloatSum,
    "sub": _difference,
    "mul": FloatProduct,
    "int_floordiv": FloatFloorDiv,
    "mod": _remainder,
}
"""The expressions of torch's operations on symbolic numbers, if one of the operands is a float."""


def new_symbol(environment: ShapeEnv, name: str, size: int) -> object:
    """A new symbol for an unbounded size, which is 1 in the example."""
    from torch._dynamo.source import ConstantSource

    return environment.create_symbol(size, ConstantSource(name), DimDynamic.DYNAMIC, constraint_dim=None)
