"""Python numbers of a TorchScript program: computed where they are constant, `sym` nodes where not."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from onnx_ir import Value

from ....registration import CaptureError
from .builder import DTYPES
from .fakes import Number
from .library import call_operator, schema_of, script
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


def _whole(function: Callable[[Any], Any]) -> Callable[[Any], int]:
    return lambda value: int(function(value))


OPERATIONS: dict[str, Operation] = {
    "add": Operation(operator.add),
    "sub": Operation(operator.sub),
    "mul": Operation(operator.mul),
    "div": Operation(operator.truediv),
    "floordiv": Operation(operator.floordiv),
    "floor_divide": Operation(operator.floordiv),
    "remainder": Operation(operator.mod),
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
    "round": Operation(round),
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
_BY_TENSORS = {
    name: name
    for name in (
        "exp log log10 log2 log1p expm1 sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh "
        "isnan isinf isfinite copysign hypot erf erfc lgamma fmod"
    ).split()
} | {"degrees": "rad2deg", "radians": "deg2rad", "fabs": "abs"}
"""What is computed by an operator over zero-dim tensors of doubles, by the operator's name."""
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
    if name in _BY_TENSORS:
        return _by_tensors(machine, name, operands)
    if not operation.is_symbolic:
        raise CaptureError(f"{name} of a number that is not known while the program is captured")
    kinds = {number_kind(operand) for operand in operands}
    if name in _LOGIC and kinds != {"bool"}:
        raise CaptureError(f"bitwise {name} of ints that are not known while the program is captured")
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
    from .tensors import item, scalar_tensor

    tensors = [
        scalar_tensor(machine, convert(machine, operand, "float"), torch.float64) for operand in operands
    ]
    arguments = dict(zip(("self", "other"), tensors, strict=False))
    overload = "Tensor" if name in ("fmod", "copysign") else "default"
    [result] = machine.build.operator(f"aten::{_BY_TENSORS[name]}", overload, arguments, ["Tensor"], name)
    return item(machine, result)


def _kind(name: str, kinds: set[str]) -> str:
    if name in _COMPARISONS or name in _LOGIC or name == "__not__":
        return "bool"
    if name in ("floor", "ceil", "round"):
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
    if isinstance(operands[0], str):
        return _text(machine, node, name, operands)
    tensors = _is_of_tensors(node) or "Tensor" in str(schema_of(node).returns[0].type)
    if tensors:
        result = call_operator(machine, node, operands)
        note_number(machine, name, node, operands, result)
        return result
    if not all(map(is_number, operands)):
        return _identity(name, operands, machine, node)
    return compute(machine, name, *operands, kind=scalar_kind(node))


def _identity(name: str, operands: tuple[Any, ...], machine: Interpreter, node: Any) -> Any:
    if name in ("eq", "ne") and all(map(is_constant, operands)):
        return OPERATIONS[name].python(*operands)
    raise CaptureError(f"{machine.place(node)} of {', '.join(type(o).__name__ for o in operands)}")


def _text(machine: Interpreter, node: Any, name: str, operands: tuple[Any, ...]) -> Any:
    if any(isinstance(operand, UnknownText) for operand in operands):
        if name == "add":
            return UnknownText("".join(map(str, operands)))
        raise CaptureError(f"{machine.place(node)}: the text depends on numbers that are computed")
    return OPERATIONS[name].python(*operands)


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
    if len(operands) == 1 and isinstance(operands[0], List):
        if operands[0].items is None:
            return machine.build.list_number(
                f"list::{name}", {"self": operands[0].value}, scalar_kind(node) or "int"
            )
        operands = tuple(operands[0].items)
    result = operands[0]
    for other in operands[1:]:
        if is_constant(result) and is_constant(other):
            result = getattr(builtins, name)(result, other)
        else:
            kinds = {number_kind(result), number_kind(other)}
            kind = "int" if kinds == {"int"} else "float"
            result = machine.build.arithmetic(name, kind, result, other, python=getattr(builtins, name))
    return result


@script("aten::divmod")
def quotient_and_remainder(machine: Interpreter, node: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """`divmod(a, b)`."""
    return compute(machine, "floordiv", a, b), compute(machine, "remainder", a, b)


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
