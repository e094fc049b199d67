"""Converts the arguments of an operator to Python values."""

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from ....registration import ModelFileError
from .messages import Argument, OperatorDef, message_type
from .operator_schemas import WINDOWS, table

MAXIMUM_LIST = 65_536
"""Maximum numbers in an argument's list; weights are no arguments."""
_SINGLE, _LISTS = ("f", "i", "s", "n", "t"), ("floats", "ints", "strings", "nets", "tensors", "qtensors")
_ELEMENT_TYPES = {
    "BYTE": ir.DataType.UINT8,
    **{
        name: ir.DataType[name]
        for name in "FLOAT INT32 STRING BOOL UINT8 INT8 UINT16 INT16 INT64 FLOAT16 DOUBLE".split()
    },
}
_WINDOW_LISTS = {"kernels": "kernel", "strides": "stride", "dilations": "dilation", "adjs": "adj"}
"""The list arguments of windows, and the names of the legacy arguments with single numbers."""
_SIDES = ("t", "l", "b", "r")


def text_of(text: str | bytes, label: str) -> str:
    """Check that a text field of a message is UTF-8; protobuf returns bytes if it is not."""
    if not isinstance(text, str):
        raise ModelFileError(f"{label} holds text that is not UTF-8")
    return text


def arguments_by_name(operator: OperatorDef, label: str) -> dict[str, Argument]:
    """The argument messages of an operator by name."""
    messages: dict[str, Argument] = {}
    for argument in operator.arg:
        name = text_of(argument.name, label)
        if messages.setdefault(name, argument) != argument:
            raise ModelFileError(f"{label} has two arguments named '{name}'")
    return messages


def field_of(argument: Argument, label: str) -> str:
    """The field that has an argument's value; "" for an empty list."""
    fields = [field for field in _SINGLE if argument.HasField(field)]
    fields += [field for field in _LISTS if len(getattr(argument, field))]
    if len(fields) > 1:
        raise ModelFileError(f"argument '{argument.name}' of {label} has both {fields[0]} and {fields[1]}")
    return fields[0] if fields else ""


def value_of(argument: Argument, label: str) -> Any:
    """The Python value of an argument: a number, a text or a list of these; the name of a net or tensor."""
    field = field_of(argument, label)
    content: Any = getattr(argument, field) if field else []
    if field in ("f", "i"):
        return content
    if field == "s":
        return _decode(content)
    if field in ("n", "t"):
        return _decode(content.name)
    if len(content) > MAXIMUM_LIST:
        raise ModelFileError(
            f"argument '{argument.name}' of {label} has {len(content)} elements, more than {MAXIMUM_LIST}"
        )
    if field in ("floats", "ints"):
        return list(content)
    return [_decode(item if field == "strings" else item.name) for item in content]


def _decode(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def arguments_of(operator: OperatorDef, label: str) -> dict[str, Any]:
    """The arguments that an operator reads, by name; all of them if it is not in the table."""
    messages = arguments_by_name(operator, label)
    values = {name: value_of(argument, label) for name, argument in messages.items()}
    schema = table().get(operator.type)
    if schema is None:
        return values
    if operator.type in WINDOWS:
        _convert_window_arguments(values, label)
    if operator.type == "ConstantFill":
        values["dtype"] = constant_type(messages, label)
    elif "to" in schema.arguments:
        values["to"] = element_type(values.get("to", 1), label)
    return {name: value for name, value in values.items() if name in schema.arguments}


def _convert_window_arguments(values: dict[str, Any], label: str) -> None:
    """Convert legacy window arguments to lists; ignore pairs and quadruples that are incomplete."""
    # The legacy arguments describe windows over images: two dimensions, four sides.
    for name, single in _WINDOW_LISTS.items():
        pair = [values.get(f"{single}_h"), values.get(f"{single}_w")]
        legacy_numbers = [values[single]] * 2 if single in values else pair if None not in pair else None
        _set_once(values, name, legacy_numbers, label)
    sides = [values.get(f"pad_{side}") for side in _SIDES]
    legacy_numbers = [values["pad"]] * 4 if "pad" in values else sides if None not in sides else None
    _set_once(values, "pads", legacy_numbers, label)


def _set_once(values: dict[str, Any], name: str, legacy_numbers: list[Any] | None, label: str) -> None:
    if legacy_numbers is None:
        return
    if values.get(name, legacy_numbers) != legacy_numbers:
        raise ModelFileError(f"{label} gives {name} twice, as {values[name]} and as {legacy_numbers}")
    values[name] = legacy_numbers


def element_type(value: object, label: str) -> ir.DataType:
    """The ONNX element type for the number or the name of a Caffe2 element type."""
    # Nets state an element type as a number or as a name.
    numbers = message_type.enumeration("TensorProto.DataType")
    names = {number: name for name, number in numbers.items()}
    name = value.upper() if isinstance(value, str) else names.get(value) if isinstance(value, int) else None
    if name not in _ELEMENT_TYPES:
        raise ModelFileError(f"{label} has the element type {value!r}, which no tensor has")
    return _ELEMENT_TYPES[name]


def constant_type(messages: Mapping[str, Argument], label: str) -> ir.DataType:
    """The element type of ConstantFill: `dtype`, or by default the type of `value`."""
    if "dtype" in messages:
        return element_type(value_of(messages["dtype"], label), label)
    return ir.DataType.INT64 if "value" in messages and messages["value"].HasField("i") else ir.DataType.FLOAT


def sizes_of(values: object, label: str) -> tuple[int, ...]:
    """The sizes in a `shape` argument."""
    if not isinstance(values, list) or not all(
        isinstance(size, int) and 0 <= size < 2**48 for size in values
    ):
        raise ModelFileError(f"{label} has an invalid shape: {values!r}"[:300])
    return tuple(values)
