"""Reads a checkpoint of format V2, a tensor bundle: a table of entries, and files with the contents.

The entry with the empty key is the header. Every other entry has the element type and shape of a variable,
and the position of its contents. The entry of a partitioned variable lists slices instead; each slice has
its own entry.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .....registration import ModelFileError
from ....files.reading.external_data.files import ExternalFiles
from ....files.reading.names import quoted
from ..element_types import numpy_type, type_name
from ..tensor_protos import elements_of
from .checksums import crc32c, unmask_checksum
from .entries import extents_of, parse_message, region_of
from .slice_keys import PREFIX, slice_key
from .sorted_table import SortedTable
from .strings import strings_of
from .variables import MAXIMUM_SLICES, Slices, Variable, check_shape

_VERSION = 1
"""The format version that this reader supports; a header may demand a newer reader."""


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
    """A tensor bundle; `prefix` is the name of its files in their folder, without their endings."""

    def __init__(self, index: np.ndarray, prefix: str, files: ExternalFiles, maximum_entries: int):
        self._prefix, self._files = prefix, files
        self._label = f"the checkpoint {quoted(prefix)}"
        self._entries: dict[bytes, _Entry] = {}

        table = iter(SortedTable(index, self._label, maximum_entries))
        key, value = next(table, (b"?", memoryview(b"")))
        if key:
            raise ModelFileError(f"{self._label} is damaged: it has no header")
        self._read_header(parse_message("BundleHeaderProto", value, self._label))
        self.variables: dict[str, Variable] = {}
        for key, value in table:
            self._add_entry(key, value)
        # By overlapping contents a small file could describe large variables.
        spans = sorted((e.shard, e.offset, e.offset + e.size) for e in self._entries.values() if e.size)
        for (shard, _, end), (next_shard, start, _) in itertools.pairwise(spans):
            if shard == next_shard and start < end:
                raise ModelFileError(f"{self._label} is damaged: the contents of variables overlap")

    def _read_header(self, header: Any) -> None:
        if header.version.min_consumer > _VERSION or header.num_shards < 1:
            raise ModelFileError(
                f"{self._label} cannot be read: its format has version {header.version.min_consumer} and "
                f"{header.num_shards} data files"
            )
        if header.endianness not in (0, 1):
            raise ModelFileError(f"{self._label} has the byte order {header.endianness}, which is unknown")
        self._shards, self._byte_order = header.num_shards, "<>"[header.endianness]

    def _add_entry(self, key: bytes, value: memoryview) -> None:
        message = parse_message("BundleEntryProto", value, self._label)
        label = f"variable {quoted(key.decode(errors='replace'))} of {self._label}"
        sizes = [dim.size for dim in message.shape.dim]
        shape = check_shape(message.dtype, sizes, message.shape.unknown_rank, label)
        if not message.slices:
            self._entries[key] = self._entry(message, shape, label)
        # The entry of a slice is found through its variable.
        if key.startswith(PREFIX):
            return
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise ModelFileError(f"{label} has a name that is not UTF-8") from None
        if len(message.slices) > MAXIMUM_SLICES:
            raise ModelFileError(f"{label} has {len(message.slices)} slices, more than {MAXIMUM_SLICES}")
        slices: Callable[[], Slices]
        read_whole = None
        if message.slices:
            # The message takes more memory than its bytes. A graph may read each slice on its own.
            slices = functools.cache(
                functools.partial(self._slice_parts, name, message.dtype, shape, bytes(value), label)
            )
        else:
            slices = functools.partial(self._whole_part, self._entries[key], label)
            read_whole = functools.partial(self._contents, self._entries[key], label)
        self.variables[name] = Variable(name, message.dtype, shape, slices, read_whole)

    def _entry(self, message: Any, shape: tuple[int, ...], label: str) -> _Entry:
        dtype, count = numpy_type(message.dtype), math.prod(shape)
        if not 0 <= message.shard_id < self._shards or message.offset < 0 or message.size < 0:
            raise ModelFileError(f"{label} has an invalid shard, offset or size")
        if dtype is not None and dtype != np.object_ and message.size != count * dtype.itemsize:
            raise ModelFileError(
                f"{label} is {count * dtype.itemsize} bytes by its type and shape, but has {message.size}"
            )
        position = message.shard_id, message.offset, message.size
        return _Entry(message.dtype, shape, *position, message.crc32c)

    def _whole_part(self, entry: _Entry, label: str) -> Slices:
        region = tuple((0, size) for size in entry.shape)
        return Slices([region], len(region), lambda _: self._contents(entry, label))

    def _slice_parts(self, name: str, dtype: int, shape: tuple[int, ...], value: bytes, label: str) -> Slices:
        regions, entries = [], []
        for message in parse_message("BundleEntryProto", value, label).slices:
            extents = extents_of(message)
            region = region_of(extents, shape, label)
            entry = self._entries.get(slice_key(name, extents))
            if entry is None or entry.dtype != dtype or entry.shape != tuple(length for _, length in region):
                raise ModelFileError(
                    f"{label} has no contents, or invalid contents, for its slice {list(region)}"
                )
            regions.append(region)
            entries.append(entry)
        return Slices(regions, len(shape), lambda number: self._contents(entries[number], label))

    def _contents(self, entry: _Entry, label: str) -> np.ndarray:
        """Read the contents of an entry, and verify their checksum."""
        dtype = numpy_type(entry.dtype)
        if dtype is None:
            raise ModelFileError(f"{label} has {type_name(entry.dtype)}, which is not supported")
        content_bytes = np.empty(0, np.uint8)
        if entry.size:
            location = f"{self._prefix}.data-{entry.shard:05}-of-{self._shards:05}"
            content_bytes = self._files.contents(location, entry.offset, entry.size, label)
        if dtype == np.object_:
            return strings_of(content_bytes, entry.shape, entry.checksum, self._byte_order, label)
        if crc32c(content_bytes) != unmask_checksum(entry.checksum):
            raise ModelFileError(f"{label} is damaged: its checksum does not match")
        if self._byte_order == ">":
            # Swap as unsigned integers: numpy has no byte order for bfloat16. A complex number is two.
            size = dtype.itemsize // (2 if dtype.kind == "c" else 1)
            content_bytes = content_bytes.view(f">u{size}").astype(f"<u{size}").view(np.uint8)
        array = elements_of(content_bytes, entry.dtype, math.prod(entry.shape), label).reshape(entry.shape)
        array.flags.writeable = False
        return array
