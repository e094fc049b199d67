"""Finds the files of a checkpoint from a path, and lists its variables."""

from __future__ import annotations

import os
import re
from typing import Any

from google.protobuf import text_format

from .....registration import ModelFileError
from ....files.reading.external_data.files import ExternalFiles, ModelFolder
from ....files.reading.names import quoted
from ..messages import message_type
from .bundle import Bundle
from .sorted_table import MAGIC
from .tensor_slices import read_tables
from .variables import Checkpoint

_STATE = "checkpoint"
"""The file in which TensorFlow's Saver notes the newest checkpoint of a folder."""
_LARGEST_STATE = 1 << 20
_SUFFIX = re.compile(r"\.(?:index|meta|data-\d{5,}-of-\d{5,})")
_SHARD = re.compile(r"-(\d{5,})-of-(\d{5,})")
_MOST_FILES = 100_000


def open_checkpoint(path: str | os.PathLike[str], *, allow_links: bool = False) -> Checkpoint:
    """Open a checkpoint of format V2 or V1, and list its variables. Their contents are read later.

    Args:
        path: its name, "model.ckpt-5"; one of its files; a folder with a file `checkpoint`, which names the
            newest; or a SavedModel.
        allow_links: follow links out of the checkpoint's folder.

    Raises:
        ModelFileError: there is no checkpoint, or it is damaged.
    """
    shown = os.fsdecode(path)
    try:
        folder, prefix = _prefix(shown, allow_links)
        names = os.listdir(folder)
    except OSError as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"'{shown}' cannot be read: {error.strerror}") from error
    except ValueError as error:
        # os raises ValueError for a NUL in a path.
        raise ModelFileError(f"'{shown}' cannot be read: {error}") from error
    files = _files(folder, allow_links)
    if f"{prefix}.index" in names:
        index = files.whole(f"{prefix}.index", f"the checkpoint {quoted(prefix)}")
        return Checkpoint(shown, Bundle(index, prefix, files).variables)
    tables = _tables(prefix, names)
    if not tables:
        raise ModelFileError(
            f"there is no checkpoint '{shown}': neither '{prefix}.index' nor '{prefix}' is in '{folder}'"
        )
    return Checkpoint(
        shown, read_tables({name: files.whole(name, f"the checkpoint {quoted(name)}") for name in tables})
    )


def is_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether a path seems to name a checkpoint."""
    shown = os.fsdecode(path)
    try:
        if os.path.isdir(shown):
            return os.path.isfile(os.path.join(shown, _STATE))
        if os.path.isfile(f"{shown}.index") or _SUFFIX.search(os.path.basename(shown)):
            return True
        if not os.path.isfile(shown):
            folder, name = os.path.split(os.path.abspath(shown))
            return os.path.isdir(folder) and bool(_tables(name, os.listdir(folder)))
        with open(shown, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - len(MAGIC)))
            return file.read() == MAGIC
    except (OSError, ValueError):
        return False


def _files(folder: str, allow_links: bool) -> ExternalFiles:
    return ExternalFiles(ModelFolder(folder, allow_links=allow_links), lambda subject, shown: None)


def _prefix(path: str, allow_links: bool) -> tuple[str, str]:
    """The folder of a checkpoint, and its name there."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        variables = os.path.join(path, "variables")
        if os.path.isfile(os.path.join(path, _STATE)):
            return path, _newest(path, allow_links)
        if os.path.isfile(os.path.join(variables, "variables.index")):
            return variables, "variables"
        raise ModelFileError(f"'{path}' is a folder without a checkpoint: it has no file '{_STATE}'")
    folder, name = os.path.split(path)
    ending = _SUFFIX.search(name)
    if ending is not None and ending.end() == len(name):
        name = name[: ending.start()]
    return folder, name


def _newest(folder: str, allow_links: bool) -> str:
    """The name of the newest checkpoint of a folder."""
    shown = f"'{os.path.join(folder, _STATE)}'"
    data = _files(folder, allow_links).whole(_STATE, shown)
    if data.size > _LARGEST_STATE:
        raise ModelFileError(f"{shown} cannot be read: it has {data.size} bytes, more than {_LARGEST_STATE}")
    state: Any = message_type("CheckpointState")()
    try:
        text_format.Parse(data.tobytes(), state)
    except (text_format.ParseError, UnicodeDecodeError):
        raise ModelFileError(f"{shown} does not name a checkpoint") from None
    # A folder that was moved still names the old place.
    name = os.path.basename(state.model_checkpoint_path.replace("\\", "/"))
    if not name:
        raise ModelFileError(f"{shown} does not name a checkpoint")
    result: str = name
    return result


def _tables(prefix: str, names: list[str]) -> list[str]:
    """The files of a checkpoint of format V1: one, or several with numbers.

    Raises:
        ModelFileError: some of them are missing.
    """
    if prefix in names:
        return [prefix]
    found: dict[str, set[int]] = {}
    for name in names:
        match = _SHARD.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if match is not None:
            found.setdefault(match[2], set()).add(int(match[1]))
    if not found:
        return []
    of = max(found, key=lambda count: (len(found[count]), count))
    count = int(of)
    if count > _MOST_FILES or found[of] != set(range(count)):
        raise ModelFileError(
            f"the checkpoint {quoted(prefix)} is incomplete: not all of its {of} files are there"
        )
    return [f"{prefix}-{number:0{len(of)}}-of-{of}" for number in range(count)]
