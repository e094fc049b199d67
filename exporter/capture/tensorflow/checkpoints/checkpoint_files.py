"""Finds the files of a checkpoint from a path, and lists its variables."""

import os
import re
from typing import Any

from google.protobuf import text_format

from .....registration import ModelFileError
from ....files.reading import bounds_of
from ....files.reading.external_data.files import ExternalFiles, ModelFolder
from ....files.reading.names import quoted
from ..messages import message_type
from .bundle import Bundle
from .sorted_table import MAGIC
from .tensor_slices import read_tables
from .variables import Checkpoint

_STATE = "checkpoint"
"""The file in which TensorFlow's Saver records the newest checkpoint of a folder."""
_LARGEST_STATE = 1 << 20
_SUFFIX = re.compile(r"\.(?:index|meta|data-\d{5,}-of-\d{5,})")
_SHARD = re.compile(r"-(\d{5,})-of-(\d{5,})")
_MOST_FILES = 100_000


def open_checkpoint(
    path: str | os.PathLike[str], *, allow_links: bool = False, trusted: bool = False
) -> Checkpoint:
    """Open a checkpoint of format V2 or V1, and list its variables. Their contents are read later.

    Args:
        path: its prefix, "model.ckpt-5"; one of its files; a folder whose file `checkpoint` names the newest
            one; or the folder of a SavedModel.
        allow_links: follow links out of the checkpoint's folder.
        trusted: lift the bound on the number of entries.

    Raises:
        ModelFileError: there is no checkpoint, or it is damaged, or has more entries than its size allows.
    """
    path_text = os.fsdecode(path)
    try:
        folder, prefix = _prefix(path_text, allow_links)
        names = os.listdir(folder)
    except OSError as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"'{path_text}' cannot be read: {error.strerror}") from error
    except ValueError as error:
        # os raises ValueError for a NUL in a path.
        raise ModelFileError(f"'{path_text}' cannot be read: {error}") from error
    files = _files(folder, allow_links)
    bounds = bounds_of(trusted)
    if f"{prefix}.index" in names:
        index = files.whole(f"{prefix}.index", f"the checkpoint {quoted(prefix)}")
        paths = [os.path.join(folder, name) for name in names if name.startswith(f"{prefix}.data-")]
        size = index.size + sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
        return Checkpoint(path_text, Bundle(index, prefix, files, bounds.entries_of(size)).variables)
    tables = _tables(prefix, names)
    if not tables:
        raise ModelFileError(
            f"there is no checkpoint '{path_text}': neither '{prefix}.index' nor '{prefix}' is in '{folder}'"
        )
    contents = {name: files.whole(name, f"the checkpoint {quoted(name)}") for name in tables}
    size = sum(data.size for data in contents.values())
    return Checkpoint(path_text, read_tables(contents, bounds.entries_of(size)))


def is_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether a path seems to name a checkpoint."""
    path_text = os.fsdecode(path)
    try:
        if os.path.isdir(path_text):
            return os.path.isfile(os.path.join(path_text, _STATE))
        if os.path.isfile(f"{path_text}.index") or _SUFFIX.search(os.path.basename(path_text)):
            return True
        if not os.path.isfile(path_text):
            folder, name = os.path.split(os.path.abspath(path_text))
            return os.path.isdir(folder) and bool(_tables(name, os.listdir(folder)))
        with open(path_text, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - len(MAGIC)))
            return file.read() == MAGIC
    except (OSError, ValueError):
        return False


def _files(folder: str, allow_links: bool) -> ExternalFiles:
    return ExternalFiles(ModelFolder(folder, allow_links=allow_links), lambda subject, label: None)


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
    quoted_path = f"'{os.path.join(folder, _STATE)}'"
    data = _files(folder, allow_links).whole(_STATE, quoted_path)
    if data.size > _LARGEST_STATE:
        raise ModelFileError(
            f"{quoted_path} cannot be read: it has {data.size} bytes, more than {_LARGEST_STATE}"
        )
    state: Any = message_type("CheckpointState")()
    try:
        text_format.Parse(data.tobytes(), state)
    except (text_format.ParseError, UnicodeDecodeError):
        raise ModelFileError(f"{quoted_path} does not name a checkpoint") from None
    # The file of a folder that was moved still has the old path; only the name of the checkpoint counts.
    name: str = os.path.basename(state.model_checkpoint_path.replace("\\", "/"))
    if not name:
        raise ModelFileError(f"{quoted_path} does not name a checkpoint")
    return name


def _tables(prefix: str, names: list[str]) -> list[str]:
    """The files of a checkpoint of format V1: one, or several that are numbered."""
    if prefix in names:
        return [prefix]
    numbers_by_count: dict[str, set[int]] = {}
    for name in names:
        match = _SHARD.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if match is not None:
            numbers_by_count.setdefault(match[2], set()).add(int(match[1]))
    if not numbers_by_count:
        return []
    # A folder may have shards of several checkpoints: take the most complete set. The count stays text,
    # because names pad it with zeros.
    count_text = max(numbers_by_count, key=lambda count: (len(numbers_by_count[count]), count))
    count = int(count_text)
    if count > _MOST_FILES or numbers_by_count[count_text] != set(range(count)):
        raise ModelFileError(
            f"the checkpoint {quoted(prefix)} is incomplete: not all of its {count_text} files are there"
        )
    return [f"{prefix}-{number:0{len(count_text)}}-of-{count_text}" for number in range(count)]
