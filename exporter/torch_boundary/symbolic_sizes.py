"""Expressions and symbols for torch's symbolic sizes; float and integer arithmetic that rounds as Python."""

from __future__ import annotations

import operator
from collections.abc import Callable

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic as DimDynamic
from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv
from torch.utils._sympy import functions as functions
from torch.utils._sympy.functions import CeilToInt as CeilToInt
from torch.utils._sympy.functions import CleanDiv as CleanDiv
from torch.utils._sympy.functions import FloorDiv as FloorDiv
from torch.utils._sympy.functions import FloorToInt as FloorToInt
from torch.utils._sympy.functions import IntTrueDiv as IntTrueDiv
from torch.utils._sympy.functions import Max as Max
from torch.utils._sympy.functions import Min as Min
from torch.utils._sympy.functions import Mod as Mod
from torch.utils._sympy.functions import PythonMod as PythonMod
from torch.utils._sympy.functions import RoundToInt as RoundToInt
from torch.utils._sympy.functions import ToFloat as ToFloat
from torch.utils._sympy.functions import TruncToInt as TruncToInt
from torch.utils._sympy.numbers import int_oo as int_oo
from torch.utils._sympy.value_ranges import ValueRanges as ValueRanges

from ...registration import CaptureError

check: Callable[..., None] = torch._check
"""Tells torch.export a condition on sizes; raises an error if the condition is false."""
CHECK = f"torch.{check.__name__}"
"""The name of that function, for messages."""


_PYTHON_FUNCTIONS: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
}


class _FloatOperation(sympy.Function):  # type: ignore[misc]
    """An operation on two floats that sympy evaluates only if both are numbers."""

    is_real = True
    # torch's analyses of expressions find their rule for a function by this name.
    _torch_handler_name: str

    @classmethod
    def eval(cls, first: sympy.Expr, second: sympy.Expr) -> sympy.Float | None:
        """Compute the result for two numbers; return None for other terms."""
        # None makes sympy keep the call unevaluated.
        if first.is_Number and second.is_Number:
            return sympy.Float(_PYTHON_FUNCTIONS[cls._torch_handler_name](float(first), float(second)))
        return None


class FloatSum(_FloatOperation):
    """The sum of two floats, rounded as in Python; a sympy sum would reorder the terms of nested sums."""

    _torch_handler_name = "add"


class FloatProduct(_FloatOperation):
    """The product of two floats, rounded as in Python; sympy would join the constants of nested products."""

    _torch_handler_name = "mul"


class FloatFloorDiv(_FloatOperation):
    """The floor quotient of two floats, as in Python; torch would join the divisors of nested quotients."""

    _torch_handler_name = "floordiv"


def _remainder(dividend: object, divisor: object) -> object:
    # torch assumes that all remainders are integers, and so answers `n % 2.5 == 0.5` without a guard.
    raise CaptureError(
        "a remainder of floats (%) that depends on a dynamic size is not supported: use integers, or make "
        "the dimension static"
    )


def _difference(minuend: sympy.Expr, subtrahend: sympy.Expr) -> sympy.Expr:
    # Negating a float is exact.
    return FloatSum(minuend, -subtrahend)


FLOAT_ARITHMETIC: dict[str, Callable[[object, object], object]] = {
    "add": FloatSum,
    "sub": _difference,
    "mul": FloatProduct,
    "int_floordiv": FloatFloorDiv,
    "mod": _remainder,
}
"""By operation of torch, a function that makes its expression if one of the operands is a float."""


def floor_quotient(dividend: sympy.Expr, divisor: sympy.Expr) -> sympy.Expr:
    """Return the floor quotient of two integers, as in Python, for a divisor of any sign.

    torch's FloorDiv joins the divisors of nested quotients, which is right only for positive second divisors:
    `n // 2 // -2` becomes `n // -4`, which differs for n = 5.
    """
    if divisor.is_negative:
        return FloorDiv(-dividend, -divisor)
    if isinstance(dividend, FloorDiv) and not divisor.is_nonnegative:
        numerator, first_divisor = dividend.args
        return FloorDiv(numerator - PythonMod(numerator, first_divisor), first_divisor * divisor)
    return FloorDiv(dividend, divisor)


def remainder(dividend: sympy.Expr, divisor: sympy.Expr) -> sympy.Expr:
    """Return the remainder of two integers with the divisor's sign, as in Python.

    torch's PythonMod returns any dividend below the divisor unchanged, even a negative one: `(-n - 5) % -3`
    becomes `-n - 5`.
    """
    if divisor.is_negative:
        return -remainder(-dividend, -divisor)
    if dividend.is_nonnegative and divisor.is_nonnegative:
        return Mod(dividend, divisor)
    return PythonMod(dividend, divisor)


INTEGER_DIVISION: dict[str, Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    "int_floordiv": floor_quotient,
    "mod": remainder,
}
"""By operation of torch, a function that makes its expression if both operands are integers."""


ROUNDINGS = (TruncToInt, FloorToInt, CeilToInt, RoundToInt)
"""The sympy functions of torch that round a float to an integer."""


def new_symbol(
    environment: ShapeEnv, name: str, size: int, bounds: ValueRanges[sympy.Expr] | None = None
) -> sympy.Symbol:
    """Create a symbol for a size.

    Args:
        size: the size in the example.
        bounds: the smallest and the largest size; by default torch assumes that it is at least 2.
    """
    from torch._dynamo.source import ConstantSource

    source = ConstantSource(name)
    if bounds is None:
        return environment.create_symbol(size, source, DimDynamic.DYNAMIC, constraint_dim=None)
    symbol = environment.create_symbol(
        size, source, DimDynamic.DYNAMIC, positive=None, do_not_specialize_zero_one=True
    )
    environment.constrain_symbol_range(symbol, bounds.lower, bounds.upper)
    return symbol


def definitions_of(environment: object) -> dict[sympy.Symbol, sympy.Expr]:
    """Return the expression of each symbol that is not the size of an input; see `SizeEnvironment`."""
    return getattr(environment, "definitions", {})
