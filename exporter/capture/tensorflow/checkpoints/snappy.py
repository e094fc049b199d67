"""Decompresses the Snappy blocks that a table may have. TensorFlow writes none, so few files need it.

The format is a length, then elements: literal bytes, and copies of what was decompressed before.
"""

from __future__ import annotations

from ....files.reading.encodings.wire import varint

_MOST_PER_BYTE = 22
"""Bytes that one compressed byte can become: three bytes copy up to 64."""


class BadBlock(Exception):
    """The bytes are not a Snappy block."""


def decompress(data: memoryview, most: int) -> bytearray | None:
    """The contents of a block; None if they have more than `most` bytes.

    Raises:
        BadBlock: it is malformed.
    """
    size, position = varint(data, 0, len(data))
    if position < 0 or size > _MOST_PER_BYTE * len(data):
        raise BadBlock
    if size > most:
        return None
    found = bytearray()
    while position < len(data):
        tag = data[position]
        kind, upper = tag & 3, tag >> 2
        position += 1
        if kind == 0:
            extra = max(0, upper - 59)
            length = 1 + (int.from_bytes(data[position : position + extra], "little") if extra else upper)
            position += extra
            if length > min(size - len(found), len(data) - position):
                raise BadBlock
            found += data[position : position + length]
            position += length
            continue
        extra = (1, 2, 4)[kind - 1]
        distance = int.from_bytes(data[position : position + extra], "little")
        length = upper + 1
        if kind == 1:
            distance, length = distance | upper >> 3 << 8, (upper & 7) + 4
        position += extra
        if position > len(data) or not 0 < distance <= len(found) or length > size - len(found):
            raise BadBlock
        start = len(found) - distance
        # A copy may overlap what it writes: it then repeats the last `distance` bytes.
        found += (
            (found[start:] * (length // distance + 1))[:length]
            if distance < length
            else (found[start : start + length])
        )
    if len(found) != size:
        raise BadBlock
    return found
