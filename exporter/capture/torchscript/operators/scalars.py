"""Numbers of a TorchScript program, in tensors too: computed where constant, `sym` nodes elsewhere."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import torch
from onnx_ir import Value, tensor_adapters

from .....registration import CaptureError
from ..builder import DTYPES
from ..fake_values import Number, Tensor, UnrankedTensor
from ..interpreter import Interpreter
from ..objects import Item, NumberItem, TensorItem, is_constant, is_number, number_kind
from ..script_graph import ScriptNode


def _floordiv(a: float, b: float) -> float:
    """TorchScript's `//` rounds the quotient of floats down; Python first subtracts the remainder."""
    return float(math.floor(a / b)) if isinstance(a, float) or isinstance(b, float) else a // b


def _remainder(a: float, b: float) -> float:
    is_float = isinstance(a, float) or isinstance(b, float)
    return math.fmod(b + math.fmod(a, b), b) if is_float else a % b


_SYMBOLIC: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": _floordiv,
    "floor_divide": _floordiv,
    "remainder": _remainder,
    "pow": operator.pow,
    "neg": operator.neg,
    "abs": operator.abs,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__not__": operator.not_,
    "__lshift__": operator.lshift,
    "__rshift__": operator.rshift,
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
}
"""Arithmetic over numbers that the `sym` dialect has, with the Python function for constants."""
_OF_MATH = (
    "fmod exp log log10 log2 log1p expm1 sin cos tan asin acos atan atan2 sinh cosh tanh acosh asinh atanh "
    "gcd factorial degrees radians isnan isinf isfinite copysign hypot erf erfc gamma lgamma fabs ldexp"
)
OPERATIONS: dict[str, Callable[..., float]] = {
    **_SYMBOLIC,
    **{name: getattr(math, name) for name in _OF_MATH.split()},
    "round": lambda value: float(round(value)),
    "mathremainder": math.remainder,
    "__round_to_zero_floordiv": lambda a, b: int(a / b),
}
"""All arithmetic over numbers, with the Python function for constants."""
_BY_TENSORS: dict[str, tuple[str, str]] = {
    name: (name, "default")
    for name in (
        "exp log log10 log2 log1p expm1 sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh "
        "isnan isinf isfinite hypot erf erfc lgamma round"
    ).split()
} | {
    "degrees": ("rad2deg", "default"),
    "radians": ("deg2rad", "default"),
    "fabs": ("abs", "default"),
    "fmod": ("fmod", "Tensor"),
    "copysign": ("copysign", "Tensor"),
}
"""Functions computed by an ATen operator (with overload) on zero-dim DOUBLE tensors."""
_BY_INTEGERS: dict[str, tuple[str, str]] = {
    "__and__": ("bitwise_and", "Tensor"),
    "__or__": ("bitwise_or", "Tensor"),
    "__xor__": ("bitwise_xor", "Tensor"),
    "__lshift__": ("bitwise_left_shift", "Tensor"),
    "__rshift__": ("bitwise_right_shift", "Tensor"),
    "gcd": ("gcd", "default"),
    "__round_to_zero_floordiv": ("div", "Tensor_mode"),
}
"""Functions of ints computed by an ATen operator (with overload) on zero-dim INT64 tensors."""
_PYTHON_TYPES: dict[str, Callable[[float], float]] = {"int": int, "float": float, "bool": bool}
_LOGIC = frozenset(("__and__", "__or__", "__xor__"))
_COMPARISONS = {name: _SYMBOLIC[name] for name in ("eq", "ne", "lt", "le", "gt", "ge")}


def compute(machine: Interpreter, name: str, *operands: Item, number_type: str | None = None) -> NumberItem:
    """The result of arithmetic on numbers; a Python number if it is known.

    Args:
        name: a key of `OPERATIONS`.
        number_type: the type of the result; by default int for ints, bool for comparisons, else float.

    Raises:
        CaptureError: the program divides by zero or similar, or the arithmetic has no symbolic form.
    """
    operation = OPERATIONS[name]
    if all(map(is_constant, operands)):
        try:
            return as_kind(operation(*operands), number_type)
        except (ArithmeticError, ValueError) as error:
            raise CaptureError(f"the program computes {name}{operands}: {error}") from error
    operand_types = {number_kind(operand) for operand in operands}
    if name == "log" and len(operands) == 2:
        return compute(machine, "div", *(compute(machine, "log", operand) for operand in operands))
    if name == "ldexp":
        factor = compute(machine, "pow", 2.0, operands[1])
        return compute(machine, "mul", operands[0], factor)
    if name in _BY_TENSORS:
        # Python computes these in double precision.
        floats = [convert(machine, operand, "float") for operand in operands]
        return _of_tensors(machine, name, *_BY_TENSORS[name], floats, torch.float64)
    if name in _BY_INTEGERS and operand_types != {"bool"}:
        return _by_integers(machine, name, operands)
    if name not in _SYMBOLIC:
        raise CaptureError(f"{name} needs a number that is known at capture")
    simplified = _simplify(machine, name, operands)
    if simplified is not None:
        return simplified
    number_type = number_type or _kind(name, operand_types)
    # ONNX's Pow has the type of its base, so an integer power would be truncated.
    if name == "pow" and number_type == "float" and "float" not in operand_types:
        operands = tuple(convert(machine, operand, "float") for operand in operands)
    result = machine.build.arithmetic(name, number_type, *operands, python=operation)
    result_fake = machine.fakes[result]
    if (
        isinstance(result_fake, Number)
        and result_fake.expression is not None
        and result_fake.expression.is_Integer
    ):
        return int(result_fake.expression)
    return result


