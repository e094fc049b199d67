"""The names of the files of a layout, and the JSON files of its library."""

from __future__ import annotations

import json
import pathlib
from typing import IO

import onnx_ir as ir

from ...files.output.publishing import publish
from ...files.writing import INLINE_LIMIT
from ...quantizing import initializer_bytes
from ..folder import read_json
from .record import Entries, FolderLayout, Variant


def path_of(file: str, layout: FolderLayout, variant: Variant) -> pathlib.PurePosixPath:
    """The path of a file of a task in the exported folder."""
    path = pathlib.PurePosixPath(file)
    return pathlib.PurePosixPath(layout.folder, path.with_name(f"{path.stem}{variant.suffix}{path.suffix}"))


def external_data_of(
    name: str, model: ir.Model, layout: FolderLayout, external_data: bool | None
) -> bool | str | None:
    """The argument `external_data` for a file, with the name that the library of the layout expects."""
    if layout.data_suffix is None or external_data is False:
        return external_data
    if external_data is None and initializer_bytes(model) < INLINE_LIMIT:
        return False
    return f"{name}{layout.data_suffix}"


def merge_entries(first: Entries, second: Entries) -> Entries:
    """The entries of both; those of the second replace those of the first."""
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in [*first, *second]}


def write_entries(folder: pathlib.Path, entries: Entries) -> list[str]:
    """Add entries to the JSON files of a folder, which need not exist.

    Returns:
        The names of the files.

    Raises:
        ModelFileError: a file cannot be read or written.
    """
    for name, new_entries in entries.items():
        text = json.dumps(read_json(folder / name) | dict(new_entries), indent=2, ensure_ascii=False)

        def write(file: IO[bytes], location: str | None, text: str = text) -> None:
            file.write(f"{text}\n".encode())

        publish(folder / name, write)
    return list(entries)
