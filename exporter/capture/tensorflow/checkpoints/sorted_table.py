"""Reads a sorted table of keys and values, the file format of LevelDB, which checkpoints have.

A table ends with a footer: two places of blocks and a magic number. The second block is the index. Its values
are the places of the blocks that hold the entries. The key of an entry leaves out the bytes that it shares
with the key before it. Each block is followed by its compression and its checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .....registration import ModelFileError
from ....files.reading.encodings.wire import varint
from .checksums import crc32c, unmasked
from .snappy import BadBlock, decompress

MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
"""Bytes after a block: one for the compression, four for the checksum."""
_PLAIN, _SNAPPY = 0, 1
MOST_ENTRIES = 120_000
"""Entries of a table; each takes up to a thousand bytes in memory."""
_KEY_BYTES, _KEY_BYTES_PER_BYTE = 1 << 26, 16
"""Bound on the bytes of all keys: a fixed number, and more for each byte of the file. TensorFlow writes a
whole key after 16 that leave out what they share.
"""
_DECOMPRESSED, _DECOMPRESSED_PER_BYTE = 1 << 25, 2
"""Bound on the bytes of all blocks after they are decompressed: TensorFlow compresses none."""


class _Place(NamedTuple):
    """A block's position and size, without the trailer."""

    offset: int
    size: int


class SortedTable:
    """A table in memory or in a mapped file, to be read once.

    Args:
        data: its bytes.
        shown: its name in error messages.

    Raises:
        ModelFileError: it is not a table.
    """

    def __init__(self, data: np.ndarray, shown: str):
        self._data = data.data
        self._shown = shown
        self._decompressed = self._count = self._key_bytes = 0
        self._allowed = _KEY_BYTES + _KEY_BYTES_PER_BYTE * len(self._data)
        footer = bytes(self._data[-_FOOTER:])
        if len(footer) < _FOOTER or not footer.endswith(MAGIC):
            raise ModelFileError(f"{shown} is not a checkpoint: it does not end with the footer of a table")
        _, position = self._place(footer, 0)
        self._index, _ = self._place(footer, position)

    def __iter__(self) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the keys in order, and their values, which are parts of the file.

        Raises:
            ModelFileError: the table is malformed, a checksum does not match, or there are too many entries.
        """
        last, end = None, 0
        for _, value in self._entries(self._block(self._index)):
            place, _ = self._place(value, 0)
            if place.offset < end:
                raise self._damaged("its blocks overlap or are out of order")
            end = place.offset + place.size + _TRAILER
            for key, held in self._entries(self._block(place)):
                if last is not None and key <= last:
                    raise self._damaged("its keys are not in order")
                last = key
                yield key, held

    def _block(self, place: _Place) -> memoryview:
        """The contents of a block, whose checksum is compared."""
        end = place.offset + place.size
        if end + _TRAILER > len(self._data) - _FOOTER:
            raise self._damaged("a block is outside of the file")
        trailer = self._data[end : end + _TRAILER]
        if crc32c(self._data[place.offset : end + 1]) != unmasked(int.from_bytes(trailer[1:], "little")):
            raise self._damaged("the checksum of a block does not match")
        contents = self._data[place.offset : end]
        if trailer[0] == _PLAIN:
            return contents
        if trailer[0] != _SNAPPY:
            raise self._damaged(f"a block has the compression {trailer[0]}, which is unknown")
        allowed = _DECOMPRESSED + _DECOMPRESSED_PER_BYTE * len(self._data)
        try:
            block = decompress(contents, allowed - self._decompressed)
        except BadBlock:
            raise self._damaged("a block cannot be decompressed") from None
        if block is None:
            raise ModelFileError(
                f"{self._shown} cannot be read: it decompresses to more than {allowed} bytes"
            )
        self._decompressed += len(block)
        return memoryview(block).toreadonly()

    def _entries(self, block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
        """The entries of a block. The positions of whole keys at its end serve a search only."""
        restarts = int.from_bytes(block[-4:], "little") if len(block) >= 4 else 0
        end = len(block) - 4 * (restarts + 1)
        if end < 0 or not restarts:
            raise self._damaged("a block has a malformed end")
        position, key = 0, b""
        while position < end:
            (shared, own, size), position = _numbers(block, position, 3)
            if position < 0 or shared > len(key) or own + size > end - position:
                raise self._damaged("an entry is malformed")
            key = key[:shared] + bytes(block[position : position + own])
            position += own
            self._count += 1
            self._key_bytes += len(key)
            if self._count > MOST_ENTRIES or self._key_bytes > self._allowed:
                raise ModelFileError(
                    f"{self._shown} cannot be read: it has more than {MOST_ENTRIES} entries, or its keys "
                    "have "
                    f"more than {self._allowed} bytes"
                )
            yield key, block[position : position + size]
            position += size

    def _place(self, data: bytes | memoryview, position: int) -> tuple[_Place, int]:
        """The place of a block, and the position after it."""
        (offset, size), position = _numbers(data, position, 2)
        if position < 0:
            raise self._damaged("the offset or size of a block is malformed")
        return _Place(offset, size), position

    def _damaged(self, reason: str) -> ModelFileError:
        return ModelFileError(f"{self._shown} is damaged: {reason}")


def _numbers(data: bytes | memoryview, position: int, count: int) -> tuple[list[int], int]:
    """Integers in base 128 from a position on, and the position after them; -1 if they do not end."""
    found = [0] * count
    for index in range(count):
        found[index], position = varint(data, position, len(data))
        if position < 0:
            break
    return found, position
