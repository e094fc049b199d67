"""Python numbers of a TorchScript program: computed where they are constant, `sym` nodes where not."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from onnx_ir import Value

from ....registration import CaptureError
from .builder import DTYPES
from .fakes import Number
from .library import call_operator, of_constants, schema_of, script
from .objects import Dict, List, UnknownText, is_constant, is_number, number_kind

if TYPE_CHECKING:
    from .interpreter import Interpreter


class Operation(NamedTuple):
    """Arithmetic over numbers.

    Attributes:
        is_symbolic: whether the `sym` dialect has it too.
        python: what it means for constants.
    """

    python: Callable[..., Any]
    is_symbolic: bool = True


def _floordiv(a: Any, b: Any) -> Any:
    """Of floats the quotient rounded down, where Python divides what is left of the remainder."""
    return float(math.floor(a / b)) if isinstance(a, float) or isinstance(b, float) else a // b


def _remainder(a: Any, b: Any) -> Any:
    is_float = isinstance(a, float) or isinstance(b, float)
    return math.fmod(b + math.fmod(a, b), b) if is_float else a % b


OPERATIONS: dict[str, Operation] = {
    "add": Operation(operator.add),
    "sub": Operation(operator.sub),
    "mul": Operation(operator.mul),
    "div": Operation(operator.truediv),
    "floordiv": Operation(_floordiv),
    "floor_divide": Operation(_floordiv),
    "remainder": Operation(_remainder),
    "fmod": Operation(math.fmod, False),
    "pow": Operation(operator.pow),
    "neg": Operation(operator.neg),
    "abs": Operation(operator.abs),
    "eq": Operation(operator.eq),
    "ne": Operation(operator.ne),
    "lt": Operation(operator.lt),
    "le": Operation(operator.le),
    "gt": Operation(operator.gt),
    "ge": Operation(operator.ge),
    "__and__": Operation(operator.and_),
    "__or__": Operation(operator.or_),
    "__xor__": Operation(operator.xor),
    "__not__": Operation(operator.not_),
    "__lshift__": Operation(operator.lshift),
    "__rshift__": Operation(operator.rshift),
    "ceil": Operation(math.ceil),
    "floor": Operation(math.floor),
    "round": Operation(lambda value: float(round(value)), False),
    "sqrt": Operation(math.sqrt),
    "exp": Operation(math.exp, False),
    "log": Operation(math.log, False),
    "log10": Operation(math.log10, False),
    "log2": Operation(math.log2, False),
    "log1p": Operation(math.log1p, False),
    "expm1": Operation(math.expm1, False),
    "sin": Operation(math.sin, False),
    "cos": Operation(math.cos, False),
    "tan": Operation(math.tan, False),
    "asin": Operation(math.asin, False),
    "acos": Operation(math.acos, False),
    "atan": Operation(math.atan, False),
    "atan2": Operation(math.atan2, False),
    "sinh": Operation(math.sinh, False),
    "cosh": Operation(math.cosh, False),
    "tanh": Operation(math.tanh, False),
    "gcd": Operation(math.gcd, False),
    "factorial": Operation(math.factorial, False),
    "degrees": Operation(math.degrees, False),
    "radians": Operation(math.radians, False),
    "isnan": Operation(math.isnan, False),
    "isinf": Operation(math.isinf, False),
    "isfinite": Operation(math.isfinite, False),
    "copysign": Operation(math.copysign, False),
    "hypot": Operation(math.hypot, False),
    "acosh": Operation(math.acosh, False),
    "asinh": Operation(math.asinh, False),
    "atanh": Operation(math.atanh, False),
    "erf": Operation(math.erf, False),
    "erfc": Operation(math.erfc, False),
    "gamma": Operation(math.gamma, False),
    "lgamma": Operation(math.lgamma, False),
    "fabs": Operation(math.fabs, False),
    "ldexp": Operation(math.ldexp, False),
    "mathremainder": Operation(math.remainder, False),
    "__round_to_zero_floordiv": Operation(lambda a, b: int(a / b), False),
}
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
"""What is computed by an operator and overload over zero-dim tensors of doubles."""
_BY_INTEGERS: dict[str, tuple[str, str]] = {
    "__and__": ("bitwise_and", "Tensor"),
    "__or__": ("bitwise_or", "Tensor"),
    "__xor__": ("bitwise_xor", "Tensor"),
    "__lshift__": ("bitwise_left_shift", "Tensor"),
    "__rshift__": ("bitwise_right_shift", "Tensor"),
    "gcd": ("gcd", "default"),
    "__round_to_zero_floordiv": ("div", "Tensor_mode"),
}
"""What is computed of ints by an operator and overload over zero-dim INT64 tensors."""
_LOGIC = frozenset(("__and__", "__or__", "__xor__"))
_COMPARISONS = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt}
_COMPARISONS["ge"] = operator.ge


def compute(machine: Interpreter, name: str, *operands: Any, kind: str | None = None) -> Any:
    """The result of arithmetic over numbers, a Python number where it is known.

    Args:
        name: a key of `OPERATIONS`.
        kind: of the result; unless given, int for ints alone, bool for comparisons, else float.

    Raises:
        CaptureError: the program divides by zero or the like, or the arithmetic has no symbolic form.
    """
    operation = OPERATIONS[name]
    if all(map(is_constant, operands)):
        try:
            result = operation.python(*operands)
        except (ArithmeticError, ValueError) as error:
            raise CaptureError(f"the program computes {name}{operands}: {error}") from error
        return _as_kind(result, kind)
    kinds = {number_kind(operand) for operand in operands}
    if name == "log" and len(operands) == 2:
        return compute(machine, "div", *(compute(machine, "log", operand) for operand in operands))
    if name == "ldexp":
        factor = compute(machine, "pow", 2.0, operands[1])
        return compute(machine, "mul", operands[0], factor)
    if name in _BY_TENSORS:
        return _by_tensors(machine, name, operands)
    if name in _BY_INTEGERS and kinds != {"bool"}:
        return _by_integers(machine, name, operands)
    if not operation.is_symbolic:
        raise CaptureError(f"{name} of a number that is not known while the program is captured")
    settled = _settled(machine, name, operands)
    if settled is not None:
        return settled
    kind = kind or _kind(name, kinds)
    if name == "pow" and kind == "float" and "float" not in kinds:
        operands = tuple(convert(machine, operand, "float") for operand in operands)
    result = machine.build.arithmetic(name, kind, *operands, python=operation.python)
    known = machine.fakes[result]
    if isinstance(known, Number) and known.expression is not None and known.expression.is_Integer:
        return int(known.expression)
    return result


def _by_tensors(machine: Interpreter, name: str, operands: tuple[Any, ...]) -> Any:
    floats = [convert(machine, operand, "float") for operand in operands]
    return _of_tensors(machine, name, *_BY_TENSORS[name], floats, torch.float64)


def _by_integers(machine: Interpreter, name: str, operands: tuple[Any, ...]) -> Any:
    amount = operands[-1]
    if name in ("__lshift__", "__rshift__") and is_constant(amount) and 0 <= amount < 63:
        return compute(machine, "mul" if name == "__lshift__" else "floordiv", operands[0], 1 << amount)
    for mask, rest in (operands, operands[::-1]):
        if name == "__and__" and is_constant(mask) and 0 <= mask < 2**62 and mask & (mask + 1) == 0:
            # The lowest bits of a number in two's complement are a remainder.
            return compute(machine, "remainder", rest, mask + 1)
    mode = {"rounding_mode": "trunc"} if name == "__round_to_zero_floordiv" else {}
    return _of_tensors(machine, name, *_BY_INTEGERS[name], operands, torch.int64, **mode)


def _of_tensors(
    machine: Interpreter,
    name: str,
    operator: str,
    overload: str,
    numbers: Sequence[Any],
    dtype: torch.dtype,
    **settings: Any,
) -> Any:
    """The number that an operator gives for zero-dim tensors of numbers."""
    from .tensors import item, scalar_tensor

    tensors = [scalar_tensor(machine, number, dtype) for number in numbers]
    arguments = dict(zip(("self", "other"), tensors, strict=False)) | settings
    [result] = machine.build.operator(f"aten::{operator}", overload, arguments, ["Tensor"], name)
    return item(machine, result)


def _kind(name: str, kinds: set[str]) -> str:
    if name in _COMPARISONS or name in _LOGIC or name == "__not__":
        return "bool"
    if name in ("floor", "ceil"):
        return "int"
    return "int" if kinds <= {"int", "bool"} and name not in ("div", "sqrt", "exp", "log") else "float"


def _as_kind(result: Any, kind: str | None) -> Any:
    if isinstance(result, (bool, int, float)) and kind in ("int", "float", "bool"):
        return {"int": int, "float": float, "bool": bool}[kind](result)
    return result


def _settled(machine: Interpreter, name: str, operands: tuple[Any, ...]) -> Any:
    """What holds for all sizes: `x and True`, `x or False`, `x == x`; None for anything else."""
    constants = [operand for operand in operands if isinstance(operand, bool)]
    rest = [operand for operand in operands if isinstance(operand, Value)]
    if name in ("__and__", "__or__") and constants and len(rest) == 1:
        return constants[0] if constants[0] is (name == "__or__") else rest[0]
    if name in _COMPARISONS:
        difference = machine.fakes.difference(*operands)
        return None if difference is None else _COMPARISONS[name](difference, 0)
    return None


def scalar_kind(node: Any) -> str | None:
    """`int`, `float` or `bool` of a node's result, None for a number of either kind."""
    kind = str(node.output().type())
    return kind if kind in DTYPES else None


