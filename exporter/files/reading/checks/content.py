"""Checks a message for fields that onnx does not define and for text that is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import onnx
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from .....registration import ModelFileError
from ..encodings.wire import is_list
from ..names import node_title, quoted

MAXIMUM_DEPTH = 100
"""Bound on the nesting of messages."""


class _Fields(NamedTuple):
    """The fields of a message type, and whether errors name the parts of its instances."""

    text: tuple[str, ...]
    texts: tuple[str, ...]
    message: tuple[str, ...]
    messages: tuple[str, ...]
    has_named_parts: bool


def _fields(descriptor: Descriptor, fields_by_type: dict[str, _Fields]) -> dict[str, _Fields]:
    """The fields of every message type that a message type can contain, by name."""
    if descriptor.full_name not in fields_by_type:
        inner = [field for field in descriptor.fields if field.message_type is not None]
        texts = [field for field in descriptor.fields if field.type == field.TYPE_STRING]
        fields_by_type[descriptor.full_name] = _Fields(
            text=tuple(field.name for field in texts if not is_list(field)),
            texts=tuple(field.name for field in texts if is_list(field)),
            message=tuple(field.name for field in inner if not is_list(field)),
            messages=tuple(field.name for field in inner if is_list(field)),
            has_named_parts=descriptor.name in ("ModelProto", "GraphProto", "FunctionProto"),
        )
        for field in inner:
            _fields(field.message_type, fields_by_type)
    return fields_by_type


_FIELDS_BY_TYPE = _fields(onnx.ModelProto.DESCRIPTOR, {})
_BY_CLASS: dict[type, _Fields] = {}


def text_of(text: str | bytes, where: str) -> str:
    """Return a text field of a message, which protobuf returns as bytes if it is not UTF-8.

    Raises:
        ModelFileError: it is not UTF-8. The message begins with `where`.
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
    # Visit a list of messages one by one: pushing all of them at once would take more memory than the model.
    pending: list[tuple[Iterator[Message], int, Message | None]] = [(iter((model,)), 0, model)]
    while pending:
        messages, depth, outer = pending[-1]
        message = next(messages, None)
        if message is None:
            pending.pop()
            continue
        subject = message if outer is None else outer
        if unknown and len(UnknownFieldSet(message)):
            _refuse_unknown(message, subject)
        if depth > MAXIMUM_DEPTH:
            raise ModelFileError(f"its messages are nested more than {MAXIMUM_DEPTH} deep")
        message_class = type(message)
        fields = _BY_CLASS.get(message_class)
        if fields is None:
            fields = _BY_CLASS[message_class] = _FIELDS_BY_TYPE[message.DESCRIPTOR.full_name]
        # protobuf gives text that is not UTF-8 as bytes.
        for name in fields.text:
            if type(getattr(message, name)) is not str:
                raise ModelFileError(f"{_title(subject)} holds text that is not UTF-8, in {name}")
        for name in fields.texts:
            for text in getattr(message, name):
                if type(text) is not str:
                    raise ModelFileError(f"{_title(subject)} holds text that is not UTF-8, in {name}")
        for name in fields.message:
            if message.HasField(name):
                pending.append((iter((getattr(message, name),)), depth + 1, subject))
        for name in fields.messages:
            inner = getattr(message, name)
            if inner:
                pending.append((iter(inner), depth + 1, None if fields.has_named_parts else subject))


def _refuse_unknown(message: Message, subject: Message) -> None:
    numbers = sorted({field.field_number for field in UnknownFieldSet(message)})
    name = message.DESCRIPTOR.name
    fields = message.DESCRIPTOR.fields_by_number
    defined_fields = [fields[number].name for number in numbers if number in fields]
    if defined_fields:
        raise ModelFileError(
            f"{_title(subject)} has a value of {defined_fields[0]} in {name} that the installed onnx "
            "does not define"
        )
    raise ModelFileError(
        f"{_title(subject)} has the field {numbers[0]} in {name}, which the installed onnx does not define"
    )


def _title(subject: Message) -> str:
    """A title for the node, tensor or value that contains a field."""
    if isinstance(subject, onnx.NodeProto):
        return (
            node_title(subject)
            if all(isinstance(t, str) for t in (subject.op_type, *subject.output))
            else "a node"
        )
    noun = subject.DESCRIPTOR.name.removesuffix("Proto").lower()
    return f"{noun} {quoted(subject.name)}" if getattr(subject, "name", "") else f"a {noun}"