def _by_integers(machine: Interpreter, name: str, operands: tuple[Item, ...]) -> NumberItem:
    amount = operands[-1]
    if name in ("__lshift__", "__rshift__") and isinstance(amount, int) and 0 <= amount < 63:
        return compute(machine, "mul" if name == "__lshift__" else "floordiv", operands[0], 1 << amount)
    for mask, number in (operands, operands[::-1]):
        if name == "__and__" and isinstance(mask, int) and 0 <= mask < 2**62 and mask & (mask + 1) == 0:
            # Masking the lowest bits in two's complement is a remainder.
            return compute(machine, "remainder", number, mask + 1)
    mode = {"rounding_mode": "trunc"} if name == "__round_to_zero_floordiv" else {}
    return _of_tensors(machine, name, *_BY_INTEGERS[name], operands, torch.int64, **mode)


def _of_tensors(
    machine: Interpreter,
    name: str,
    operator: str,
    overload: str,
    numbers: Sequence[Item],
    dtype: torch.dtype,
    **settings: str,
) -> NumberItem:
    """Compute an operator on zero-dim tensors of numbers."""
    tensors = [scalar_tensor(machine, number, dtype) for number in numbers]
    arguments = dict(zip(("self", "other"), tensors, strict=False)) | settings
    return item(machine, machine.build.tensor_operator(operator, overload, arguments, name))


def _kind(name: str, kinds: set[str]) -> str:
    if name in _COMPARISONS or name in _LOGIC or name == "__not__":
        return "bool"
    if name in ("floor", "ceil"):
        return "int"
    return "int" if kinds <= {"int", "bool"} and name not in ("div", "sqrt", "exp", "log") else "float"


def as_kind(result: NumberItem, number_type: str | None) -> NumberItem:
    """Convert a constant number to int, float or bool; return anything else unchanged."""
    python_type = _PYTHON_TYPES.get(number_type or "")
    return python_type(result) if python_type and isinstance(result, (int, float)) else result


def _simplify(machine: Interpreter, name: str, operands: tuple[Item, ...]) -> NumberItem | None:
    """Simplify `x and True`, `x or False`, `x == x`; None for anything else."""
    constants = [operand for operand in operands if isinstance(operand, bool)]
    variables = [operand for operand in operands if isinstance(operand, Value)]
    if name in ("__and__", "__or__") and constants and len(variables) == 1:
        return constants[0] if constants[0] is (name == "__or__") else variables[0]
    if name in _COMPARISONS:
        # Two sizes with a constant difference compare alike for all inputs.
        difference = machine.fakes.difference(*operands)
        return None if difference is None else _COMPARISONS[name](difference, 0)
    return None


def scalar_kind(node: ScriptNode) -> str | None:
    """`int`, `float` or `bool` of a node's result, None for a number of either kind."""
    type_name = str(node.output().type())
    return type_name if type_name in DTYPES else None


def convert(machine: Interpreter, item: Item, number_type: str) -> NumberItem:
    """A number as an int, float or bool."""
    if not isinstance(item, Value):
        if not is_number(item):
            raise CaptureError(f"{item!r} is not a number")
        return as_kind(item, number_type)
    current_type = number_kind(item)
    if current_type == number_type:
        return item
    if number_type == "bool":
        return compute(machine, "ne", item, 0)
    return machine.build.arithmetic(number_type, number_type, item, python=_PYTHON_TYPES[number_type])


def dtype_of(machine: Interpreter, item: Item) -> torch.dtype | None:
    """The element type of a tensor if it is known."""
    fake = machine.fake(item)
    return fake.dtype if isinstance(fake, (Tensor, UnrankedTensor)) else None


def item(machine: Interpreter, tensor: TensorItem | NumberItem) -> NumberItem:
    """The number in a tensor of one element."""
    if isinstance(tensor, torch.Tensor):
        number: NumberItem = tensor.item()
        return number
    if not isinstance(tensor, Value) or is_number(tensor):
        return tensor
    element_dtype = dtype_of(machine, tensor)
    if element_dtype is None:
        raise CaptureError(f"a number is made of '{tensor.name}', whose element type is unknown")
    number_type = (
        "bool" if element_dtype == torch.bool else "float" if element_dtype.is_floating_point else "int"
    )
    result = machine.build.number(number_type, stem="item")
    machine.build.append("aten::item", {"self": tensor}, [result], "default")
    return result


def scalar_tensor(machine: Interpreter, number: Item, dtype: torch.dtype | None = None) -> TensorItem:
    """A zero-dim tensor of a number, of the number's own element type unless another is given."""
    if dtype is None:
        natural = {"int": torch.int64, "float": torch.get_default_dtype(), "bool": torch.bool}
        dtype = natural[number_kind(number)]
    if is_constant(number):
        return torch.tensor(number, dtype=dtype)
    value = machine.build.value("scalar", machine.fakes.tensor([], dtype))
    arguments = {"s": number, "dtype": tensor_adapters.from_torch_dtype(dtype)}
    machine.build.append("aten::scalar_tensor", arguments, [value], "default")
    return value
