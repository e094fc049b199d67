"""The arguments of an operator as Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ....registration import ModelFileError
from .messages import message_type
from .operators import WINDOWS, table

MAXIMUM_LIST = 65_536
"""Numbers in a list that is an argument; weights are not kept as arguments."""
_SINGLE, _LISTS = ("f", "i", "s", "n", "t"), ("floats", "ints", "strings", "nets", "tensors", "qtensors")
_ELEMENT_TYPES = {
    "FLOAT": ir.DataType.FLOAT,
    "INT32": ir.DataType.INT32,
    "BYTE": ir.DataType.UINT8,
    "STRING": ir.DataType.STRING,
    "BOOL": ir.DataType.BOOL,
    "UINT8": ir.DataType.UINT8,
    "INT8": ir.DataType.INT8,
    "UINT16": ir.DataType.UINT16,
    "INT16": ir.DataType.INT16,
    "INT64": ir.DataType.INT64,
    "FLOAT16": ir.DataType.FLOAT16,
    "DOUBLE": ir.DataType.DOUBLE,
}
_LAYERED = {"kernels": "kernel", "strides": "stride", "dilations": "dilation", "adjs": "adj"}
"""The lists of windows, and the names of their older single arguments."""
_SIDES = ("t", "l", "b", "r")


def text_of(text: str | bytes, label: str) -> str:
    """Return a text field of a message, which protobuf returns as bytes if it is not UTF-8.

    Raises:
        ModelFileError: it is not.
    """
    if not isinstance(text, str):
        raise ModelFileError(f"{label} holds text that is not UTF-8")
    return text


def by_name(operator: Any, label: str) -> dict[str, Any]:
    """The argument messages of an operator.

    Raises:
        ModelFileError: two arguments of one name differ.
    """
    found: dict[str, Any] = {}
    for argument in operator.arg:
        name = text_of(argument.name, label)
        if found.setdefault(name, argument) != argument:
            raise ModelFileError(f"{label} has two arguments named '{name}'")
    return found


def kind_of(argument: Any, label: str) -> str:
    """The field with an argument's value, "" for an empty list.

    Raises:
        ModelFileError: several fields do.
    """
    kinds = [kind for kind in _SINGLE if argument.HasField(kind)]
    kinds += [kind for kind in _LISTS if len(getattr(argument, kind))]
    if len(kinds) > 1:
        raise ModelFileError(f"argument '{argument.name}' of {label} has both {kinds[0]} and {kinds[1]}")
    return kinds[0] if kinds else ""


def value_of(argument: Any, label: str) -> Any:
    """An argument as a Python value: a number, a text, or a list of these; a net or tensor as its name."""
    kind = kind_of(argument, label)
    held: Any = getattr(argument, kind) if kind else []
    if kind in ("f", "i"):
        return held
    if kind == "s":
        return _decoded(held)
    if kind in ("n", "t"):
        return _decoded(held.name)
    if len(held) > MAXIMUM_LIST:
        raise ModelFileError(
            f"argument '{argument.name}' of {label} has {len(held)} elements, more than {MAXIMUM_LIST}"
        )
    if kind in ("floats", "ints"):
        return list(held)
    return [_decoded(item if kind == "strings" else item.name) for item in held]


def _decoded(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def arguments_of(operator: Any, label: str) -> dict[str, Any]:
    """The arguments that an operator reads, by name; all of them if it is not in the table.

    Raises:
        ModelFileError: they contradict each other, or have no meaning.
    """
    messages = by_name(operator, label)
    values = {name: value_of(argument, label) for name, argument in messages.items()}
    schema = table().get(operator.type)
    if schema is None:
        return values
    if operator.type in WINDOWS:
        _bring_to_lists(values, label)
    if operator.type == "ConstantFill":
        values["dtype"] = constant_type(messages, label)
    elif "to" in schema.arguments:
        values["to"] = element_type(values.get("to", 1), label)
    return {name: value for name, value in values.items() if name in schema.arguments}


def _bring_to_lists(values: dict[str, Any], label: str) -> None:
    """Convert legacy window arguments to lists; ignore incomplete ones."""
    for name, single in _LAYERED.items():
        pair = [values.get(f"{single}_h"), values.get(f"{single}_w")]
        older = [values[single]] * 2 if single in values else pair if None not in pair else None
        _set_once(values, name, older, label)
    sides = [values.get(f"pad_{side}") for side in _SIDES]
    older = [values["pad"]] * 4 if "pad" in values else sides if None not in sides else None
    _set_once(values, "pads", older, label)


def _set_once(values: dict[str, Any], name: str, older: list[Any] | None, label: str) -> None:
    if older is None:
        return
    if values.get(name, older) != older:
        raise ModelFileError(f"{label} gives {name} twice, as {values[name]} and as {older}")
    values[name] = older


def element_type(value: Any, label: str) -> ir.DataType:
    """The ONNX element type of one of Caffe2's, given by number or by name.

    Raises:
        ModelFileError: there is no such type.
    """
    numbers = message_type.enumeration("TensorProto.DataType")
    names = {number: name for name, number in numbers.items()}
    name = value.upper() if isinstance(value, str) else names.get(value) if isinstance(value, int) else None
    if name not in _ELEMENT_TYPES:
        raise ModelFileError(f"{label} has the element type {value!r}, which no tensor has")
    return _ELEMENT_TYPES[name]


def constant_type(messages: Mapping[str, Any], label: str) -> ir.DataType:
    """The element type of ConstantFill: `dtype`, or that of `value`."""
    if "dtype" in messages:
        return element_type(value_of(messages["dtype"], label), label)
    return ir.DataType.INT64 if "value" in messages and messages["value"].HasField("i") else ir.DataType.FLOAT


def sizes_of(values: Sequence[int] | Any, label: str) -> tuple[int, ...]:
    """The sizes in a `shape` argument.

    Raises:
        ModelFileError: they are not sizes.
    """
    if not isinstance(values, list) or not all(
        isinstance(size, int) and 0 <= size < 2**48 for size in values
    ):
        raise ModelFileError(f"{label} has an invalid shape: {values!r}"[:300])
    return tuple(values)
