"""Reads a checkpoint of format V1: one table, or several, whose entries have the contents of variables.

The entry with the empty key lists the variables and their slices. The contents of a slice are a message.
"""

import array
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from .....registration import ModelFileError
from ....files.reading.names import quoted
from ..tensor_protos import array_of, repeated_bytes
from .entries import extents_of, parse_message, region_of
from .slice_keys import slice_key
from .sorted_table import SortedTable
from .variables import MAXIMUM_SLICES, Region, Slices, Variable, check_shape

_VERSION = 1
"""The version of the format that this reader reads."""


def read_tables(tables: Mapping[str, np.ndarray], maximum_entries: int) -> dict[str, Variable]:
    """The variables of a checkpoint, from the bytes of its files by name."""
    variables: dict[str, _SlicedVariable] = {}
    for name, data in tables.items():
        label = f"the checkpoint {quoted(name)}"
        entries = iter(SortedTable(data, label, maximum_entries))
        key, value = next(entries, (b"?", memoryview(b"")))
        if key:
            raise ModelFileError(f"{label} is damaged: it has no list of variables")
        meta = parse_message("SavedTensorSlices", value, label).meta
        if meta.versions.min_consumer > _VERSION:
            raise ModelFileError(
                f"{label} cannot be read: its format has version {meta.versions.min_consumer}"
            )
        values = dict(entries)
        maximum_entries -= len(values)
        for message in meta.tensor:
            _add_slices(variables, message, values, f"variable {quoted(message.name)} of {label}")
    return {
        name: sliced.variable(name, f"variable {quoted(name)} of the checkpoint")
        for name, sliced in variables.items()
    }


class _SlicedVariable:
    """The slices of a variable, from all files."""

    def __init__(self, dtype: int, shape: tuple[int, ...]):
        self.dtype, self.shape = dtype, shape
        self.regions = array.array("q")
        self.values: list[memoryview] = []

    def variable(self, name: str, printable_name: str) -> Variable:
        return Variable(name, self.dtype, self.shape, lambda: self._slices(printable_name))

    def _slices(self, printable_name: str) -> Slices:
        regions = np.frombuffer(self.regions, np.int64) if self.regions else np.empty(0, np.int64)
        regions = regions.reshape(len(self.values), len(self.shape), 2)

        def read(number: int) -> np.ndarray:
            region = tuple(map(tuple, regions[number].tolist()))
            return _contents(self.values[number], self.dtype, region, printable_name)

        return Slices(regions, len(self.shape), read)


def _add_slices(
    variables: dict[str, _SlicedVariable], message: Any, values: Mapping[bytes, memoryview], label: str
) -> None:
    sizes = [dim.size for dim in message.shape.dim]
    shape = check_shape(message.type, sizes, message.shape.unknown_rank, label)
    sliced = variables.setdefault(message.name, _SlicedVariable(message.type, shape))
    if (sliced.dtype, sliced.shape) != (message.type, shape):
        raise ModelFileError(f"{label} has different types or shapes in different files")
    if len(sliced.values) + len(message.slice) > MAXIMUM_SLICES:
        raise ModelFileError(f"{label} has more than {MAXIMUM_SLICES} slices")
    for slice_message in message.slice:
        extents = extents_of(slice_message)
        region = region_of(extents, shape, label)
        value = values.get(slice_key(message.name, extents))
        if value is None:
            raise ModelFileError(f"{label} has no contents for its slice {list(region)}")
        sliced.regions.extend(itertools.chain.from_iterable(region))
        sliced.values.append(value)


def _contents(value: memoryview, dtype: int, region: Region, label: str) -> np.ndarray:
    """The contents of a slice."""
    tensor = parse_message("SavedTensorSlices", value, label).data.data
    tensor.dtype = dtype
    # The stored message lacks the type and the shape, which are in the list of variables.
    tensor.tensor_shape.Clear()
    for _, length in region:
        tensor.tensor_shape.dim.add(size=length)
    if repeated_bytes(tensor, label):
        raise ModelFileError(f"{label} is damaged: its slice {list(region)} lacks elements")
    return array_of(tensor, label)
