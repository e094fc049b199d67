"""Operations on torch's symbolic numbers: their names, expressions, recording and comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental import sym_node as _sym_node
from torch.fx.experimental import symbolic_shapes as _symbolic_shapes
from torch.utils._sympy.functions import Mod as Mod
from torch.utils._sympy.functions import PythonMod as PythonMod
from torch.utils._sympy.symbol import SymT, symbol_is_type

from .dispatch import mode_stack_state_for_pre_dispatch
from .fake_tensors import FakeTensor

SymNode: Any = _sym_node.SymNode
ShapeEnv: Any = _symbolic_shapes.ShapeEnv
GuardOnDataDependentSymNode: Any = _symbolic_shapes.GuardOnDataDependentSymNode
_PROXY_MODE = torch._C._TorchDispatchModeKey.PROXY
_PRE_DISPATCH_MODES = mode_stack_state_for_pre_dispatch()
_COMPARISONS: dict[str, Callable[..., sympy.Basic]] = {
    "eq": sympy.Eq,
    "ne": sympy.Ne,
    "ge": sympy.Ge,
    "gt": sympy.Gt,
    "le": sympy.Le,
    "lt": sympy.Lt,
}

Number = torch.SymInt | torch.SymFloat | torch.SymBool
"""A symbolic number."""
Size = int | torch.SymInt
"""A size, stride or offset of a tensor."""
OPERATIONS: Sequence[str] = tuple(
    name for name in _sym_node.magic_methods if name not in ("round", "sym_int")
)
"""The names of torch's operations on symbolic numbers. `round` is missing, as it takes a plain argument."""
BINARY = frozenset(OPERATIONS) - _sym_node.unary_methods - {"sym_ite"}
"""The operations with two operands."""
_ALWAYS = (
    (_sym_node.always_float_magic_methods, float),
    (_sym_node.always_bool_magic_methods, bool),
    (_sym_node.always_int_magic_methods, int),
)


def example_sizes(environment: object) -> dict[sympy.Symbol, sympy.Integer]:
    """Return the size of each symbol of a `ShapeEnv` in the example call."""
    # In torch 2.10 the attribute is called `var_to_val`.
    attributes = vars(environment)
    name = "backed_var_to_val" if "backed_var_to_val" in attributes else "var_to_val"
    sizes: dict[sympy.Symbol, sympy.Integer] = attributes[name]
    return sizes


def method_name(operation: str) -> str:
    """Return the name of an operation's method on `SymNode`."""
    return f"{operation}_" if operation in ("and", "or") else operation


def operator_of(operation: str) -> Callable[..., object]:
    """Return the function that computes an operation on Python numbers."""
    return _sym_node.method_to_operator(operation)


def result_type(operation: str, operands: Sequence[_sym_node.SymNode]) -> type:
    """Return the Python type of an operation's result."""
    for names, result_class in _ALWAYS:
        if operation in names:
            return result_class
    operand_types: list[type] = [operand.pytype for operand in operands]
    if operation == "sym_ite":
        return operand_types[1]
    return float if float in operand_types else operand_types[0]


def apply_operation(operation: str, expressions: Sequence[sympy.Basic]) -> sympy.Basic:
    """Return the expression of an operation's result."""
    if (
        operation in _COMPARISONS
        and any(map(is_unbacked, expressions))
        and any(e.is_number for e in expressions)
    ):
        # sympy would try for long to decide the comparison, in vain: these symbols have no bounds.
        return _COMPARISONS[operation](*expressions, evaluate=False)
    functions: Any = _sym_node.magic_methods
    return functions[operation](*expressions)


def base_two_logarithm(number: Number) -> Any:
    """Compute `math.log2` of a symbolic number."""
    return operator_of("sym_log2")(number)


def is_recorded() -> bool:
    """Whether a recorder or tracer is active, which must see each operation on symbolic numbers."""
    return _PRE_DISPATCH_MODES.get(0) is not None or torch._C._get_dispatch_mode(_PROXY_MODE) is not None


