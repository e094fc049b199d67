"""External data in existing files, to which a graph refers without copying the weights."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable

import onnx_ir as ir

from ...registration import ModelFileError, UsageError
from .output.output_paths import ResolvedPath
from .reading.names import listed, quoted
from .weights.stored_tensors import FileTensor, StoredFile

MODES = ("copy", "reference")
_REMEDY = "or save with weights='copy'"


@dataclasses.dataclass(frozen=True)
class Reference:
    """The position of a tensor in a file.

    Attributes:
        location: the file, by its path from the model's folder.
        offset: the offset of its first byte.
    """

    location: str
    offset: int


def check_mode(weights: str) -> None:
    """Refuse an unknown value of `weights`.

    Raises:
        UsageError: it is neither "copy" nor "reference".
    """
    if weights not in MODES:
        raise UsageError(f"weights is 'copy' or 'reference', not {weights!r}")


def references(
    weights: Iterable[tuple[ir.Value, ir.TensorProtocol | None]],
    target: ResolvedPath,
    smallest: int,
    data_name: str | None,
) -> dict[ir.Value, Reference]:
    """The weights that a graph may refer to in their files.

    Excludes weights of fewer than `smallest` bytes, and those whose offset is not a multiple of their element
    size, which runtimes do not map.

    Args:
        data_name: the name of the graph's own data file, if it is fixed.

    Raises:
        ModelFileError: no weight is in a file; or a file is not in the model's folder, changed since it was
            read, has hard links, or would be overwritten.
    """
    if target.is_stream:
        raise ModelFileError(f"'{target.shown}' is not a regular file, so it has no folder for its weights")
    stored = {value: tensor for value, tensor in weights if isinstance(tensor, FileTensor)}
    if not stored:
        raise ModelFileError(
            "weights='reference' needs weights in files, but the model has none: use opsetta.export(..., "
            "weights=path), or load a model with external data"
        )
    references_by_value: dict[ir.Value, Reference] = {}
    locations: dict[StoredFile, str] = {}
    outside: dict[str, None] = {}
    for value, tensor in stored.items():
        # Readers map external data, for which offsets must be aligned; other weights are copied.
        if tensor.nbytes < smallest or not tensor.is_aligned:
            continue
        if tensor.file not in locations:
            location = _location(tensor.file, target)
            if location is None:
                outside[tensor.file.path] = None
                continue
            locations[tensor.file] = location
        references_by_value[value] = Reference(locations[tensor.file], tensor.offset)
    if outside:
        files = listed(list(map(quoted, outside)))
        raise ModelFileError(
            f"weights='reference' needs the weights in the folder of '{target.shown}' or below it, but "
            f"they are in {files}: save the model there, {_REMEDY}"
        )
    for file, location in locations.items():
        _check(file, location, target, data_name)
    return references_by_value


def _location(file: StoredFile, target: ResolvedPath) -> str | None:
    """Return the path of a file relative to the folder of a target; None if it is outside."""
    try:
        relative = pathlib.PurePath(file.path).relative_to(target.folder)
    except ValueError:
        return None
    return relative.as_posix()


def _check(file: StoredFile, location: str, target: ResolvedPath, data_name: str | None) -> None:
    """Refuse a file that readers would refuse, or that the save overwrites.

    Raises:
        ModelFileError: it is such a file.
    """
    title = quoted(location)
    if not file.is_current():
        raise ModelFileError(f"{title} was replaced or changed since its weights were read: read them again")
    if os.stat(file.path).st_nlink > 1:
        raise ModelFileError(
            f"{title} has hard links, and readers refuse such external data: copy the file, {_REMEDY}"
        )
    # Some file systems do not tell upper from lower case.
    if location.casefold() in (target.name.casefold(), (data_name or target.name).casefold()):
        raise ModelFileError(
            f"{title} contains the weights that the model refers to: save the model under another name"
        )
    try:
        location.encode()
    except UnicodeEncodeError:
        raise ModelFileError(
            f"{title} is not a UTF-8 file name, which ONNX requires: rename it, {_REMEDY}"
        ) from None
    # A name such as `a:b` or `a\b` means another file on Windows.
    windows = pathlib.PureWindowsPath(location)
    if windows.drive or windows.root or "\\" in location:
        raise ModelFileError(f"{title} is not a portable file name: rename it, {_REMEDY}")
