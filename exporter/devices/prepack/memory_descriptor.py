"""`MemoryDescriptor`: oneDNN's layout of a tensor in memory, as a Python value.

A blob has the format of `dnnl_memory_desc_get_blob`: the memory image of oneDNN's structure (oneDNN 3.x,
`src/common/memory_desc.hpp`). It has neither a version nor a checksum, and its unused bytes are arbitrary.
Descriptors are passed only to the oneDNN version that made them, after all fields were checked.
"""

from __future__ import annotations

import dataclasses
import math
import struct

from ....registration import PrepackError

_MAXIMUM_RANK = 12
_BLOB = struct.Struct("<2i 12q i4x 12q 12q q i4x 12q i4x 12q 12q Q")
"""Fields: kind, rank, sizes, element type, padded sizes, offsets of the padding, offset, kind of format,
strides, number of blocks, sizes of blocks, dimensions of blocks, and flags of further properties."""
_SIZE = 768
_KIND, _BLOCKED = 1, 2
_ELEMENT_TYPES = {1: ("float16", 2), 2: ("bfloat16", 2), 3: ("float32", 4)}
"""By oneDNN's number of an element type, its name and bytes."""
_LARGEST = 2**48


@dataclasses.dataclass(frozen=True)
class MemoryDescriptor:
    """The layout of a packed tensor; the unused bytes of blobs do not matter for equality.

    Attributes:
        shape: the sizes of the tensor; the weights of grouped convolutions have the groups first.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`.
        padded_shape: the sizes in memory, with padding.
        strides: for each dimension, the elements between blocks.
        blocks: (size, dimension) of each inner block, outermost first.
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
        """Return the image of oneDNN's structure, with zeros in unused bytes."""
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
        # The structure ends with fields for compensation, which are unused because the flags are 0.
        return _BLOB.pack(*values).ljust(_SIZE, b"\0")

    @classmethod
    def from_blob(cls, blob: bytes) -> MemoryDescriptor:
        """Read a descriptor from a blob of `to_blob` or `dnnl_memory_desc_get_blob`.

        Raises:
            PrepackError: the blob has another length, or is not the layout of a packed weight.
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
        # Blobs from files are not trusted, and the strides decide which memory oneDNN reads.
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
    """Split the numbers of `_BLOB` after the rank into its fields."""
    fields, begin = [], 0
    for count in (12, 1, 12, 12, 2, 12, 1, 12, 12, 1):
        fields.append(values[begin : begin + count])
        begin += count
    return fields