def _is_of_tensors(node: Any) -> bool:
    return any("Tensor" in str(value.type()) for value in node.inputs())


@script(*(f"aten::{name}" for name in OPERATIONS))
def arithmetic(machine: Interpreter, node: Any, *operands: Any) -> Any:
    """Arithmetic; over tensors, lists and texts where it is theirs."""
    from .containers import list_arithmetic

    name = node.kind().split("::")[1]
    if any(isinstance(operand, (List, Dict)) for operand in operands):
        return list_arithmetic(machine, node, name, *operands)
    if any(isinstance(operand, UnknownText) for operand in operands):
        return _unknown_text(machine, node, name, operands)
    tensors = _is_of_tensors(node) or "Tensor" in str(schema_of(node).returns[0].type)
    if tensors:
        result = call_operator(machine, node, operands)
        note_number(machine, name, node, operands, result)
        return result
    if all(isinstance(operand, (bool, int, float, str)) for operand in operands):
        return of_constants(machine, node, *operands)
    if not all(map(is_number, operands)):
        return _identity(name, operands, machine, node)
    result = compute(machine, name, *operands, kind=scalar_kind(node))
    if len(operands) == 1 and schema_of(node).overload_name == "Scalar":
        return _single(machine, result)
    return result


def _single(machine: Interpreter, number: Any) -> Any:
    """A number as functions of one `Scalar`, that of `x.item()`, return it: a float in single precision."""
    from .tensors import item, scalar_tensor

    if number_kind(number) != "float":
        return number
    return convert(machine, item(machine, scalar_tensor(machine, number, torch.float32)), "float")


