"""Decompresses the Snappy blocks that a table may have. TensorFlow itself writes none, so few files do.

The format is a length, then elements: literal bytes, and copies of bytes that were decompressed before.
"""

from ....files.reading.encodings.wire import varint

_MOST_PER_BYTE = 22
"""Maximum number of bytes that one compressed byte expands to: three bytes copy up to 64."""


class BadBlock(Exception):
    """The bytes are not a Snappy block."""


def decompress(data: memoryview, most: int) -> bytearray | None:
    """The contents of a block; None if they have more than `most` bytes."""
    size, position = varint(data, 0, len(data))
    # Refuse before allocating what a malformed length asks for.
    if position < 0 or size > _MOST_PER_BYTE * len(data):
        raise BadBlock
    if size > most:
        return None
    contents = bytearray()
    while position < len(data):
        tag = data[position]
        tag_type, upper = tag & 3, tag >> 2
        position += 1
        if tag_type == 0:
            length_bytes = max(0, upper - 59)
            length = 1 + (
                int.from_bytes(data[position : position + length_bytes], "little") if length_bytes else upper
            )
            position += length_bytes
            if length > min(size - len(contents), len(data) - position):
                raise BadBlock
            contents += data[position : position + length]
            position += length
            continue
        length_bytes = (1, 2, 4)[tag_type - 1]
        distance = int.from_bytes(data[position : position + length_bytes], "little")
        length = upper + 1
        if tag_type == 1:
            distance, length = distance | upper >> 3 << 8, (upper & 7) + 4
        position += length_bytes
        if position > len(data) or not 0 < distance <= len(contents) or length > size - len(contents):
            raise BadBlock
        start = len(contents) - distance
        # A copy may overlap the bytes that it writes: it then repeats the last `distance` bytes.
        contents += (
            (contents[start:] * (length // distance + 1))[:length]
            if distance < length
            else (contents[start : start + length])
        )
    if len(contents) != size:
        raise BadBlock
    return contents
