"""Reads a sorted table of keys and values: the file format of LevelDB, which checkpoints use.

A table ends with a footer: the handles (offset and size) of two blocks, and a magic number. The second block
is the index. Its values are the handles of the blocks with the entries. The key of an entry omits the bytes
that it shares with the key before it. A trailer after each block has its compression and its checksum.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .....registration import ModelFileError
from ....files.reading import REMEDY
from ....files.reading.encodings.wire import varint
from .checksums import crc32c, unmask_checksum
from .snappy import BadBlock, decompress

MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
"""Bytes after a block: one for the compression, four for the checksum."""
_PLAIN, _SNAPPY = 0, 1
_KEY_BYTES, _KEY_BYTES_PER_BYTE = 1 << 26, 16
"""Maximum bytes of all keys together: a fixed number, and more for each byte of the file. TensorFlow writes a
whole key after every 16 keys that omit what they share.
"""
_DECOMPRESSED, _DECOMPRESSED_PER_BYTE = 1 << 25, 2
"""Bound on the bytes of all blocks after they are decompressed: TensorFlow compresses none."""


class _BlockHandle(NamedTuple):
    """The offset and the size of a block, without its trailer."""

    offset: int
    size: int


class SortedTable:
    """A table in memory or in a mapped file, to be read once; `label` names it in error messages."""

    def __init__(self, data: np.ndarray, label: str, maximum_entries: int = sys.maxsize):
        self._data = data.data
        self._label = label
        self._maximum_entries = maximum_entries
        self._decompressed = self._count = self._key_bytes = 0
        self._maximum_key_bytes = _KEY_BYTES + _KEY_BYTES_PER_BYTE * len(self._data)
        footer = bytes(self._data[-_FOOTER:])
        if len(footer) < _FOOTER or not footer.endswith(MAGIC):
            raise ModelFileError(f"{label} is not a checkpoint: it does not end with the footer of a table")
        _, position = self._read_handle(footer, 0)
        self._index, _ = self._read_handle(footer, position)

    def __iter__(self) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the keys in order, and their values, which are parts of the file."""
        last, end = None, 0
        for _, value in self._entries(self._block(self._index)):
            handle, _ = self._read_handle(value, 0)
            # Overlapping blocks would let a small file yield any number of entries.
            if handle.offset < end:
                raise self._damage_error("its blocks overlap or are out of order")
            end = handle.offset + handle.size + _TRAILER
            for key, entry_value in self._entries(self._block(handle)):
                # Equal keys would let the later entry replace the earlier one silently.
                if last is not None and key <= last:
                    raise self._damage_error("its keys are not in order")
                last = key
                yield key, entry_value

    def _block(self, handle: _BlockHandle) -> memoryview:
        """Return the contents of a block after verifying its checksum."""
        end = handle.offset + handle.size
        if end + _TRAILER > len(self._data) - _FOOTER:
            raise self._damage_error("a block is outside of the file")
        trailer = self._data[end : end + _TRAILER]
        if crc32c(self._data[handle.offset : end + 1]) != unmask_checksum(
            int.from_bytes(trailer[1:], "little")
        ):
            raise self._damage_error("the checksum of a block does not match")
        contents = self._data[handle.offset : end]
        if trailer[0] == _PLAIN:
            return contents
        if trailer[0] != _SNAPPY:
            raise self._damage_error(f"a block has the compression {trailer[0]}, which is unknown")
        allowed = _DECOMPRESSED + _DECOMPRESSED_PER_BYTE * len(self._data)
        try:
            block = decompress(contents, allowed - self._decompressed)
        except BadBlock:
            raise self._damage_error("a block cannot be decompressed") from None
        if block is None:
            raise ModelFileError(
                f"{self._label} cannot be read: it decompresses to more than {allowed} bytes"
            )
        self._decompressed += len(block)
        return memoryview(block).toreadonly()

    def _entries(self, block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the entries of a block. The offsets at its end serve a binary search, and are skipped."""
        restarts = int.from_bytes(block[-4:], "little") if len(block) >= 4 else 0
        # The offsets and their number are at the end of the block, four bytes each.
        end = len(block) - 4 * (restarts + 1)
        if end < 0 or not restarts:
            raise self._damage_error("a block has a malformed end")
        position, key = 0, b""
        while position < end:
            (shared_length, own_length, size), position = _read_numbers(block, position, 3)
            if position < 0 or shared_length > len(key) or own_length + size > end - position:
                raise self._damage_error("an entry is malformed")
            key = key[:shared_length] + bytes(block[position : position + own_length])
            position += own_length
            self._count += 1
            self._key_bytes += len(key)
            if self._count > self._maximum_entries:
                raise ModelFileError(
                    f"{self._label} cannot be read: it has more than {self._maximum_entries} entries, the "
                    f"limit for its files; {REMEDY}"
                )
            if self._key_bytes > self._maximum_key_bytes:
                raise ModelFileError(
                    f"{self._label} cannot be read: its keys have more than {self._maximum_key_bytes} bytes"
                )
            yield key, block[position : position + size]
            position += size

    def _read_handle(self, data: bytes | memoryview, position: int) -> tuple[_BlockHandle, int]:
        """Read the handle of a block; return it with the position after it."""
        (offset, size), position = _read_numbers(data, position, 2)
        if position < 0:
            raise self._damage_error("the offset or size of a block is malformed")
        return _BlockHandle(offset, size), position

    def _damage_error(self, reason: str) -> ModelFileError:
        return ModelFileError(f"{self._label} is damaged: {reason}")


def _read_numbers(data: bytes | memoryview, position: int, count: int) -> tuple[list[int], int]:
    """Read integers in base 128; return them with the position after them, or -1 if they are truncated."""
    numbers = [0] * count
    for index in range(count):
        numbers[index], position = varint(data, position, len(data))
        if position < 0:
            break
    return numbers, position
