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
_BLOB = struct.Struct("<2i 12q i4x 12q 12q q i4x 12q i4x 12q 12q")
"""Fields: kind, rank, sizes, element type, padded sizes, offsets of the padding, offset, kind of format,
strides, number of blocks, sizes of blocks, and dimensions of blocks."""
_COMPENSATION = struct.Struct("<Q i f i")
"""The fields of `Compensation`, in its order."""
_COMPENSATION_OFFSET = 640
_SIZE = 768
_KIND, _BLOCKED = 1, 2
_SIGNED_INPUTS, _SCALED, _ZERO_POINT = 1, 2, 8
_SUM_BYTES = 4
_ELEMENT_TYPES = {1: ("float16", 2), 2: ("bfloat16", 2), 3: ("float32", 4), 5: ("int8", 1)}
"""By oneDNN's number of an element type, its name and bytes."""
_LARGEST = 2**48


@dataclasses.dataclass(frozen=True)
class Compensation:
    """Sums over an 8-bit weight, which oneDNN stores behind it and subtracts from the products.

    Attributes:
        flags: the sum of 1 for sums for signed 8-bit inputs, 2 for a weight that is multiplied by `scale`,
            and 8 for sums for inputs with a zero point.
        signed_mask: for signed inputs, the dimensions whose indices have sums of their own, as bits.
        scale: the factor of the stored weight.
        zero_point_mask: the same as `signed_mask`, for inputs with a zero point.
    """

    flags: int
    signed_mask: int
    scale: float
    zero_point_mask: int


@dataclasses.dataclass(frozen=True)
class MemoryDescriptor:
    """The layout of a packed tensor; the unused bytes of blobs do not matter for equality.

    Attributes:
        shape: the sizes of the tensor; the weights of grouped convolutions have the groups first.
        dtype: `"float32"`, `"bfloat16"`, `"float16"` or `"int8"`.
        padded_shape: the sizes in memory, with padding.
        strides: for each dimension, the elements between blocks.
        blocks: (size, dimension) of each inner block, outermost first.
        compensation: the sums behind an 8-bit weight; None without any.
    """

    shape: tuple[int, ...]
    dtype: str
    padded_shape: tuple[int, ...]
    strides: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]
    compensation: Compensation | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of a tensor with this layout, and of the sums behind it."""
        inner = [
            math.prod(size for size, axis in self.blocks if axis == dimension)
            for dimension in range(len(self.shape))
        ]
        outer = [padded // block for padded, block in zip(self.padded_shape, inner, strict=True)]
        last = sum((count - 1) * stride for count, stride in zip(outer, self.strides, strict=True))
        items = dict(_ELEMENT_TYPES.values())[self.dtype]
        return (last + math.prod(size for size, _ in self.blocks)) * items + self._bytes_of_sums

    @property
    def _bytes_of_sums(self) -> int:
        sums = self.compensation
        if sums is None:
            return 0
        masks = {_SIGNED_INPUTS: sums.signed_mask, _ZERO_POINT: sums.zero_point_mask}
        return _SUM_BYTES * sum(
            math.prod(size for axis, size in enumerate(self.padded_shape) if mask >> axis & 1)
            for flag, mask in masks.items()
            if sums.flags & flag
        )

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
        )
        start = _BLOB.pack(*values).ljust(_COMPENSATION_OFFSET, b"\0")
        sums = (
            b"" if self.compensation is None else _COMPENSATION.pack(*dataclasses.astuple(self.compensation))
        )
        return (start + sums).ljust(_SIZE, b"\0")

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
        sizes, (number,), padded, offsets, (offset, form), strides, (count,), inner, axes = _split(fields)
        flags, signed_mask, scale, zero_point_mask = _COMPENSATION.unpack_from(blob, _COMPENSATION_OFFSET)
        # Fields without their flag are arbitrary.
        sums = Compensation(
            flags,
            signed_mask if flags & _SIGNED_INPUTS else 0,
            scale if flags & _SCALED else 0.0,
            zero_point_mask if flags & _ZERO_POINT else 0,
        )
        descriptor = cls(
            tuple(sizes[: max(rank, 0)]),
            _ELEMENT_TYPES.get(number, ("unknown", 0))[0],
            tuple(padded[: max(rank, 0)]),
            tuple(strides[: max(rank, 0)]),
            tuple(zip(inner[: max(count, 0)], axes[: max(count, 0)], strict=True)),
            sums if flags else None,
        )
        plain = descriptor_kind == _KIND and form == _BLOCKED and not (offset or any(offsets[: max(rank, 0)]))
        if not (
            plain and 1 <= rank <= _MAXIMUM_RANK and 0 <= count <= _MAXIMUM_RANK and descriptor._is_valid()
        ):
            raise PrepackError("the blob is not the layout of a packed weight: pack the plain weight again")
        return descriptor

    def _is_valid(self) -> bool:
        rank = len(self.shape)
        sums = self.compensation
        if sums is not None:
            known_flags = _SIGNED_INPUTS | _SCALED | _ZERO_POINT
            masks = (sums.signed_mask, sums.zero_point_mask)
            if (
                self.dtype != "int8"
                or sums.flags & ~known_flags
                or not all(0 <= m < 1 << rank for m in masks)
            ):
                return False
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
    for count in (12, 1, 12, 12, 2, 12, 1, 12, 12):
        fields.append(values[begin : begin + count])
        begin += count
    return fields
