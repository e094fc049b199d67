"""Resolves an output path: to a file, which is replaced as a whole, or to a stream."""

from __future__ import annotations

import dataclasses
import errno
import os
import pathlib
import re
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ....registration import ModelFileError

if TYPE_CHECKING:
    from ..weights.tensor_writer import Bytes

_OPEN_FILE = re.compile(
    r"(?:/proc/(?P<process>self|thread-self|[0-9]+)(?:/task/[0-9]+)?|/dev)/fd/(?P<number>[0-9]+)"
)
"""Open files of a process: `/dev/stdout` and `/dev/fd/N` are links to them on Linux."""
_MOST_LINKS = 40
_CHUNK = 1 << 24


@dataclasses.dataclass(frozen=True)
class ResolvedPath:
    """The target of a path, with links followed.

    Attributes:
        shown: the path as the caller wrote it, for messages.
        path: the absolute path.
        status: the status of the existing file, if any.
        is_stream: whether it is a device, a FIFO, or an open file of a process.
        descriptor: the descriptor, if the target is an open file of this process.
    """

    shown: str
    path: str
    status: os.stat_result | None = None
    is_stream: bool = False
    descriptor: int | None = None

    @property
    def folder(self) -> str:
        """The folder of a file."""
        return os.path.dirname(self.path)

    @property
    def name(self) -> str:
        """The name of a file in its folder."""
        return os.path.basename(self.path)


def resolve(path: str | bytes | os.PathLike[str]) -> ResolvedPath:
    """Find the target of a path. No file is opened.

    Raises:
        ModelFileError: it is a folder, its folder does not exist, a link is broken, or the file is protected.
    """
    try:
        user_path = os.fsdecode(path)
        if not user_path:
            raise ModelFileError("a model cannot be written to an empty path")
        followed = _follow_links(user_path)
        opened = _OPEN_FILE.fullmatch(followed)
        status = _status(followed)
    except ModelFileError:
        raise
    except (OSError, ValueError) as error:
        # os functions raise ValueError for a NUL in the path.
        raise unwritable(os.fsdecode(path), error) from error
    if opened is not None:
        is_own_process = opened["process"] in (None, "self", "thread-self", str(os.getpid()))
        return ResolvedPath(
            user_path, followed, status, True, int(opened["number"]) if is_own_process else None
        )
    if status is None or stat.S_ISREG(status.st_mode):
        if not os.path.isdir(os.path.dirname(followed)):
            folder = os.path.dirname(followed if os.path.islink(user_path) else user_path)
            raise ModelFileError(f"'{user_path}' cannot be written: there is no folder '{folder}'")
        if status is not None and not os.access(followed, os.W_OK):
            raise ModelFileError(f"'{user_path}' cannot be written: the file is write-protected")
        # A file is written aside, and then renamed.
        if not os.access(os.path.dirname(followed), os.W_OK | os.X_OK):
            raise ModelFileError(f"'{user_path}' cannot be written: its folder is write-protected")
        return ResolvedPath(user_path, followed, status)
    if stat.S_ISDIR(status.st_mode):
        raise ModelFileError(f"'{user_path}' cannot be written: it is a folder")
    return ResolvedPath(user_path, followed, status, True)


def check_folder(path: str | bytes | os.PathLike[str]) -> pathlib.Path:
    """The folder of a path, which need not exist. Nothing is written.

    Raises:
        ModelFileError: it is a file, or no file can be written into it.
    """
    folder = pathlib.Path(os.fsdecode(path))
    try:
        existing = folder.absolute()
        while not os.path.lexists(existing):
            existing = existing.parent
        if not existing.is_dir():
            file = "it" if existing == folder.absolute() else f"'{existing}'"
            raise ModelFileError(
                f"'{folder}' cannot be written: {file} is a file, and the output is a folder"
            )
        if not os.access(existing, os.W_OK | os.X_OK):
            raise ModelFileError(f"'{folder}' cannot be written: the folder '{existing}' is write-protected")
    except ModelFileError:
        raise
    except (OSError, ValueError) as error:
        # os functions raise ValueError for a NUL in the path.
        raise unwritable(str(folder), error) from error
    return folder


def folder_of(path: object) -> pathlib.Path:
    """The folder of a path; it is made if it does not exist.

    Raises:
        ModelFileError: the path is none, is a file, or cannot be made a folder.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise ModelFileError(f"the output is a folder, not a {type(path).__name__}")
    folder = check_folder(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(str(folder), error) from error
    return folder


def _follow_links(path: str) -> str:
    """The absolute path behind links, or the name of an open file, which is a link without a path."""
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(os.path.dirname(path))
        path = os.path.join(folder, os.path.basename(path))
        if _OPEN_FILE.fullmatch(path) or not os.path.islink(path):
            return path
        path = os.path.join(folder, os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def unwritable(path: str, error: Exception) -> ModelFileError:
    """The error for a path that the system cannot write to."""
    return ModelFileError(f"'{path}' cannot be written: {reason(error)}")


def reason(error: Exception) -> str:
    """The system's message for an error."""
    if not isinstance(error, OSError) or error.errno is None:
        # numpy reports how much it could not write, but not why.
        return f"{error} (is the disk full?)" if "written" in str(error) else str(error)
    named = error.filename if isinstance(error.filename, str) else ""
    # The user did not choose the hidden names, so messages leave them out.
    hidden = not named or os.path.basename(named).startswith(".opsetta-")
    return f"{error.strerror}" if hidden else f"{error.strerror}: '{named}'"


class Stream:
    """A file object that is only written sequentially, such as a pipe.

    Tensors use the descriptor and position of a file, which a pipe does not have. This class has neither.

    Attributes:
        count: the bytes that were written.
    """

    def __init__(self, write: Callable[[memoryview], int | None]):
        """Wrap a function that writes some bytes and returns their number."""
        self._write = write
        self.count = 0

    def write(self, data: Bytes) -> int:
        """Write all of a buffer."""
        if not len(data):
            return 0
        import numpy as np  # The help of the command line does without.

        view = np.frombuffer(data, np.uint8).data
        while len(view):
            written = self._write(view[:_CHUNK])
            if written is None:
                raise BlockingIOError(errno.EAGAIN, "the pipe is full, and does not wait for its reader")
            # A pipe may take a part of the bytes.
            view = view[written:]
            self.count += written
        return len(data)


def write_into(target: ResolvedPath, write: Callable[[Stream], object]) -> None:
    """Write to a device, a FIFO or an open file. Bytes written before an error stay written.

    Raises:
        ModelFileError: it is a terminal, or cannot be written.
    """
    try:
        if target.descriptor is not None:
            if sys.__stdout__ is not None and target.descriptor == 1:
                # Text that the program printed before must come before the model.
                sys.__stdout__.flush()
            descriptor = os.dup(target.descriptor)
        else:
            regular = target.status is not None and stat.S_ISREG(target.status.st_mode)
            # Without O_NOCTTY, opening a terminal may make it the process's own.
            flags = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
            descriptor = os.open(target.path, flags | (os.O_TRUNC if regular else 0))
        try:
            if os.isatty(descriptor):
                raise ModelFileError(f"'{target.shown}' is a terminal, and a model is not text")
            write(Stream(lambda data: os.write(descriptor, data)))
        finally:
            os.close(descriptor)
    except ModelFileError:
        raise
    except OSError as error:
        raise unwritable(target.shown, error) from error
