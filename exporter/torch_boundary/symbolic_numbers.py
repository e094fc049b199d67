"""Symbolic numbers as torch's C++ code and tracers know them: operations and their recording."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._ops import mode_stack_state_for_pre_dispatch
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental import sym_node as _sym_node
from torch.fx.experimental import symbolic_shapes as _symbolic_shapes
from torch.utils._sympy.functions import Mod as Mod
from torch.utils._sympy.functions import PythonMod as PythonMod
from torch.utils._sympy.symbol import SymT, symbol_is_type

from .fake_tensors import FakeTensor

SymNode: Any = _sym_node.SymNode
ShapeEnv: Any = _symbolic_shapes.ShapeEnv
GuardOnDataDependentSymNode: Any = _symbolic_shapes.GuardOnDataDependentSymNode
_PROXY_MODE = torch._C._TorchDispatchModeKey.PROXY
_PRE_DISPATCH_MODES = mode_stack_state_for_pre_dispatch()
_COMPARISONS: dict[str, Any] = {
    "eq": sympy.Eq,
    "ne": sympy.Ne,
    "ge": sympy.Ge,
    "gt": sympy.Gt,
    "le": sympy.Le,
    "lt": sympy.Lt,
}

OPERATIONS: Sequence[str] = tuple(
    name for name in _sym_node.magic_methods if name not in ("round", "sym_int")
)
"""Torch's operations on symbolic numbers, by the names of torch's table. `round` has a separate argument."""
BINARY = frozenset(OPERATIONS) - _sym_node.unary_methods - {"sym_ite"}
"""The operations with two operands."""
_ALWAYS = (
    (_sym_node.always_float_magic_methods, float),
    (_sym_node.always_bool_magic_methods, bool),
    (_sym_node.always_int_magic_methods, int),
)


def example_sizes(environment: Any) -> dict[sympy.Symbol, sympy.Integer]:
    """The size that each symbol of a `ShapeEnv` has in the example call."""
    # In torch 2.10 the attribute is called `var_to_val`.
    attributes = vars(environment)
    name = "backed_var_to_val" if "backed_var_to_val" in attributes else "var_to_val"
    found: dict[sympy.Symbol, sympy.Integer] = attributes[name]
    return found


def method_name(operation: str) -> str:
    """The name of an operation's method on `SymNode`."""
    return f"{operation}_" if operation in ("and", "or") else operation


def operator_of(operation: str) -> Callable[..., Any]:
    """The function on Python's numbers that an operation stands for."""
    return _sym_node.method_to_operator(operation)


def result_type(operation: str, operands: Sequence[Any]) -> type:
    """The Python type of an operation's result."""
    for names, kind in _ALWAYS:
        if operation in names:
            return kind
    kinds = [operand.pytype for operand in operands]
    if operation == "sym_ite":
        result: type = kinds[1]
        return result
    return float if float in kinds else kinds[0]


def applied(operation: str, expressions: Sequence[Any]) -> Any:
    """The expression of an operation's result."""
    if (
        operation in _COMPARISONS
        and any(map(is_unbacked, expressions))
        and any(e.is_number for e in expressions)
    ):
        # Such symbols have no assumptions that could decide the comparison.
        return _COMPARISONS[operation](*expressions, evaluate=False)
    functions: Any = _sym_node.magic_methods
    return functions[operation](*expressions)


def is_recorded() -> bool:
    """Whether a recorder of operators is active, which must see each operation on symbolic numbers."""
    return _PRE_DISPATCH_MODES.get(0) is not None or torch._C._get_dispatch_mode(_PROXY_MODE) is not None


def compute_order(tensor: Any, *args: Any, **kwargs: Any) -> None:
    """Let a tensor find out whether it is contiguous, before a recorder would see how.

    Args:
        args, kwargs: those of `torch.Tensor.is_contiguous`.
    """
    if not isinstance(tensor, FakeTensor) or not tensor._has_symbolic_sizes_strides:
        return
    mode = _PRE_DISPATCH_MODES.get(0)
    _PRE_DISPATCH_MODES.set(0, None)
    try:
        tensor.is_contiguous(*args, **kwargs)
    finally:
        _PRE_DISPATCH_MODES.set(0, mode)


def recorded(operation: str, operands: Sequence[Any], result: Any) -> Any:
    """The result of an operation as the active recorder knows it; the recorder makes a node of its graph."""
    numbers = tuple(map(_sym_node.wrap_node, operands))
    if operation == "mul":
        for number, other in zip(numbers, reversed(operands), strict=True):
            if type(number) is int and number == 1:
                return other
    twin = result.twin()
    twin.operation = (operation, *operands)
    mode: Any = proxy_tensor.get_proxy_mode()
    operator: Any = operator_of(operation)
    proxy_tensor._sym_register(mode.tracer, operator, numbers, _sym_node.wrap_node(twin))
    return twin


def is_unbacked(expression: Any) -> bool:
    """Whether an expression is a symbol for an integer that depends on data."""
    return bool(expression.is_symbol) and symbol_is_type(expression, SymT.UNBACKED_INT)


