"""The variables of a checkpoint of either format by name, whole or in slices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from .....registration import ModelFileError
from ....files.reading.names import quoted
from ..element_types import numpy_type, type_name

MAXIMUM_RANK = 32
"""Maximum number of dimensions that every supported numpy allows."""
MAXIMUM_SLICES = 10_000
_MAXIMUM_ELEMENTS = 2**48

Region = tuple[tuple[int, int], ...]
"""The start and the length of each dimension."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A slice of a variable.

    Attributes:
        region: its position in the variable.
        read: reads its contents; a view of the file where possible.
    """

    region: Region
    read: Callable[[], np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a checkpoint; its contents are read when they are needed.

    Attributes:
        name: its key.
        dtype: the number of its element type.
        shape: its shape.
        parts: lists its slices.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    parts: Callable[[], Sequence[Part]]

    def read(self, region: Region | None = None) -> np.ndarray:
        """Read the contents, or those of a region. A single slice is not copied.

        Raises:
            ModelFileError: the file is damaged, or does not have the whole region.
        """
        requested = tuple((0, size) for size in self.shape) if region is None else region
        inside = len(requested) == len(self.shape) and all(
            start >= 0 and 0 <= length <= size - start
            for (start, length), size in zip(requested, self.shape, strict=True)
        )
        if not inside:
            raise ModelFileError(
                f"{self._label} has the shape {list(self.shape)}, which does not contain the slice "
                f"{list(requested)}"
            )
        parts = [part for part in self.parts() if _overlap(part.region, requested) is not None]
        for part in parts:
            if part.region == requested:
                return part.read()
        self._check_cover(parts, requested)
        # Read all slices before allocating the whole: a missing slice must not cost that memory.
        arrays = [part.read() for part in parts]
        contents = np.empty([length for _, length in requested], numpy_type(self.dtype))
        for part, array in zip(parts, arrays, strict=True):
            common = _overlap(part.region, requested)
            if common is not None:
                contents[_slices_within(common, requested)] = array[_slices_within(common, part.region)]
        contents.flags.writeable = False
        return contents

    def _check_cover(self, parts: Sequence[Part], requested: Region) -> None:
        """Refuse slices that overlap, or do not cover a region."""
        covered = sum(_volume(common) for part in parts if (common := _overlap(part.region, requested)))
        bounds = np.array([part.region for part in parts], np.int64).reshape(len(parts), len(requested), 2)
        starts, ends = bounds[:, :, 0], bounds.sum(axis=2)
        for index in range(1, len(parts)):
            meets = (starts[:index] < ends[index]) & (starts[index] < ends[:index])
            if meets.all(axis=1).any():
                raise ModelFileError(f"{self._label} has slices that overlap")
        # The slices do not overlap, so their volumes add up to that of their union.
        if covered != _volume(requested):
            raise ModelFileError(f"{self._label} is incomplete: the checkpoint lacks some of its slices")

    @property
    def _label(self) -> str:
        return f"variable {quoted(self.name)} of the checkpoint"


class Checkpoint(Mapping[str, Variable]):
    """The variables of a checkpoint by their keys, in their order.

    Attributes:
        path: the path that names it.
    """

    def __init__(self, path: str, variables: Mapping[str, Variable]):
        self.path = path
        self._variables = variables

    def __getitem__(self, name: str) -> Variable:
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


def check_shape(dtype: int, sizes: Sequence[int], unknown_rank: bool, label: str) -> tuple[int, ...]:
    """Check the shape and the element type that a checkpoint states for a variable; return the shape.

    Raises:
        ModelFileError: one of them is invalid.
    """
    if numpy_type(dtype) is None and type_name(dtype) not in ("DT_RESOURCE", "DT_VARIANT"):
        raise ModelFileError(
            f"{label} has {type_name(dtype)}, which cannot be the element type of a variable"
        )
    if unknown_rank or len(sizes) > MAXIMUM_RANK or min(sizes, default=0) < 0:
        raise ModelFileError(f"{label} must have a shape of at most {MAXIMUM_RANK} known sizes")
    if math.prod(size for size in sizes if size) >= _MAXIMUM_ELEMENTS:
        raise ModelFileError(f"{label} has sizes that exceed any memory")
    return tuple(sizes)


def _volume(region: Region) -> int:
    return math.prod(length for _, length in region)


def _overlap(first: Region, second: Region) -> Region | None:
    """The intersection of two regions, if it is not empty."""
    common = []
    for (start, length), (other_start, other_length) in zip(first, second, strict=True):
        begin, end = max(start, other_start), min(start + length, other_start + other_length)
        if begin >= end:
            return None
        common.append((begin, end - begin))
    return tuple(common)


def _slices_within(region: Region, outer: Region) -> tuple[slice, ...]:
    """The slices of a region within the array of a containing region."""
    return tuple(
        slice(start - outer_start, start - outer_start + length)
        for (start, length), (outer_start, _) in zip(region, outer, strict=True)
    )
