"""Parses the messages of a checkpoint's tables, within the bounds of files."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from .....registration import ModelFileError
from ....files.reading.encodings import wire
from ..messages import message_type
from .variables import Region


def parsed(name: str, data: bytes | memoryview, shown: str) -> Any:
    """A message, by the name of its type.

    Raises:
        ModelFileError: the bytes are not such a message, or it takes too much memory.
    """
    message = message_type(name)()
    held = bytes(data)
    try:
        wire.check(held, memory=_memory(name))
        message.ParseFromString(held)
    except wire.BoundError as error:
        raise ModelFileError(f"{shown} cannot be read: {error}") from None
    except DecodeError:
        raise ModelFileError(f"{shown} is damaged: an entry is not a protobuf message") from None
    return message


@functools.cache
def _memory(name: str) -> wire.MessageMemory:
    return wire.MessageMemory(message_type(name).DESCRIPTOR)


def extents_of(message: Any) -> list[tuple[int, int]]:
    """The start and the length of each dimension of a TensorSliceProto; (0, -1) is the whole dimension."""
    return [(e.start, e.length if e.WhichOneof("has_length_hack") else -1) for e in message.extent]


def region_of(extents: Sequence[tuple[int, int]], shape: tuple[int, ...], shown: str) -> Region:
    """The region of extents, of which a length of -1 stands for the whole dimension.

    Raises:
        ModelFileError: it is not within the shape.
    """
    region = []
    if len(extents) == len(shape):
        for (start, length), size in zip(extents, shape, strict=True):
            region.append((start, size - start if length < 0 else length))
    if len(region) != len(shape) or any(
        start < 0 or length < 0 or start + length > size
        for (start, length), size in zip(region, shape, strict=True)
    ):
        raise ModelFileError(f"{shown} has a slice {list(extents)} outside of its shape {list(shape)}")
    return tuple(region)
