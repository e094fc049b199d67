"""Arithmetic and conversions of a TorchScript program, over numbers, tensors, lists and texts."""

from __future__ import annotations

import operator
from typing import Any

import torch
from onnx_ir import Value

from .....registration import CaptureError
from ..interpreter import Interpreter
from ..library import call_operator, of_constants, schema_of, script
from ..objects import Dict, List, UnknownText, is_constant, is_number, number_kind
from .containers import list_arithmetic
from .scalars import OPERATIONS, as_kind, compute, convert, item, scalar_kind, scalar_tensor


def _is_of_tensors(node: Any) -> bool:
    return any("Tensor" in str(value.type()) for value in node.inputs())


@script(*(f"aten::{name}" for name in OPERATIONS))
def arithmetic(machine: Interpreter, node: Any, *operands: Any) -> Any:
    """An arithmetic operator on numbers, tensors, lists or texts, chosen by its operands."""
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
    result = compute(machine, name, *operands, number_type=scalar_kind(node))
    if len(operands) == 1 and schema_of(node).overload_name == "Scalar":
        return _single(machine, result)
    return result


def _single(machine: Interpreter, number: Any) -> Any:
    """A number as ATen functions of a `Scalar` return it: a float is rounded to single precision."""
    if number_kind(number) != "float":
        return number
    return convert(machine, item(machine, scalar_tensor(machine, number, torch.float32)), "float")


def _identity(name: str, operands: tuple[Any, ...], machine: Interpreter, node: Any) -> Any:
    if name in ("eq", "ne") and all(map(is_constant, operands)):
        return OPERATIONS[name](*operands)
    raise CaptureError(
        f"{machine.place(node)} does not support operands of {', '.join(type(o).__name__ for o in operands)}"
    )


def _unknown_text(machine: Interpreter, node: Any, name: str, operands: tuple[Any, ...]) -> Any:
    if name == "add":
        return UnknownText("".join(map(str, operands)))
    raise CaptureError(
        f"{machine.place(node)}: the string depends on computed numbers, which is not supported"
    )


_ON_TENSORS = frozenset("add sub mul floor_divide floordiv remainder neg".split())


def note_number(machine: Interpreter, name: str, node: Any, operands: tuple[Any, ...], result: Any) -> None:
    """Remember the number in a zero-dim tensor: traces compute with sizes in such tensors."""
    if name == "div" and "floor" in operands:
        name = "floordiv"
    if name not in _ON_TENSORS or not isinstance(result, Value):
        return
    numbers = [machine.number_of(operand) for operand in operands[: 1 if name == "neg" else 2]]
    if all(number is not None for number in numbers) and operands[2:] in ((), (1,), ("floor",)):
        machine.note_number(result, compute(machine, name, *numbers))


@script("aten::Int", "aten::Float", "aten::Bool", "aten::IntImplicit", "aten::FloatImplicit")
def conversion(machine: Interpreter, node: Any, operand: Any) -> Any:
    """`int(x)`, `float(x)`, `bool(x)` of numbers, texts, and tensors of one element."""
    number_type = node.kind().split("::")[1].removesuffix("Implicit").lower()
    number = machine.number_of(operand)
    if number is None:
        number = item(machine, operand)
    return convert(machine, number, number_type)


@script("aten::ScalarImplicit", "aten::item")
def scalar_implicit(machine: Interpreter, node: Any, operand: Any) -> Any:
    """The number in a tensor of one element."""
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
        raise CaptureError(f"{machine.place(node)}: lists are not supported")
    if items.items is None:
        return machine.build.list_number(f"list::{name}", {"self": items.value}, items.element_type)
    if not items.items:
        raise CaptureError(f"{machine.place(node)}: the list is empty")
    result = items.items[0]
    for member in items.items[1:]:
        result = _extreme(machine, name, member, result)
    return result


def _extreme(machine: Interpreter, name: str, a: Any, b: Any) -> Any:
    """The first of two numbers if it is the larger (or smaller) one, else the second, also if one is NaN."""
    kinds = {number_kind(a), number_kind(b)}
    if kinds == {"bool"}:
        return compute(machine, "__or__" if name == "max" else "__and__", a, b)
    number_type = "int" if kinds <= {"int", "bool"} else "float"
    comparison = operator.gt if name == "max" else operator.lt

    def choose(a: Any, b: Any) -> Any:
        return a if comparison(a, b) else b

    if is_constant(a) and is_constant(b):
        return as_kind(choose(a, b), number_type)
    return machine.build.arithmetic(name, number_type, a, b, python=choose)


@script("aten::divmod")
def quotient_and_remainder(machine: Interpreter, node: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """`divmod(a, b)`; for floats the quotient is `(a - remainder) / b`, as in Python."""
    if is_constant(a) and is_constant(b):
        result: tuple[Any, Any] = of_constants(machine, node, a, b)
        return result
    remainder = compute(machine, "remainder", a, b)
    if "float" not in (number_kind(a), number_kind(b)):
        return compute(machine, "floordiv", a, b), remainder
    quotient = compute(machine, "div", compute(machine, "sub", a, remainder), b)
    return compute(machine, "round", quotient), remainder


@script("aten::modf", "aten::frexp", "aten::Complex", "aten::polar", "aten::angle")
def of_known_numbers(machine: Interpreter, node: Any, *operands: Any) -> Any:
    """An operator that needs constant numbers; for tensors, ATen's operator."""
    if _is_of_tensors(node):
        return call_operator(machine, node, operands)
    if not all(map(is_constant, operands)):
        raise CaptureError(f"{machine.place(node)} needs numbers that are known at capture")
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
    """The length of `range(low, high, step)`."""
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
