"""Reads a checkpoint of format V1: one table, or several, whose entries have the contents of variables.

The entry of the empty key lists the variables and their slices. The contents of a slice are a message.
"""

from __future__ import annotations

import array
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from .....registration import ModelFileError
from ....files.reading.names import quoted
from ..tensors import array_of, repeated_bytes
from .entries import extents_of, parsed, region_of
from .slice_keys import slice_key
from .sorted_table import SortedTable
from .variables import MOST_SLICES, Region, Slices, Variable, checked_shape

_VERSION = 1
"""The version of the format that this reader reads."""


def read_tables(tables: Mapping[str, np.ndarray]) -> dict[str, Variable]:
    """The variables of a checkpoint.

    Args:
        tables: the bytes of its files, by name.

    Raises:
        ModelFileError: a file is damaged, or two disagree on a variable.
    """
    found: dict[str, _Sliced] = {}
    for name, data in tables.items():
        shown = f"the checkpoint {quoted(name)}"
        entries = iter(SortedTable(data, shown))
        key, value = next(entries, (b"?", memoryview(b"")))
        if key:
            raise ModelFileError(f"{shown} is damaged: it has no list of variables")
        meta = parsed("SavedTensorSlices", value, shown).meta
        if meta.versions.min_consumer > _VERSION:
            raise ModelFileError(
                f"{shown} cannot be read: its format has version {meta.versions.min_consumer}"
            )
        values = dict(entries)
        for message in meta.tensor:
            _add(found, message, values, f"variable {quoted(message.name)} of {shown}")
    return {
        name: sliced.variable(name, f"variable {quoted(name)} of the checkpoint")
        for name, sliced in found.items()
    }


class _Sliced:
    """The slices of a variable, from all files."""

    def __init__(self, dtype: int, shape: tuple[int, ...]):
        self.dtype, self.shape = dtype, shape
        self.regions = array.array("q")
        self.values: list[memoryview] = []

    def variable(self, name: str, shown: str) -> Variable:
        return Variable(name, self.dtype, self.shape, lambda: self._slices(shown))

    def _slices(self, shown: str) -> Slices:
        regions = np.frombuffer(self.regions, np.int64) if self.regions else np.empty(0, np.int64)
        regions = regions.reshape(len(self.values), len(self.shape), 2)

        def read(number: int) -> np.ndarray:
            region = tuple(map(tuple, regions[number].tolist()))
            return _contents(self.values[number], self.dtype, region, shown)

        return Slices(regions, len(self.shape), read)


def _add(found: dict[str, _Sliced], message: Any, values: Mapping[bytes, memoryview], shown: str) -> None:
    sizes = [dim.size for dim in message.shape.dim]
    shape = checked_shape(message.type, sizes, message.shape.unknown_rank, shown)
    sliced = found.setdefault(message.name, _Sliced(message.type, shape))
    if (sliced.dtype, sliced.shape) != (message.type, shape):
        raise ModelFileError(f"{shown} has different types or shapes in different files")
    if len(sliced.values) + len(message.slice) > MOST_SLICES:
        raise ModelFileError(f"{shown} has more than {MOST_SLICES} slices")
    for piece in message.slice:
        extents = extents_of(piece)
        region = region_of(extents, shape, shown)
        value = values.get(slice_key(message.name, extents))
        if value is None:
            raise ModelFileError(f"{shown} has no contents for its slice {list(region)}")
        sliced.regions.extend(itertools.chain.from_iterable(region))
        sliced.values.append(value)


def _contents(value: memoryview, dtype: int, region: Region, shown: str) -> np.ndarray:
    """The contents of a slice.

    Raises:
        ModelFileError: they are not elements of the type, as many as the slice has.
    """
    tensor = parsed("SavedTensorSlices", value, shown).data.data
    tensor.dtype = dtype
    tensor.tensor_shape.Clear()
    for _, length in region:
        tensor.tensor_shape.dim.add(size=length)
    if repeated_bytes(tensor, shown):
        raise ModelFileError(f"{shown} is damaged: its slice {list(region)} lacks elements")
    return array_of(tensor, shown)
