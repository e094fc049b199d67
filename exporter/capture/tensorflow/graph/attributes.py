"""Converts the attributes of a node to arguments of a source node."""

from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir

from .....registration import ModelFileError
from ..element_types import onnx_type
from ..messages import AttrDef, AttrValue, TensorProto, TensorShapeProto
from .nodes import GraphNode

MakeInitializer = Callable[[GraphNode, str, TensorProto], ir.Value]
"""Makes an initializer of a TensorProto; takes the node, the name of its attribute, and the message."""


def text_of(content: bytes) -> str:
    """Decode a string attribute; bytes that are not UTF-8 become one character each."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def shape_of(message: TensorShapeProto) -> list[int] | None:
    """The sizes in a TensorShapeProto, -1 for an unknown size; None if the rank is unknown."""
    return None if message.unknown_rank else [max(int(dimension.size), -1) for dimension in message.dim]


_READERS: dict[str, Callable[[Any], Any]] = {
    "s": text_of,
    "i": int,
    "f": float,
    "b": bool,
    "type": onnx_type,
    "shape": shape_of,
    "func": lambda message: message.name,
}
_VALUE_FIELDS = {
    "string": "s",
    "int": "i",
    "float": "f",
    "bool": "b",
    **{name: name for name in ("type", "shape", "tensor", "func")},
}
"""The field of AttrValue that stores an attribute, by the attribute's type in the OpDef."""


def attributes_of(node: GraphNode, make_initializer: MakeInitializer) -> dict[str, Any]:
    """The attributes of a node by name: those of its OpDef in order, then the others.

    Attributes whose names begin with an underscore are hints of TensorFlow, and omitted.

    Args:
        make_initializer: called for each tensor.
    """
    attributes: dict[str, Any] = {}
    for definition in node.definition.attr if node.definition is not None else ():
        value = node.attribute(definition.name)
        attributes[definition.name] = _read_checked(node, definition, value, make_initializer)
    # The order of a protobuf map is undefined.
    for name in sorted(node.stated_attributes):
        if name not in attributes and not name.startswith("_"):
            attributes[name] = _read_attribute(node, name, node.attribute(name), make_initializer)
    return attributes


def _read_checked(
    node: GraphNode, definition: AttrDef, value: AttrValue, make_initializer: MakeInitializer
) -> Any:
    type_text = definition.type
    is_list = type_text.startswith("list(")
    expected_field = "list" if is_list else _VALUE_FIELDS.get(type_text)
    stored_field = value.WhichOneof("value")
    if (
        expected_field is not None
        and stored_field != expected_field
        and not (stored_field is None and is_list)
    ):
        raise ModelFileError(
            f"attribute '{definition.name}' of {node.label} is "
            f"{'empty' if stored_field is None else f'a value of the kind {stored_field!r}'}, and "
            f"{type_text} is due"
        )
    # Few attributes have limits, and looking for these takes longer than reading most values.
    if definition.has_minimum or definition.HasField("allowed_values"):
        _check_allowed(node, definition, value)
    if not is_list and stored_field == expected_field:
        return _read_item(node, definition.name, stored_field, getattr(value, stored_field), make_initializer)
    if not is_list:
        return _read_attribute(node, definition.name, value, make_initializer)
    field = _VALUE_FIELDS.get(type_text.removeprefix("list(").removesuffix(")"), "i")
    return [
        _read_item(node, definition.name, field, item, make_initializer)
        for item in getattr(value.list, field)
    ]


def _check_allowed(node: GraphNode, definition: AttrDef, value: AttrValue) -> None:
    """Check a value against the words and the least number that the OpDef allows."""
    stored_field = value.WhichOneof("value")
    allowed_words = definition.allowed_values.list.s
    texts = value.list.s if stored_field == "list" else [value.s] if stored_field == "s" else ()
    wrong_text = next((text for text in texts if allowed_words and text not in allowed_words), None)
    if wrong_text is not None:
        allowed = ", ".join(text_of(word) for word in allowed_words)
        raise ModelFileError(
            f"attribute '{definition.name}' of {node.label} is '{text_of(wrong_text)}', which is none of "
            f"{allowed}"
        )
    if not definition.has_minimum:
        return
    # The minimum of a list attribute is its least length.
    number = value.i if stored_field == "i" else None
    if stored_field == "list":
        number = sum(len(items) for _, items in value.list.ListFields())
    if number is not None and number < definition.minimum:
        problem = f"has {number} elements" if stored_field == "list" else f"is {number}"
        raise ModelFileError(
            f"attribute '{definition.name}' of {node.label} {problem}; it must be at least "
            f"{definition.minimum}"
        )


def _read_attribute(node: GraphNode, name: str, value: AttrValue, make_initializer: MakeInitializer) -> Any:
    """Read an attribute that no OpDef describes, from whichever field is set."""
    field = value.WhichOneof("value")
    if field is None:
        return None
    if field != "list":
        return _read_item(node, name, field, getattr(value, field), make_initializer)
    lists: Mapping[Any, Any] = dict(value.list.ListFields())
    return [
        _read_item(node, name, descriptor.name, item, make_initializer)
        for descriptor, items in lists.items()
        for item in items
    ]


def _read_item(
    node: GraphNode, name: str, field: str, item: object, make_initializer: MakeInitializer
) -> Any:
    return make_initializer(node, name, item) if field == "tensor" else _READERS[field](item)