def identity(number: Any) -> Any:
    """What equal symbolic numbers of one environment have in common."""
    node = number.node
    return getattr(node, "original", node)


def form(number: Any) -> Any:
    """What symbolic numbers of one environment have in common if their polynomials are equal."""
    found = identity(number)
    return getattr(found, "canonical", found)


def holds_always(condition: Any) -> bool:
    """Whether a condition on sizes is true for all of them, which is no guard."""
    if isinstance(condition, torch.SymBool):
        return bool(condition.node.statically_known_true("", 0))
    return bool(condition)


def axes_by_stride(tensor: torch.Tensor) -> list[int] | None:
    """The axes from the one with the largest stride in the example; None if a stride has no example."""
    found: Sequence[Any] = tensor.stride()
    strides: list[Any] = [stride if type(stride) is int else stride.node.hint for stride in found]
    return None if None in strides else sorted(range(tensor.dim()), key=lambda axis: -strides[axis])


def order_in_storage(tensor: torch.Tensor, *, from_begin: bool) -> list[int] | None:
    """The order of axes in which a tensor of symbolic sizes is contiguous, whatever the sizes are.

    Args:
        from_begin: the tensor must also begin where its storage does.

    Returns:
        The axes from the outermost; None if there is no such order, or it is not known.
    """
    if from_begin and not holds_always(tensor.storage_offset() == 0):
        return None
    order = axes_by_stride(tensor)
    if order is None:
        return None
    expected: Any = 1
    for axis in reversed(order):
        if not holds_always(tensor.stride(axis) == expected):
            return None
        expected = expected * tensor.shape[axis]
    return order


def known(condition: Any) -> bool | None:
    """The truth of a condition on sizes if polynomials show that it is the same for all of them."""
    if not isinstance(condition, torch.SymBool):
        return bool(condition)
    decide = getattr(condition.node, "known", None)
    return None if decide is None else decide()


def whole(number: Any) -> Any:
    """The result of `int(number)` for a symbolic number, as a symbolic integer if rounding never changes it.

    Returns:
        A symbolic integer itself. For a number that is not negative, and is an exact fraction or a quotient
        of two, such as `n * 0.25` or `b * h * w / (h * w / 8)`, a quotient of integers. Else None.
    """
    if isinstance(number, torch.SymInt):
        return number
    fraction = _exact_fraction(number.node)
    if fraction is None:
        name, *operands = getattr(number.node, "operation", None) or ("",)
        if name not in _QUOTIENTS:
            return None
        left, right = map(_exact_fraction, operands)
        if left is None or right is None:
            return None
        # A quotient of two integers below 2**53 is never rounded up to an integer.
        fraction = left[0] * right[1], right[0] * left[1]
    dividend, divisor = fraction
    is_positive = known(dividend >= 0) is True and known(divisor > 0) is True
    return dividend // divisor if is_positive else None


_QUOTIENTS = ("int_truediv", "float_truediv")
_LARGEST_DENOMINATOR = 1 << 20


def _exact_fraction(node: Any) -> tuple[Any, int] | None:
    """The integer, and the power of 2 by which it is divided, that a float is exactly; None for others.

    Sums, differences and products of such floats are exact, too, while they are below 2**53.
    """
    if node.constant is not None:
        numerator, denominator = _ratio(node.constant)
        return (numerator, denominator) if denominator <= _LARGEST_DENOMINATOR else None
    if node.pytype is int:
        return _sym_node.wrap_node(node), 1
    name, *operands = getattr(node, "operation", None) or ("",)
    if name == "sym_float":
        return _exact_fraction(operands[0])
    if name not in (*_QUOTIENTS, "add", "sub", "mul"):
        return None
    parts = [_exact_fraction(operand) for operand in operands]
    if parts[0] is None or parts[1] is None:
        return None
    (left, first), (right, second) = parts[0], parts[1]
    if name in _QUOTIENTS:
        is_power = type(right) is int and right > 0 and right & (right - 1) == 0
        numerator, denominator = left * second, first * right if is_power else 0
    elif name == "mul":
        numerator, denominator = left * right, first * second
    else:
        numerator = left * second - right * first if name == "sub" else left * second + right * first
        denominator = first * second
    return (numerator, denominator) if 0 < denominator <= _LARGEST_DENOMINATOR else None


def _ratio(number: float) -> tuple[int, int]:
    return number.as_integer_ratio() if math.isfinite(number) else (0, 2 * _LARGEST_DENOMINATOR)


def number_hash(number: Any) -> int:
    """The hash of a symbolic integer; stands in for `SymInt.__hash__`.

    A number that was read from a tensor has the hash of its value, for which the environment is asked. Other
    numbers have none, as in torch: a library such as einops keeps no results by them.
    """
    node = number.node
    symbols = getattr(node.expr, "free_symbols", ())
    is_read = symbols and all(is_unbacked(symbol) for symbol in symbols)
    if not is_read or node.shape_env.size_like.intersection(symbols):
        return _HASH(number)
    return hash(int(number))


_HASH: Callable[[Any], int] = torch.SymInt.__hash__
