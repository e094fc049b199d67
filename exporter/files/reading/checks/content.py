"""Checks a message for fields that onnx does not define and for text that is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import onnx
from google.protobuf.unknown_fields import UnknownFieldSet

from .....registration import ModelFileError
from ..names import node_title, quoted

MAXIMUM_DEPTH = 100
"""Bound on the nesting of messages."""


class _Fields(NamedTuple):
    """The fields of a message type by kind, and whether errors name its instances."""

    text: tuple[str, ...]
    texts: tuple[str, ...]
    message: tuple[str, ...]
    messages: tuple[str, ...]
    holds_places: bool


def _fields(descriptor: Any, known: dict[str, _Fields]) -> dict[str, _Fields]:
    """The fields of every message type that a message type can contain, by name."""
    if descriptor.full_name not in known:
        inner = [field for field in descriptor.fields if field.message_type is not None]
        texts = [field for field in descriptor.fields if field.type == field.TYPE_STRING]
        known[descriptor.full_name] = _Fields(
            text=tuple(field.name for field in texts if not _is_repeated(field)),
            texts=tuple(field.name for field in texts if _is_repeated(field)),
            message=tuple(field.name for field in inner if not _is_repeated(field)),
            messages=tuple(field.name for field in inner if _is_repeated(field)),
            holds_places=descriptor.name in ("ModelProto", "GraphProto", "FunctionProto"),
        )
        for field in inner:
            _fields(field.message_type, known)
    return known


def _is_repeated(field: Any) -> bool:
    """Whether a field is a list; protobuf before 6.31 stores this as a label."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


_KNOWN = _fields(onnx.ModelProto.DESCRIPTOR, {})
_BY_CLASS: dict[type, _Fields] = {}


def text_of(text: str | bytes, where: str) -> str:
    """Return a text field of a message, which protobuf returns as bytes if it is not UTF-8.

    Raises:
        ModelFileError: it is not; naming `where` it stands.
    """
    if not isinstance(text, str):
        raise ModelFileError(f"{where} holds text that is not UTF-8")
    return text


def check_text(model: onnx.ModelProto) -> None:
    """Refuse text that is not UTF-8, which protobuf returns as bytes, and messages nested too deeply.

    Raises:
        ModelFileError: the message is invalid. The error names the field and its place.
    """
    _walk(model, unknown=False)


def check_content(model: onnx.ModelProto) -> None:
    """Do the checks of `check_text`, and refuse fields that this onnx does not define.

    Raises:
        ModelFileError: the message is invalid. The error names the field and its place.
    """
    _walk(model, unknown=True)


def _walk(model: onnx.ModelProto, *, unknown: bool) -> None:
    # A list of messages is gone through one by one: all of them at once would take more than the model.
    pending: list[tuple[Iterator[Any], int, Any]] = [(iter((model,)), 0, model)]
    while pending:
        messages, depth, outer = pending[-1]
        message = next(messages, None)
        if message is None:
            pending.pop()
            continue
        place = message if outer is None else outer
        if unknown and len(UnknownFieldSet(message)):
            _refuse_unknown(message, place)
        if depth > MAXIMUM_DEPTH:
            raise ModelFileError(f"its messages are nested more than {MAXIMUM_DEPTH} deep")
        kind = type(message)
        fields = _BY_CLASS.get(kind)
        if fields is None:
            fields = _BY_CLASS[kind] = _KNOWN[message.DESCRIPTOR.full_name]
        for name in fields.text:
            if type(getattr(message, name)) is not str:
                raise ModelFileError(f"{_title(place)} holds text that is not UTF-8, in {name}")
        for name in fields.texts:
            for text in getattr(message, name):
                if type(text) is not str:
                    raise ModelFileError(f"{_title(place)} holds text that is not UTF-8, in {name}")
        for name in fields.message:
            if message.HasField(name):
                pending.append((iter((getattr(message, name),)), depth + 1, place))
        for name in fields.messages:
            inner = getattr(message, name)
            if inner:
                pending.append((iter(inner), depth + 1, None if fields.holds_places else place))


def _refuse_unknown(message: Any, place: Any) -> None:
    numbers = sorted({field.field_number for field in UnknownFieldSet(message)})
    name = message.DESCRIPTOR.name
    fields = message.DESCRIPTOR.fields_by_number
    known = [fields[number].name for number in numbers if number in fields]
    if known:
        raise ModelFileError(
            f"{_title(place)} has a value of {known[0]} in {name} that the installed onnx does not define"
        )
    raise ModelFileError(
        f"{_title(place)} has the field {numbers[0]} in {name}, which the installed onnx does not define"
    )


def _title(place: Any) -> str:
    """A title for the node, tensor or value that contains a field."""
    if isinstance(place, onnx.NodeProto):
        return (
            node_title(place) if all(isinstance(t, str) for t in (place.op_type, *place.output)) else "a node"
        )
    kind = place.DESCRIPTOR.name.removesuffix("Proto").lower()
    return f"{kind} {quoted(place.name)}" if getattr(place, "name", "") else f"a {kind}"
