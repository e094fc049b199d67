"""Arithmetic and conversions of a TorchScript program, over numbers, tensors, lists and texts."""

from __future__ import annotations

import operator

import torch
from onnx_ir import Value

from .....registration import CaptureError
from ..interpreter import Interpreter, Results
from ..library import call_operator, of_constants, schema_of, script
from ..objects import Dict, Item, List, NumberItem, UnknownText, is_constant, is_number, number_kind
from ..script_graph import ScriptNode
from .containers import list_arithmetic
from .scalars import OPERATIONS, as_kind, compute, convert, item, scalar_kind, scalar_tensor


def _is_of_tensors(node: ScriptNode) -> bool:
    return any("Tensor" in str(value.type()) for value in node.inputs())


@script(*(f"aten::{name}" for name in OPERATIONS))
def arithmetic(machine: Interpreter, node: ScriptNode, *operands: Item) -> Results:
    """An arithmetic operator on numbers, tensors, lists or texts, chosen by its operands."""
    name = node.kind().split("::")[1]
    if any(isinstance(operand, (List, Dict)) for operand in operands):
        return list_arithmetic(machine, node, name, *operands)
    if any(isinstance(operand, UnknownText) for operand in operands):
        if name == "add":
            return UnknownText("".join(map(str, operands)))
        raise CaptureError("the string depends on computed numbers, which is not supported")
    if _is_of_tensors(node) or "Tensor" in str(schema_of(node).returns[0].type):
        result = call_operator(machine, node, operands)
        note_number(machine, name, operands, result)
        return result
    if all(isinstance(operand, (bool, int, float, str)) for operand in operands):
        return of_constants(machine, node, *operands)
    if not all(map(is_number, operands)):
        if name in ("eq", "ne") and all(map(is_constant, operands)):
            return OPERATIONS[name](*operands)
        classes = ", ".join(type(operand).__name__ for operand in operands)
        raise CaptureError(f"{machine.place(node)} does not support operands of {classes}")
    number = compute(machine, name, *operands, number_type=scalar_kind(node))
    if len(operands) == 1 and schema_of(node).overload_name == "Scalar" and number_kind(number) == "float":
        # ATen functions of a `Scalar` round a float to single precision.
        return convert(machine, item(machine, scalar_tensor(machine, number, torch.float32)), "float")
    return number


_ON_TENSORS = frozenset("add sub mul floor_divide floordiv remainder neg".split())


def note_number(machine: Interpreter, name: str, operands: tuple[Item, ...], result: Results) -> None:
    """Remember the number in a zero-dim tensor: traces compute with sizes in such tensors."""
    # `torch.div(a, b, rounding_mode="floor")` is how newer programs write `a // b`.
    if name == "div" and "floor" in operands:
        name = "floordiv"
    if name not in _ON_TENSORS or not isinstance(result, Value):
        return
    numbers = [machine.number_of(operand) for operand in operands[: 1 if name == "neg" else 2]]
    if all(number is not None for number in numbers) and operands[2:] in ((), (1,), ("floor",)):
        machine.note_number(result, compute(machine, name, *numbers))


@script("aten::Int", "aten::Float", "aten::Bool", "aten::IntImplicit", "aten::FloatImplicit")
def conversion(machine: Interpreter, node: ScriptNode, operand: NumberItem | torch.Tensor | str) -> Results:
    """`int(x)`, `float(x)`, `bool(x)` of numbers, texts, and tensors of one element."""
    if isinstance(operand, str):
        return of_constants(machine, node, operand)
    number_type = node.kind().split("::")[1].removesuffix("Implicit").lower()
    number = machine.number_of(operand)
    return convert(machine, item(machine, operand) if number is None else number, number_type)


@script("aten::ScalarImplicit", "aten::item")
def scalar_implicit(machine: Interpreter, node: ScriptNode, operand: NumberItem | torch.Tensor) -> NumberItem:
    """The number in a tensor of one element."""
    number = machine.number_of(operand)
    return item(machine, operand) if number is None else number


