"""Hugging Face folders: configurations, and the files that are copied to an exported model."""

from __future__ import annotations

import fnmatch
import functools
import os
import pathlib
from typing import IO, Any

from ...registration import ModelFileError
from ..files.publishing import publish
from ..files.small_files import parse_json, read_small, reason_of

CONFIG = "config.json"
_COPIED = (
    CONFIG,
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "normalizer.json",
    "*.model",
    "*preprocessor_config.json",
    "processor_config.json",
    "chat_template*",
)
"""Files that tokenizers, processors and generation read."""


def folder_at(path: str | os.PathLike) -> pathlib.Path:
    """The folder at a path.

    Raises:
        ModelFileError: there is no folder with a configuration.
    """
    found = pathlib.Path(os.fsdecode(path))
    if not found.is_dir():
        raise ModelFileError(
            f"there is no folder '{found}'; download models of the hub first: hf download NAME --local-dir "
            "FOLDER"
        )
    if not (found / CONFIG).is_file():
        raise ModelFileError(f"'{found}' is not the folder of a Hugging Face model: it has no {CONFIG}")
    return found


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no file.

    Raises:
        ModelFileError: it cannot be read, or holds something else.
    """
    try:
        found = parse_json(read_small(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelFileError(f"'{path}' cannot be read: {reason_of(error)}") from error
    if not isinstance(found, dict):
        raise ModelFileError(f"'{path}' does not contain a JSON object")
    return found


def copy_files(source: pathlib.Path, target: pathlib.Path) -> list[str]:
    """Copy the files of tokenizers, processors and configurations; return their names.

    Raises:
        ModelFileError: one cannot be read or written.
    """
    names = sorted(
        path.name
        for path in source.iterdir()
        if path.is_file() and any(fnmatch.fnmatchcase(path.name, pattern) for pattern in _COPIED)
    )
    if target.exists() and source.samefile(target):
        return names
    for name in names:
        try:
            content = (source / name).read_bytes()
        except OSError as error:
            raise ModelFileError(f"'{source / name}' cannot be read: {error}") from error
        publish(target / name, functools.partial(_write, content))
    return names


def _write(content: bytes, file: IO[bytes], location: str | None) -> None:
    file.write(content)