def _identity(name: str, operands: tuple[Any, ...], machine: Interpreter, node: Any) -> Any:
    if name in ("eq", "ne") and all(map(is_constant, operands)):
        return OPERATIONS[name].python(*operands)
    raise CaptureError(f"{machine.place(node)} of {', '.join(type(o).__name__ for o in operands)}")


def _unknown_text(machine: Interpreter, node: Any, name: str, operands: tuple[Any, ...]) -> Any:
    if name == "add":
        return UnknownText("".join(map(str, operands)))
    raise CaptureError(f"{machine.place(node)}: the text depends on numbers that are computed")


_ON_TENSORS = frozenset("add sub mul floor_divide floordiv remainder neg".split())


def note_number(machine: Interpreter, name: str, node: Any, operands: tuple[Any, ...], result: Any) -> None:
    """Of a zero-dim tensor that a trace computes of sizes, keep the number that it stands for too."""
    if name == "div" and "floor" in operands:
        name = "floordiv"
    if name not in _ON_TENSORS or not isinstance(result, Value):
        return
    numbers = [machine.number_of(operand) for operand in operands[: 1 if name == "neg" else 2]]
    if all(number is not None for number in numbers) and operands[2:] in ((), (1,), ("floor",)):
        machine.note_number(result, compute(machine, name, *numbers))


def convert(machine: Interpreter, item: Any, kind: str) -> Any:
    """A number as an int, float or bool."""
    if is_constant(item):
        return _as_kind(item if not isinstance(item, str) else float(item), kind)
    own = number_kind(item)
    if own == kind:
        return item
    if kind == "bool":
        return compute(machine, "ne", item, 0)
    return machine.build.arithmetic(kind, kind, item, python={"int": int, "float": float}[kind])


