"""Reads a checkpoint of format V2, a tensor bundle: a table of entries, and files with the contents.

The entry of the empty key is the header. Every other entry has a variable's element type and shape, and the
place of its contents. A partitioned variable has slices in its place; each slice has an entry of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np

from .....registration import ModelFileError
from ....files.reading.external_data.files import ExternalFiles
from ....files.reading.names import quoted
from ..element_types import numpy_type, type_name
from ..tensors import elements_of
from .checksums import crc32c, unmasked
from .entries import extents_of, parsed, region_of
from .slice_keys import PREFIX, slice_key
from .sorted_table import SortedTable
from .strings import strings_of
from .variables import MOST_SLICES, Slices, Variable, checked_shape

_VERSION = 1
"""The version of the format that this reader reads: a header may ask for a newer reader."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """The element type, shape and position of a variable or a slice."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


class Bundle:
    """A tensor bundle.

    Args:
        index: the bytes of its table.
        prefix: the name of the bundle's files without their endings, in their folder.
        files: reads the files of that folder.

    Raises:
        ModelFileError: the table is damaged, or an entry contradicts itself.
    """

    def __init__(self, index: np.ndarray, prefix: str, files: ExternalFiles):
        self._prefix, self._files = prefix, files
        self._shown = f"the checkpoint {quoted(prefix)}"
        self._entries: dict[bytes, _Entry] = {}
        self._sliced: dict[str, Any] = {}
        table = iter(SortedTable(index, self._shown))
        key, value = next(table, (b"?", memoryview(b"")))
        if key:
            raise ModelFileError(f"{self._shown} is damaged: it has no header")
        self._read_header(parsed("BundleHeaderProto", value, self._shown))
        self.variables: dict[str, Variable] = {}
        for key, value in table:
            self._add(key, value)
        self._check_places()

    def _read_header(self, header: Any) -> None:
        if header.version.min_consumer > _VERSION or header.num_shards < 1:
            raise ModelFileError(
                f"{self._shown} cannot be read: its format has version {header.version.min_consumer} and "
                f"{header.num_shards} data files"
            )
        if header.endianness not in (0, 1):
            raise ModelFileError(f"{self._shown} has the byte order {header.endianness}, which is unknown")
        self._shards, self._order = header.num_shards, "<>"[header.endianness]

    def _add(self, key: bytes, value: memoryview) -> None:
        message = parsed("BundleEntryProto", value, self._shown)
        shown = f"variable {quoted(key.decode(errors='replace'))} of {self._shown}"
        sizes = [dim.size for dim in message.shape.dim]
        shape = checked_shape(message.dtype, sizes, message.shape.unknown_rank, shown)
        if not message.slices:
            self._entries[key] = self._entry(message, shape, shown)
        if key.startswith(PREFIX):
            return
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise ModelFileError(f"{shown} has a name that is not UTF-8") from None
        if len(message.slices) > MOST_SLICES:
            raise ModelFileError(f"{shown} has {len(message.slices)} slices, more than {MOST_SLICES}")
        if message.slices:
            # The message takes more memory than its bytes. A graph may read each slice on its own.
            slices = functools.cache(
                functools.partial(self._slices, name, message.dtype, shape, bytes(value), shown)
            )
        else:
            slices = functools.partial(self._whole, self._entries[key], shown)
        self.variables[name] = Variable(name, message.dtype, shape, slices)

    def _entry(self, message: Any, shape: tuple[int, ...], shown: str) -> _Entry:
        kind, count = numpy_type(message.dtype), math.prod(shape)
        if not 0 <= message.shard_id < self._shards or message.offset < 0 or message.size < 0:
            raise ModelFileError(f"{shown} has an invalid shard, offset or size")
        if kind is not None and kind != np.object_ and message.size != count * kind.itemsize:
            raise ModelFileError(
                f"{shown} is {count * kind.itemsize} bytes by its type and shape, but has {message.size}"
            )
        place = message.shard_id, message.offset, message.size
        return _Entry(message.dtype, shape, *place, message.crc32c)

    def _check_places(self) -> None:
        """Refuse overlapping contents, by which a small file could describe large variables."""
        places = sorted((e.shard, e.offset, e.offset + e.size) for e in self._entries.values() if e.size)
        for (shard, _, end), (next_shard, start, _) in itertools.pairwise(places):
            if shard == next_shard and start < end:
                raise ModelFileError(f"{self._shown} is damaged: the contents of variables overlap")

    def _whole(self, entry: _Entry, shown: str) -> Slices:
        region = tuple((0, size) for size in entry.shape)
        return Slices([region], len(region), lambda _: self._contents(entry, shown))

    def _slices(self, name: str, dtype: int, shape: tuple[int, ...], value: bytes, shown: str) -> Slices:
        regions, entries = [], []
        for message in parsed("BundleEntryProto", value, shown).slices:
            extents = extents_of(message)
            region = region_of(extents, shape, shown)
            entry = self._entries.get(slice_key(name, extents))
            if entry is None or entry.dtype != dtype or entry.shape != tuple(length for _, length in region):
                raise ModelFileError(
                    f"{shown} has no contents, or invalid contents, for its slice {list(region)}"
                )
            regions.append(region)
            entries.append(entry)
        return Slices(regions, len(shape), lambda number: self._contents(entries[number], shown))

    def _contents(self, entry: _Entry, shown: str) -> np.ndarray:
        """Read the contents of an entry, and verify their checksum.

        Raises:
            ModelFileError: they cannot be read, or are damaged.
        """
        kind = numpy_type(entry.dtype)
        if kind is None:
            raise ModelFileError(f"{shown} has {type_name(entry.dtype)}, which is not supported")
        held = np.empty(0, np.uint8)
        if entry.size:
            location = f"{self._prefix}.data-{entry.shard:05}-of-{self._shards:05}"
            held = self._files.contents(location, entry.offset, entry.size, shown)
        if kind == np.object_:
            return strings_of(held, entry.shape, entry.checksum, self._order, shown)
        if crc32c(held) != unmasked(entry.checksum):
            raise ModelFileError(f"{shown} is damaged: its checksum does not match")
        if self._order == ">":
            # numpy has no byte order for bfloat16; complex numbers are two.
            size = kind.itemsize // (2 if kind.kind == "c" else 1)
            held = held.view(f">u{size}").astype(f"<u{size}").view(np.uint8)
        found = elements_of(held, entry.dtype, math.prod(entry.shape), shown).reshape(entry.shape)
        found.flags.writeable = False
        return found
