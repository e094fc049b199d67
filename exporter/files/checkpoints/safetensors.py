"""Reads the header of .safetensors files: the name, type, shape and position of each tensor.

A file is the length of a JSON object in eight bytes, the object, and the contents of the tensors. The
package safetensors copies each tensor that it reads, and does not tell its place in the file.
"""

from __future__ import annotations

import math
from typing import NoReturn, TypeGuard

import onnx_ir as ir

from ....registration import ModelFileError
from ....registration.json_text import parse_json
from ..reading.names import quoted
from ..small_files import MAXIMUM_BYTES
from ..weights.stored_tensors import FileTensor, StoredFile
from ..weights.tensor_files import SAFETENSORS_METADATA, SAFETENSORS_TYPES

_LENGTH = 8
_FIELDS = {"dtype", "shape", "data_offsets"}


def is_safetensors(head: bytes) -> bool:
    """Whether the first nine bytes of a file begin a header."""
    return head[_LENGTH : _LENGTH + 1] == b"{"


def read_safetensors(file: StoredFile, title: str) -> dict[str, FileTensor]:
    """The tensors of a file by name, in the order of their places. Their contents are not read.

    Args:
        title: the file's name in error messages.

    Raises:
        ModelFileError: the header is too large or malformed, or contradicts the size of the file.
    """
    if file.size < _LENGTH:
        raise ModelFileError(f"{title} has {file.size} bytes, and therefore no header")
    length = int.from_bytes(file.contents[:_LENGTH].tobytes(), "little")
    begin = _LENGTH + length
    if begin > file.size:
        raise ModelFileError(f"{title} has {file.size} bytes, but gives the size of its header as {length}")
    if length > MAXIMUM_BYTES:
        raise ModelFileError(
            f"{title} has a header of {length} bytes, more than the limit of {MAXIMUM_BYTES}"
        )
    header = parse_object(file.contents[_LENGTH:begin].tobytes(), f"the header of {title}")
    tensors: dict[str, FileTensor] = {}
    ranges: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        if name == SAFETENSORS_METADATA:
            continue
        tensor_title = f"tensor {quoted(name)} in {title}"
        dtype, shape, (first, end) = _entry(entry, tensor_title)
        tensor = FileTensor(file, begin + first, dtype, shape, name)
        if end - first != tensor.nbytes:
            raise ModelFileError(
                f"{tensor_title} is {dtype.name}{list(shape)}, which needs {tensor.nbytes} bytes, but has "
                f"{end - first}"
            )
        tensors[name] = tensor
        ranges.append((first, end, name))
    _check_ranges(sorted(ranges), file.size - begin, title)
    return {name: tensors[name] for _, _, name in sorted(ranges)}


def parse_object(text: bytes, title: str) -> dict[str, object]:
    """Parse a JSON object; refuse duplicate keys.

    Raises:
        ModelFileError: it is not one.
    """
    try:
        content = parse_json(text, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ModelFileError(f"{title} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelFileError(f"{title} is not a JSON object")
    return content


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {quoted(double)} occurs twice")
    # JSON may escape half of a surrogate pair, which no file and no protobuf can store.
    for key in entries:
        key.encode()
    return entries


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _entry(entry: object, title: str) -> tuple[ir.DataType, tuple[int, ...], tuple[int, int]]:
    """The type, shape and offsets of a tensor.

    Raises:
        ModelFileError: one of them is missing or malformed.
    """
    if not isinstance(entry, dict) or set(entry) != _FIELDS:
        raise ModelFileError(f"{title} is not described by dtype, shape and data_offsets")
    type_name, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    dtype = SAFETENSORS_TYPES.get(type_name) if isinstance(type_name, str) else None
    if dtype is None:
        raise ModelFileError(f"{title} has the element type {quoted(str(type_name))}, which is not supported")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise ModelFileError(f"{title} has a shape or data_offsets that are not lists of sizes")
    if math.prod(shape) * dtype.itemsize >= 2**63:
        raise ModelFileError(f"{title} has the shape {quoted(str(shape))}, which is too large")
    return dtype, tuple(shape), (offsets[0], offsets[1])


def _are_sizes(item: object) -> TypeGuard[list[int]]:
    return isinstance(item, list) and all(type(size) is int and 0 <= size < 2**63 for size in item)


def _check_ranges(ranges: list[tuple[int, int, str]], size: int, title: str) -> None:
    """Check that the tensors cover all bytes after the header without overlap, as the format requires.

    Raises:
        ModelFileError: two overlap, or bytes are left over or missing.
    """
    covered = 0
    for first, end, name in ranges:
        if first < covered:
            raise ModelFileError(f"tensor {quoted(name)} in {title} overlaps the one before it")
        if first > covered:
            unused = first - covered
            raise ModelFileError(f"tensor {quoted(name)} in {title} has {unused} unused bytes before it")
        covered = end
    if covered != size:
        raise ModelFileError(f"the tensors in {title} take {covered} bytes, but the file has {size} for them")
