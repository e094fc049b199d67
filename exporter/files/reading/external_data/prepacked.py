"""onnxruntime's entries for packed weights in the external data of a tensor.

`prepacked_0` has the value `kernel+hash|offset;size;checksum|…`: the kernel that packed the weight, a hash of
the result, and where its buffers are in the data file. The checksum is 0, and nothing reads it:
onnxruntime 1.32 compares the bytes with those that its kernel packs, and earlier versions compare nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

PREFIX = "prepacked"
NATIVE_DOMAIN = "com.microsoft.nchwc"
"""The domain of convolutions that onnxruntime laid out for one processor."""
_ENTRY = re.compile(r"[^|]+(\|[0-9]{1,15};[0-9]{1,15};[0-9]{1,20})+", re.ASCII)

PackedEntries = dict[str, dict[str, list[tuple[str, np.ndarray]]]]
"""Per weight and key of an entry, the kernel and the bytes of each buffer."""


def is_entry(value: str) -> bool:
    """Whether the value of an entry has the format that onnxruntime writes."""
    return _ENTRY.fullmatch(value) is not None


def parse_entry(value: str) -> Iterator[tuple[str, int, int]]:
    """The kernel, offset and size in bytes of each buffer of an entry."""
    kernel, *buffers = value.split("|")
    for buffer in buffers:
        offset, size, _ = buffer.split(";")
        yield kernel, int(offset), int(size)


def format_entry(buffers: Iterable[tuple[str, int, int]]) -> str:
    """The value of an entry: the reverse of `parse_entry`."""
    all_buffers = list(buffers)
    return "|".join([all_buffers[0][0], *(f"{offset};{size};0" for _, offset, size in all_buffers)])