@script("aten::Int", "aten::Float", "aten::Bool", "aten::IntImplicit", "aten::FloatImplicit")
def conversion(machine: Interpreter, node: Any, operand: Any) -> Any:
    """`int(x)`, `float(x)`, `bool(x)` of numbers, texts, and tensors of one element."""
    from .tensors import item

    kind = node.kind().split("::")[1].removesuffix("Implicit").lower()
    number = machine.number_of(operand)
    if number is None:
        number = item(machine, operand)
    return convert(machine, number, kind)


@script("aten::ScalarImplicit", "aten::item")
def scalar_implicit(machine: Interpreter, node: Any, operand: Any) -> Any:
    """The number that a tensor of one element holds."""
    from .tensors import item

    number = machine.number_of(operand)
    return item(machine, operand) if number is None else number


@script("prim::min", "prim::max")
def extreme(machine: Interpreter, node: Any, *operands: Any) -> Any:
    """`min` and `max` of numbers, or of a list of them."""
    name = node.kind().split("::")[1]
    if all(map(is_number, operands)):
        return _extreme(machine, name, *operands)
    items = operands[0]
    if len(operands) != 1 or not isinstance(items, List):
        raise CaptureError(f"{machine.place(node)}: of lists")
    if items.items is None:
        return machine.build.list_number(f"list::{name}", {"self": items.value}, items.kind)
    if not items.items:
        raise CaptureError(f"{machine.place(node)}: of an empty list")
    result = items.items[0]
    for member in items.items[1:]:
        result = _extreme(machine, name, member, result)
    return result


def _extreme(machine: Interpreter, name: str, a: Any, b: Any) -> Any:
    """The first of two numbers where it is the larger or smaller one, else the second, even beside NaN."""
    kinds = {number_kind(a), number_kind(b)}
    if kinds == {"bool"}:
        return compute(machine, "__or__" if name == "max" else "__and__", a, b)
    kind = "int" if kinds <= {"int", "bool"} else "float"
    comparison = operator.gt if name == "max" else operator.lt

    def choose(a: Any, b: Any) -> Any:
        return a if comparison(a, b) else b

    if is_constant(a) and is_constant(b):
        return _as_kind(choose(a, b), kind)
    return machine.build.arithmetic(name, kind, a, b, python=choose)


@script("aten::divmod")
def quotient_and_remainder(machine: Interpreter, node: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """`divmod(a, b)`; of floats the quotient is what is left without the remainder."""
    if is_constant(a) and is_constant(b):
        return of_constants(machine, node, a, b)
    rest = compute(machine, "remainder", a, b)
    if "float" not in (number_kind(a), number_kind(b)):
        return compute(machine, "floordiv", a, b), rest
    quotient = compute(machine, "div", compute(machine, "sub", a, rest), b)
    return compute(machine, "round", quotient), rest


@script("aten::modf", "aten::frexp", "aten::Complex", "aten::polar", "aten::angle")
def of_known_numbers(machine: Interpreter, node: Any, *operands: Any) -> Any:
    """What is computed of constants only; of tensors, ATen's."""
    if _is_of_tensors(node):
        return call_operator(machine, node, operands)
    if not all(map(is_constant, operands)):
        raise CaptureError(f"{machine.place(node)} of numbers that are not known while it is captured")
    return of_constants(machine, node, *operands)


@script("prim::abs")
def absolute(machine: Interpreter, node: Any, operand: Any) -> Any:
    """`abs` of a number, or of a tensor."""
    if is_number(operand):
        return compute(machine, "abs", operand)
    [result] = machine.build.operator(
        "aten::abs", "default", {"self": operand}, ["Tensor"], machine.stem(node)
    )
    return result


@script("aten::__range_length")
def range_length(machine: Interpreter, node: Any, low: Any, high: Any, step: Any) -> Any:
    """How many numbers `range(low, high, step)` has."""
    if not isinstance(step, int):
        raise CaptureError(f"{machine.place(node)}: the step of a range must be constant")
    if all(map(is_constant, (low, high))):
        return len(range(low, high, step))
    span = compute(machine, "sub", high, low)
    if step != 1:
        span = compute(machine, "add", span, step - (1 if step > 0 else -1))
        span = compute(machine, "floordiv", span, step)
    return machine.build.arithmetic("max", "int", span, 0, python=max)


@script("aten::__derive_index")
def derive_index(machine: Interpreter, node: Any, index: Any, start: Any, step: Any) -> Any:
    """The number at a position of a range."""
    return compute(machine, "add", start, compute(machine, "mul", index, step))