def compute_order(tensor: object, *args: Any, **kwargs: Any) -> bool:
    """Make torch compute and cache whether a tensor is contiguous, without recording the size comparisons.

    Args:
        args, kwargs: the arguments of `torch.Tensor.is_contiguous`.

    Returns:
        Whether torch could decide; False if the answer depends on numbers that are read from tensors.
    """
    if not isinstance(tensor, FakeTensor) or not tensor._has_symbolic_sizes_strides:
        return True
    mode = _PRE_DISPATCH_MODES.get(0)
    _PRE_DISPATCH_MODES.set(0, None)
    try:
        tensor.is_contiguous(*args, **kwargs)
        return True
    except GuardOnDataDependentSymNode:
        return False
    finally:
        _PRE_DISPATCH_MODES.set(0, mode)


def record_operation(operation: str, operands: Sequence[Any], result: Any) -> Any:
    """Record an operation as a node of the active recorder's graph, and return the number of this node."""
    numbers = tuple(map(_sym_node.wrap_node, operands))
    # As in torch's tracer, multiplication by 1 makes no node; testing the type first adds no guard.
    if operation == "mul":
        for number, operand in zip(numbers, reversed(operands), strict=True):
            if type(number) is int and number == 1:
                return operand
    twin = result.twin()
    twin.operation = (operation, *operands)
    mode: Any = proxy_tensor.get_proxy_mode()
    operator: Any = operator_of(operation)
    proxy_tensor._sym_register(mode.tracer, operator, numbers, _sym_node.wrap_node(twin))
    return twin


def is_unbacked(expression: sympy.Basic) -> bool:
    """Whether an expression is a single symbol for an integer that depends on data."""
    return bool(expression.is_symbol) and symbol_is_type(expression, SymT.UNBACKED_INT)


def identity(number: Number) -> object:
    """Return a key for a symbolic number; copies of one number in an environment have the same key."""
    node = number.node
    return getattr(node, "original", node)


def canonical_form(number: Number) -> object:
    """Return a key that is the same for the symbolic numbers of an environment with equal polynomials."""
    node = identity(number)
    return getattr(node, "canonical", node)


def holds_always(condition: bool | torch.SymBool) -> bool:
    """Whether a condition is true for all sizes; adds no guard."""
    if isinstance(condition, torch.SymBool):
        return bool(condition.node.statically_known_true("", 0))
    return bool(condition)


def axes_by_stride(tensor: torch.Tensor) -> list[int] | None:
    """Return the axes by descending stride in the example; None if a stride is unknown in the example."""
    strides = [stride.node.hint if isinstance(stride, torch.SymInt) else stride for stride in tensor.stride()]
    return None if None in strides else sorted(range(tensor.dim()), key=lambda axis: -strides[axis])


def order_in_storage(tensor: torch.Tensor, *, from_begin: bool) -> list[int] | None:
    """Return the order of axes in which a tensor of symbolic sizes is contiguous for all sizes.

    Args:
        from_begin: whether the tensor must also begin where its storage does.

    Returns:
        The axes from outermost to innermost; None if there is no such order, or it cannot be proved.
    """
    if from_begin and not holds_always(tensor.storage_offset() == 0):
        return None
    order = axes_by_stride(tensor)
    if order is None:
        return None
    expected: Size = 1
    for axis in reversed(order):
        if not holds_always(tensor.stride(axis) == expected):
            return None
        expected = expected * tensor.shape[axis]
    return order


def decide_condition(condition: bool | torch.SymBool) -> bool | None:
    """Decide a condition on sizes by polynomials; None if it may differ between sizes."""
    if not isinstance(condition, torch.SymBool):
        return bool(condition)
    decide = getattr(condition.node, "known_answer", None)
    return None if decide is None else decide()


def exceeds(size: Size, number: int) -> bool:
    """Whether a size is known to be larger than a number for all sizes of the inputs.

    The size's node caches the answer: layouts ask for each axis, and torch makes a condition each time.
    """
    if isinstance(size, int):
        return size > number
    node: Any = getattr(size.node, "original", size.node)
    exceeded = getattr(node, "exceeded", None)
    if exceeded is not None and exceeded >= number:
        return True
    is_larger = decide_condition(size > number) is True
    if is_larger and hasattr(node, "exceeded"):
        node.exceeded = number
    return is_larger


