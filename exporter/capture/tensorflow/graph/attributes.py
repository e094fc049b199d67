"""The attributes of a node as the arguments of a source node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir

from .....registration import ModelFileError
from ..element_types import onnx_type
from .nodes import Node

Stored = Callable[[Node, str, Any], ir.Value]
"""Makes an initializer of the TensorProto of a node's attribute."""


def text_of(stored: bytes) -> str:
    """Decode a string attribute; bytes that are not UTF-8 become one character each."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored.decode("latin-1")


def shape_of(message: Any) -> list[int] | None:
    """A TensorShapeProto as sizes, -1 for an unknown one; None if the rank is not known."""
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
_KINDS = {
    "string": "s",
    "int": "i",
    "float": "f",
    "bool": "b",
    "type": "type",
    "shape": "shape",
    "tensor": "tensor",
    "func": "func",
}
"""The field of AttrValue that has an attribute, by its type in the OpDef."""


def attributes_of(node: Node, stored: Stored) -> dict[str, Any]:
    """The attributes of a node by name: those of its OpDef in order, then the others.

    Attributes whose names begin with an underscore are hints of TensorFlow, and omitted.

    Args:
        stored: called for each tensor.

    Raises:
        ModelFileError: one is missing and has no default, or is of another type than the OpDef says.
    """
    found: dict[str, Any] = {}
    for each in node.definition.attr if node.definition is not None else ():
        value = node.attribute(each.name)
        found[each.name] = _checked(node, each, value, stored)
    for name in sorted(node.stored):
        if name not in found and not name.startswith("_"):
            found[name] = _read(node, name, node.attribute(name), stored)
    return found


def _checked(node: Node, definition: Any, value: Any, stored: Stored) -> Any:
    kind = definition.type
    listed = kind.startswith("list(")
    due = "list" if listed else _KINDS.get(kind)
    held = value.WhichOneof("value")
    if due is not None and held != due and not (held is None and listed):
        raise ModelFileError(
            f"attribute '{definition.name}' of {node.shown} is "
            f"{'empty' if held is None else f'a value of the kind {held!r}'}, and {kind} is due"
        )
    _check_allowed(node, definition, value)
    if not listed:
        return _read(node, definition.name, value, stored)
    field = _KINDS.get(kind.removeprefix("list(").removesuffix(")"), "i")
    return [_item(node, definition.name, field, item, stored) for item in getattr(value.list, field)]


def _check_allowed(node: Node, definition: Any, value: Any) -> None:
    """Check a value against the words and the least number that the OpDef allows."""
    held = value.WhichOneof("value")
    words = definition.allowed_values.list.s
    texts = value.list.s if held == "list" else [value.s] if held == "s" else ()
    wrong = next((text for text in texts if words and text not in words), None)
    if wrong is not None:
        allowed = ", ".join(text_of(word) for word in words)
        raise ModelFileError(
            f"attribute '{definition.name}' of {node.shown} is '{text_of(wrong)}', which is none of {allowed}"
        )
    if not definition.has_minimum:
        return
    sizes = [*value.list.ListFields()] if held == "list" else []
    number = sum(len(items) for _, items in sizes) if held == "list" else value.i if held == "i" else None
    if number is not None and number < definition.minimum:
        shown = f"has {number} elements" if held == "list" else f"is {number}"
        raise ModelFileError(
            f"attribute '{definition.name}' of {node.shown} {shown}; it must be at least {definition.minimum}"
        )


def _read(node: Node, name: str, value: Any, stored: Stored) -> Any:
    """The value of an attribute by the field that is set."""
    field = value.WhichOneof("value")
    if field is None:
        return None
    if field != "list":
        return _item(node, name, field, getattr(value, field), stored)
    lists: Mapping[Any, Any] = dict(value.list.ListFields())
    return [
        _item(node, name, descriptor.name, item, stored)
        for descriptor, items in lists.items()
        for item in items
    ]


def _item(node: Node, name: str, field: str, item: Any, stored: Stored) -> Any:
    return stored(node, name, item) if field == "tensor" else _READERS[field](item)