@script("prim::min", "prim::max")
def extreme(machine: Interpreter, node: ScriptNode, *operands: Item) -> Item:
    """`min` and `max` of numbers, or of a list of them."""
    name = node.kind().split("::")[1]
    if all(map(is_number, operands)):
        return _extreme(machine, name, *operands)
    items = operands[0]
    if len(operands) != 1 or not isinstance(items, List):
        raise CaptureError("lists are not supported")
    if items.items is None:
        return machine.build.list_number(f"list::{name}", {"self": items.value}, items.element_type)
    if not items.items:
        raise CaptureError("the list is empty")
    result = items.items[0]
    for member in items.items[1:]:
        result = _extreme(machine, name, member, result)
    return result


def _extreme(machine: Interpreter, name: str, a: Item, b: Item) -> NumberItem:
    """The first of two numbers if it is the larger (or smaller) one, else the second, also if one is NaN."""
    kinds = {number_kind(a), number_kind(b)}
    if kinds == {"bool"}:
        return compute(machine, "__or__" if name == "max" else "__and__", a, b)
    number_type = "int" if kinds <= {"int", "bool"} else "float"
    comparison = operator.gt if name == "max" else operator.lt

    def choose(a: float, b: float) -> float:
        return a if comparison(a, b) else b

    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return as_kind(choose(a, b), number_type)
    return machine.build.arithmetic(name, number_type, a, b, python=choose)


@script("aten::divmod")
def quotient_and_remainder(machine: Interpreter, node: ScriptNode, a: Item, b: Item) -> Results:
    """`divmod(a, b)`; for floats the quotient is `(a - remainder) / b`, as in Python."""
    if is_constant(a) and is_constant(b):
        return of_constants(machine, node, a, b)
    remainder = compute(machine, "remainder", a, b)
    if "float" not in (number_kind(a), number_kind(b)):
        return [compute(machine, "floordiv", a, b), remainder]
    quotient = compute(machine, "div", compute(machine, "sub", a, remainder), b)
    return [compute(machine, "round", quotient), remainder]


@script("aten::modf", "aten::frexp", "aten::Complex", "aten::polar", "aten::angle")
def of_known_numbers(machine: Interpreter, node: ScriptNode, *operands: Item) -> Results:
    """An operator that needs constant numbers; for tensors, ATen's operator."""
    if _is_of_tensors(node):
        return call_operator(machine, node, operands)
    if not all(map(is_constant, operands)):
        raise CaptureError(f"{machine.place(node)} needs numbers that are known at capture")
    return of_constants(machine, node, *operands)


@script("prim::abs")
def absolute(machine: Interpreter, node: ScriptNode, operand: Item) -> Item:
    """`abs` of a number, or of a tensor."""
    if is_number(operand):
        return compute(machine, "abs", operand)
    return machine.build.tensor_operator("abs", "default", {"self": operand}, machine.stem(node))


@script("aten::__range_length")
def range_length(machine: Interpreter, node: ScriptNode, low: Item, high: Item, step: Item) -> Item:
    """The length of `range(low, high, step)`."""
    if not isinstance(step, int):
        raise CaptureError("the step of a range must be constant")
    if isinstance(low, int) and isinstance(high, int):
        return len(range(low, high, step))
    span = compute(machine, "sub", high, low)
    # Round up: a range of 5 with a step of 2 has 3 members.
    if step != 1:
        span = compute(machine, "add", span, step - (1 if step > 0 else -1))
        span = compute(machine, "floordiv", span, step)
    # A range whose end is before its start is empty.
    return machine.build.arithmetic("max", "int", span, 0, python=max)


@script("aten::__derive_index")
def derive_index(machine: Interpreter, node: ScriptNode, index: Item, start: Item, step: Item) -> Item:
    """The number at a position of a range."""
    return compute(machine, "add", start, compute(machine, "mul", index, step))
