"""The variables of a checkpoint of either format by name, whole or in slices."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from .....registration import ModelFileError
from ....files.reading.names import quoted
from ..element_types import numpy_type, type_name
from ..tensor_protos import MAXIMUM_ELEMENTS, MAXIMUM_RANK

MAXIMUM_SLICES = 10_000

Region = tuple[tuple[int, int], ...]
"""The start and the length of each dimension."""


class Slices:
    """The slices of a variable, by their regions in it; `read` reads the contents of one by its number."""

    __slots__ = ("_ends", "_starts", "read")

    def __init__(self, regions: Sequence[Region] | np.ndarray, rank: int, read: Callable[[int], np.ndarray]):
        # Tuples of 32 dimensions take ten times the memory of the file.
        bounds = np.array(regions, np.int64).reshape(len(regions), rank, 2)
        self._starts, self._ends = bounds[:, :, 0], bounds.sum(axis=2)
        self.read = read

    def region(self, number: int) -> Region:
        """The place of a slice in the variable."""
        starts, ends = self._starts[number].tolist(), self._ends[number].tolist()
        return tuple((start, end - start) for start, end in zip(starts, ends, strict=True))

    def numbers_in(self, region: Region) -> np.ndarray:
        """The numbers of the slices that have elements of a region."""
        begins, ends = _limits(region)
        meets = np.maximum(self._starts, begins) < np.minimum(self._ends, ends)
        return np.flatnonzero(meets.all(axis=1))

    def number_of(self, region: Region, numbers: np.ndarray) -> int | None:
        """The one of some slices that is a region."""
        begins, ends = _limits(region)
        equal = (self._starts[numbers] == begins) & (self._ends[numbers] == ends)
        equal_numbers = numbers[equal.all(axis=1)]
        return int(equal_numbers[0]) if equal_numbers.size else None

    def covered(self, region: Region, numbers: np.ndarray) -> int:
        """The elements of a region that some slices have, if these do not overlap."""
        begins, ends = _limits(region)
        lengths = np.minimum(self._ends[numbers], ends) - np.maximum(self._starts[numbers], begins)
        return int(lengths.prod(axis=1).sum())

    def have_common_elements(self, numbers: np.ndarray) -> bool:
        """Whether two of some slices overlap."""
        starts, ends = self._starts[numbers].T, self._ends[numbers].T
        # In the order of the dimensions that tell most of them apart, few others are left after the first.
        order = sorted(range(len(starts)), key=lambda dim: -np.unique(starts[dim]).size)
        for index in range(1, len(numbers)):
            candidates = np.arange(index)
            for dim in order:
                meets = (starts[dim][candidates] < ends[dim][index]) & (
                    starts[dim][index] < ends[dim][candidates]
                )
                candidates = candidates[meets]
                if not candidates.size:
                    break
            if candidates.size:
                return True
        return False


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a checkpoint by its key; its contents are read when they are needed.

    Attributes:
        slices: makes the table of its slices.
        read_whole: reads its contents if they are stored as one; otherwise None.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    slices: Callable[[], Slices]
    read_whole: Callable[[], np.ndarray] | None = None

    def read(self, region: Region | None = None) -> np.ndarray:
        """Read the contents, or those of a region. A single slice is not copied.

        Raises:
            ModelFileError: the file is damaged, or does not have the whole region.
        """
        # Most variables are read whole, and a table of one slice takes longer than its contents.
        if region is None and self.read_whole is not None:
            return self.read_whole()
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
        slices = self.slices()
        numbers = slices.numbers_in(requested)
        whole = slices.number_of(requested, numbers)
        if whole is not None:
            return slices.read(whole)
        if slices.have_common_elements(numbers):
            raise ModelFileError(f"{self._label} has slices that overlap")
        if slices.covered(requested, numbers) != math.prod(length for _, length in requested):
            raise ModelFileError(f"{self._label} is incomplete: the checkpoint lacks some of its slices")
        # A slice that is not in the file is refused before there is memory for all.
        contents = [slices.read(int(number)) for number in numbers]
        contents_of_region = np.empty([length for _, length in requested], numpy_type(self.dtype))
        for number, part in zip(numbers, contents, strict=True):
            region = slices.region(number)
            common = _overlap(region, requested)
            contents_of_region[_slices_within(common, requested)] = part[_slices_within(common, region)]
        contents_of_region.flags.writeable = False
        return contents_of_region

    @property
    def _label(self) -> str:
        return f"variable {quoted(self.name)} of the checkpoint"


class Checkpoint(Mapping[str, Variable]):
    """The variables of a checkpoint by their keys, in their order; `path` is the one that names it."""

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
    """Check the shape and the element type that a checkpoint states for a variable; return the shape."""
    if numpy_type(dtype) is None and type_name(dtype) not in ("DT_RESOURCE", "DT_VARIANT"):
        raise ModelFileError(
            f"{label} has {type_name(dtype)}, which cannot be the element type of a variable"
        )
    if unknown_rank or len(sizes) > MAXIMUM_RANK or min(sizes, default=0) < 0:
        raise ModelFileError(f"{label} must have a shape of at most {MAXIMUM_RANK} known sizes")
    if math.prod(size for size in sizes if size) >= MAXIMUM_ELEMENTS:
        raise ModelFileError(f"{label} has sizes that exceed any memory")
    return tuple(sizes)


def _limits(region: Region) -> tuple[np.ndarray, np.ndarray]:
    """The first element of a region in each dimension, and the first after the last."""
    bounds = np.array(region, np.int64).reshape(len(region), 2)
    return bounds[:, 0], bounds.sum(axis=1)


def _overlap(first: Region, second: Region) -> Region:
    """The intersection of two regions, which is not empty."""
    common = []
    for (start, length), (other_start, other_length) in zip(first, second, strict=True):
        begin, end = max(start, other_start), min(start + length, other_start + other_length)
        common.append((begin, end - begin))
    return tuple(common)


def _slices_within(region: Region, outer: Region) -> tuple[slice, ...]:
    """The slices of a region within the array of a containing region."""
    return tuple(
        slice(start - outer_start, start - outer_start + length)
        for (start, length), (outer_start, _) in zip(region, outer, strict=True)
    )