def as_integer(number: torch.SymInt | torch.SymFloat) -> Size | None:
    """Compute `int(number)` of a symbolic number as a symbolic integer.

    Returns:
        The number itself if it is an integer. A floor quotient of integers for an exact fraction that is not
        negative, or a quotient of two, such as `n * 0.25` or `b * h * w / (h * w / 8)`. The truncated float
        for other floats of sizes. None for a float that depends on data.
    """
    if isinstance(number, torch.SymInt):
        return number
    quotient = _exact_quotient(number)
    if quotient is not None:
        return quotient
    is_of_sizes = number.node.expr.free_symbols <= example_sizes(number.node.shape_env).keys()
    return math.trunc(number) if is_of_sizes else None


def _exact_quotient(number: torch.SymFloat) -> Size | None:
    """Compute `int(number)` as a floor quotient of integers; None if float rounding may change the result."""
    fraction: tuple[Size, Size] | None = _exact_fraction(number.node)
    if fraction is None:
        name, *operands = getattr(number.node, "operation", None) or ("",)
        if name not in _QUOTIENTS:
            return None
        left_fraction, right_fraction = map(_exact_fraction, operands)
        if left_fraction is None or right_fraction is None:
            return None
        # A quotient of two integers below 2**53 is never rounded up to an integer.
        fraction = left_fraction[0] * right_fraction[1], right_fraction[0] * left_fraction[1]
    dividend, divisor = fraction
    is_positive = decide_condition(dividend >= 0) is True and decide_condition(divisor > 0) is True
    return dividend // divisor if is_positive else None


_QUOTIENTS = ("int_truediv", "float_truediv")
_LARGEST_DENOMINATOR = 1 << 20


def _exact_fraction(node: _sym_node.SymNode) -> tuple[Size, int] | None:
    """Return (numerator, denominator) of a float that is exactly a fraction with a power of 2 below, or None.

    Sums, differences and products of such floats are exact, too, while they are below 2**53.
    """
    if node.constant is not None:
        if not math.isfinite(node.constant):
            return None
        exact = node.constant.as_integer_ratio()
        return exact if exact[1] <= _LARGEST_DENOMINATOR else None
    if node.pytype is int:
        return torch.SymInt(node), 1
    name, *operands = getattr(node, "operation", None) or ("",)
    if name == "sym_float":
        return _exact_fraction(operands[0])
    if name not in (*_QUOTIENTS, "add", "sub", "mul"):
        return None
    fractions = [_exact_fraction(operand) for operand in operands]
    if fractions[0] is None or fractions[1] is None:
        return None
    (first_numerator, first_denominator), (second_numerator, second_denominator) = fractions[0], fractions[1]
    if name in _QUOTIENTS:
        # Only division by a power of 2 is exact.
        if isinstance(second_numerator, torch.SymInt) or second_numerator <= 0:
            return None
        if second_numerator & (second_numerator - 1):
            return None
        numerator: Size = first_numerator * second_denominator
        denominator = first_denominator * second_numerator
    elif name == "mul":
        numerator, denominator = first_numerator * second_numerator, first_denominator * second_denominator
    else:
        numerator = (
            first_numerator * second_denominator - second_numerator * first_denominator
            if name == "sub"
            else first_numerator * second_denominator + second_numerator * first_denominator
        )
        denominator = first_denominator * second_denominator
    return (numerator, denominator) if denominator <= _LARGEST_DENOMINATOR else None


def number_hash(number: torch.SymInt) -> int:
    """Replace `SymInt.__hash__`.

    A number that was read from a tensor has the hash of its value, which the environment supplies. Other
    numbers are not hashable, as in torch: so a library such as einops caches no results by them.
    """
    node = number.node
    symbols = getattr(node.expr, "free_symbols", ())
    is_read = symbols and all(is_unbacked(symbol) for symbol in symbols)
    if not is_read or node.shape_env.size_like.intersection(symbols):
        return _HASH(number)
    return hash(int(number))


_HASH: Callable[[torch.SymInt], int] = torch.SymInt.__hash__


def truth_equals(truth: torch.SymBool, other: object) -> object:
    """Replace `SymBool.__eq__`, which Python falls back from to the identity where `other` is a number."""
    if not isinstance(other, (bool, int, float)):
        return _EQUALS(truth, other)
    return truth if other == 1 else torch.sym_not(truth) if other == 0 else False


_EQUALS: Callable[[torch.SymBool, object], object] = torch.SymBool.__eq__
