"""`MemoryDescriptor`: how oneDNN lays out a tensor in memory, as a value.

The blob is that of `dnnl_memory_desc_get_blob`: the image of oneDNN's own structure (oneDNN 3.x,
`src/common/memory_desc.hpp`), which has neither a version nor a checksum, and whose unused bytes are
arbitrary. Descriptors are handed to oneDNN of the version that made them, after all fields were checked.
"""

from __future__ import annotations

import dataclasses
import math
import struct

from ....registration import PrepackError

_MAXIMUM_RANK = 12
_BLOB = struct.Struct("<2i 12q i4x 12q 12q q i4x 12q i4x 12q 12q Q")
"""Kind, rank, sizes, element type, padded sizes, offsets of the padding, offset, kind of the format,
strides, number of blocks, their sizes and dimensions, and the flags of further properties."""
_SIZE = 768
_KIND, _BLOCKED = 1, 2
_ELEMENT_TYPES = {1: ("float16", 2), 2: ("bfloat16", 2), 3: ("float32", 4)}
"""Name and bytes of the element types, by oneDNN's number."""
_LARGEST = 2**48


@dataclasses.dataclass(frozen=True)
class MemoryDescriptor:
    """The layout of a packed tensor; equal layouts are equal, whatever bytes their blobs leave unused.

    Attributes:
        shape: the sizes of the tensor; grouped convolutions have the groups first.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`.
        padded_shape: the sizes in memory.
        strides: elements between blocks, per dimension.
        blocks: size and dimension of each inner block, outermost first.
    """

    shape: tuple[int, ...]
    dtype: str
    padded_shape: tuple[int, ...]
    strides: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]

    @property
    def nbytes(self) -> int:
        """The bytes of a tensor with this layout."""
        inner = [
            math.prod(size for size, axis in self.blocks if axis == dimension)
            for dimension in range(len(self.shape))
        ]
        outer = [padded // block for padded, block in zip(self.padded_shape, inner, strict=True)]
        last = sum((count - 1) * stride for count, stride in zip(outer, self.strides, strict=True))
        items = dict(_ELEMENT_TYPES.values())[self.dtype]
        return (last + math.prod(size for size, _ in self.blocks)) * items

    def to_blob(self) -> bytes:
        """The image of oneDNN's structure, with zeros where it leaves bytes unused."""
        number = next(key for key, (name, _) in _ELEMENT_TYPES.items() if name == self.dtype)
        zeros = (0,) * _MAXIMUM_RANK
        values = (
            *(
                _KIND,
                len(self.shape),
                *_pad_to_maximum_rank(self.shape),
                number,
                *_pad_to_maximum_rank(self.padded_shape),
                *zeros,
                0,
            ),
            *(_BLOCKED, *_pad_to_maximum_rank(self.strides), len(self.blocks)),
            *_pad_to_maximum_rank(tuple(size for size, _ in self.blocks)),
            *_pad_to_maximum_rank(tuple(axis for _, axis in self.blocks)),
            0,
        )
        # oneDNN's structure ends with fields for compensation, which are unused while the flags are 0.
        return _BLOB.pack(*values).ljust(_SIZE, b"\0")

    @classmethod
    def from_blob(cls, blob: bytes) -> MemoryDescriptor:
        """The descriptor of a blob from `to_blob` or `dnnl_memory_desc_get_blob`.

        Raises:
            PrepackError: it has another length, or is not the layout of a packed weight.
        """
        if not isinstance(blob, (bytes, bytearray, memoryview)) or len(blob) != _SIZE:
            actual = f"{len(blob)} bytes" if hasattr(blob, "__len__") else type(blob).__name__
            raise PrepackError(f"a memory descriptor's blob has {_SIZE} bytes, not {actual}")
        descriptor_kind, rank, *fields = _BLOB.unpack_from(blob)
        sizes, (number,), padded, offsets, (offset, form), strides, (count,), inner, axes, (flags,) = _split(
            fields
        )
        descriptor = cls(
            tuple(sizes[: max(rank, 0)]),
            _ELEMENT_TYPES.get(number, ("unknown", 0))[0],
            tuple(padded[: max(rank, 0)]),
            tuple(strides[: max(rank, 0)]),
            tuple(zip(inner[: max(count, 0)], axes[: max(count, 0)], strict=True)),
        )
        plain = (
            descriptor_kind == _KIND
            and form == _BLOCKED
            and not (flags or offset or any(offsets[: max(rank, 0)]))
        )
        if not (
            plain and 1 <= rank <= _MAXIMUM_RANK and 0 <= count <= _MAXIMUM_RANK and descriptor._is_valid()
        ):
            raise PrepackError("the blob is not the layout of a packed weight: pack the plain weight again")
        return descriptor

    def _is_valid(self) -> bool:
        rank = len(self.shape)
        if self.dtype == "unknown" or any(not (size > 0 and 0 <= axis < rank) for size, axis in self.blocks):
            return False
        if not all(0 < size < _LARGEST for size in (*self.shape, *self.padded_shape, *self.strides)):
            return False
        # A blob from a file is not trusted: its strides decide which memory oneDNN reads.
        if any(padded < size for size, padded in zip(self.shape, self.padded_shape, strict=True)):
            return False
        inner = [
            math.prod(size for size, axis in self.blocks if axis == dimension) for dimension in range(rank)
        ]
        whole = all(padded % block == 0 for padded, block in zip(self.padded_shape, inner, strict=True))
        return whole and self.nbytes < _LARGEST

    def __reduce__(self) -> tuple[object, ...]:
        return (MemoryDescriptor.from_blob, (self.to_blob(),))


def _pad_to_maximum_rank(values: tuple[int, ...]) -> tuple[int, ...]:
    return (*values, *(0,) * (_MAXIMUM_RANK - len(values)))


def _split(values: list[int]) -> list[list[int]]:
    """The fields of `_BLOB` after the rank."""
    fields, begin = [], 0
    for count in (12, 1, 12, 12, 2, 12, 1, 12, 12, 1):
        fields.append(values[begin : begin + count])
        begin += count
    return fields
