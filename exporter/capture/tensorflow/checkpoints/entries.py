"""Parses the messages in the tables of a checkpoint, within the bounds that hold for files."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from .....registration import ModelFileError
from ....files.reading.encodings import wire
from ..messages import TensorSliceProto, memory_of, message_type
from .variables import Region


def parse_message(name: str, data: bytes | memoryview, label: str) -> Any:
    """Parse a message of the type with this name."""
    message = message_type(name)()
    content = bytes(data)
    try:
        wire.check(content, memory=memory_of(name))
        message.ParseFromString(content)
    except wire.BoundError as error:
        raise ModelFileError(f"{label} cannot be read: {error}") from None
    except DecodeError:
        raise ModelFileError(f"{label} is damaged: an entry is not a protobuf message") from None
    return message


def extents_of(message: TensorSliceProto) -> list[tuple[int, int]]:
    """The start and the length of each dimension of a TensorSliceProto; (0, -1) is the whole dimension."""
    return [(e.start, e.length if e.WhichOneof("has_length_hack") else -1) for e in message.extent]


def region_of(extents: Sequence[tuple[int, int]], shape: tuple[int, ...], label: str) -> Region:
    """The region that extents describe; a length of -1 is the whole dimension."""
    region = []
    if len(extents) == len(shape):
        for (start, length), size in zip(extents, shape, strict=True):
            region.append((start, size - start if length < 0 else length))
    if len(region) != len(shape) or any(
        start < 0 or length < 0 or start + length > size
        for (start, length), size in zip(region, shape, strict=True)
    ):
        raise ModelFileError(f"{label} has a slice {list(extents)} outside of its shape {list(shape)}")
    return tuple(region)
