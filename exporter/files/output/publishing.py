"""Publishes a file atomically, alone or together with its external data file.

Files are written under hidden names in the target's folder, and renamed when they are complete. The name of a
data file is a digest of its contents, and the file never changes, so a graph always refers to the right
weights. The graph is renamed last, which replaces model and weights in one step. Every process locks the
files that it writes, and the data file that its graph will refer to. A file without a lock that no graph
refers to is not needed: the next save into the folder removes it.

A save that replaces a model waits until the new files are on the disk, so that a power failure leaves the old
or the new model. Where there was no model, there is nothing to lose, and the save does not wait.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from ....registration import ModelFileError
from ..weights.tensor_writer import TensorWriter
from . import locks
from .data_names import TEMPORARY, check_data_name, data_needles, find_mentions, graphs_in, names_in
from .locks import Lock
from .output_paths import ResolvedPath, resolve, unwritable, write_into
from .process_ends import cleaned_up_when_terminated

if TYPE_CHECKING:
    from typing_extensions import Self

_DIGITS = (16, 32, 64)
"""Digits of the SHA-256 in a file name; more if another file has the shorter name."""
ALIGNMENT = 64
"""Bytes that weights in a data file are aligned to by default."""
_BLOCK = 1 << 20
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def publish(
    path: str | bytes | os.PathLike[str],
    write: Callable[[Any, str | None], object],
    *,
    weights: Callable[[DataFile], None] | None = None,
    weight_bytes: int = 0,
    data_name: str | None = None,
    alignment: int = ALIGNMENT,
) -> None:
    """Write a file completely or not at all, optionally with a data file for its weights.

    A device, a FIFO or `/dev/stdout` is written to directly. Links are followed, and a replaced file keeps
    its permissions. Also removes hidden files that a dead process left in the folder, and data files of this
    graph that no graph in the folder refers to any more.

    Args:
        write: writes the file; takes the name of the data file, or None.
        weights: writes the data file before `write` is called. If it is None or writes nothing, there is no
            data file.
        weight_bytes: the bytes of the weights, which have to be free where the file is written.
        data_name: a fixed name of the data file. By default it is `<name>.<digest>.data`. A pair with a fixed
            name is replaced in two steps: a reader or a crash between them finds the old graph with the new
            weights.
        alignment: weights in the data file begin at multiples of this many bytes.

    Raises:
        ModelFileError: the path cannot be written, or the weights need more bytes than are free. No partial
            file remains, and an existing model stays. A process that SIGTERM ends removes it too.
    """
    target = resolve(path)
    if target.is_stream:
        if weights is not None:
            raise ModelFileError(
                f"'{target.shown}' is not a regular file, so it has no folder for external data"
            )
        write_into(target, lambda file: write(file, None))
        return
    if data_name is not None:
        check_data_name(target, data_name)
    try:
        remove_abandoned(target.folder)
        _check_space(target, weight_bytes)
        try:
            _publish(target, write, weights, data_name, alignment)
        finally:
            remove_unnamed(target.folder, target.name)
    except ModelFileError:
        raise
    except OSError as error:
        raise unwritable(target.shown, error) from error


def _publish(
    target: ResolvedPath,
    write: Callable[[Any, str | None], object],
    weights: Callable[[DataFile], None] | None,
    data_name: str | None,
    alignment: int,
) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(cleaned_up_when_terminated())
        data: DataFile | None = None
        location: str | None = None
        if weights is not None:
            data = stack.enter_context(DataFile(target, alignment))
            weights(data)
            if data.finish():
                location = data.place() if data_name is None else data_name
        graph = stack.enter_context(_Temporary(target))
        write(graph.file, location)
        graph.finish()
        if data is not None and location is not None and data_name is not None:
            check_data_name(target, data_name)
            data.replace(os.path.join(target.folder, data_name))
        graph.replace(target.path)
        graph.flush_folder()


def _check_space(target: ResolvedPath, size: int) -> None:
    """Refuse weights that do not fit, before the file system is full: a sparse file has any size for free."""
    if not size:
        return
    # Blocks reserved for the administrator do not count as free.
    free = shutil.disk_usage(target.folder).free
    if size > free:
        raise ModelFileError(
            f"'{target.shown}' cannot be written: its weights have {size} bytes, and {free} are free"
        )


class _Temporary:
    """A hidden file in the folder of a target, locked while it is written, with the target's permissions."""

    def __init__(self, target: ResolvedPath):
        self._folder = target.folder
        self._status = target.status
        self.path = ""
        self.file: IO[bytes]

    def __enter__(self) -> Self:
        while not self._create():
            # Another process removed it as abandoned between creation and locking.
            pass
        return self

    def _create(self) -> bool:
        mode = 0o666 if self._status is None else 0o600
        self.path = os.path.join(self._folder, f".opsetta-{secrets.token_hex(8)}.part")
        self.file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, mode), "wb")
        try:
            descriptor = self.file.fileno()
            if locks.acquire(descriptor, wait=True) == Lock.BUSY or not _is_at(descriptor, self.path):
                self._discard()
                return False
            if self._status is not None:
                _adopt(descriptor, self.path, self._status)
        except BaseException:
            self._discard()
            raise
        return True

    def __exit__(self, *exception: object) -> None:
        self._discard()

    def _discard(self) -> None:
        with contextlib.suppress(OSError):
            # Closing writes the remaining bytes, which fails again on a full disk.
            if not self.file.closed:
                locks.release(self.file.fileno())
                self.file.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def finish(self) -> None:
        """Flush the written bytes; also to the disk if a model is replaced."""
        self.file.flush()
        if self._status is not None:
            os.fsync(self.file.fileno())

    def flush_folder(self) -> None:
        """Flush the folder to the disk, if a model is replaced and the system supports it."""
        if self._status is None:
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(self._folder, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def replace(self, path: str) -> None:
        """Rename the file to its target, and replace an existing file."""
        if os.name == "nt":
            # Windows cannot rename an open file.
            self.file.close()
        os.replace(self.path, path)


class DataFile(_Temporary):
    """The data file of a graph while it is written, named after its contents at the end."""

    def __init__(self, target: ResolvedPath, alignment: int = ALIGNMENT):
        super().__init__(target)
        self._alignment = alignment
        self._name = target.name
        self._hash = hashlib.sha256()
        self._descriptor: int | None = None
        self._writer: TensorWriter

    def __enter__(self) -> DataFile:
        super().__enter__()
        self._writer = TensorWriter(self.file, self._hash.update)
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.stop()
        if self._descriptor is not None:
            _unlock_and_close(self._descriptor)
        super().__exit__()

    def append(self, tensor: Any) -> int:
        """Begin to write a tensor from its own memory, and return its offset."""
        self._writer.write(bytes(-self._writer.count % self._alignment))
        offset = self._writer.count
        self._writer.write_tensor(tensor)
        written = self._writer.count - offset
        if written != tensor.nbytes:
            raise OSError(errno.EIO, f"{written} of {tensor.nbytes} bytes were written")
        return offset

    def finish(self) -> bool:  # type: ignore[override]
        """Write the remaining bytes and flush them like a graph's; return whether there are any."""
        self._writer.finish()
        super().finish()
        return self._writer.count > 0

    def place(self) -> str:
        """Rename the file to the digest of its contents, and keep it locked until a graph refers to it.

        Returns:
            The name. An existing file with this name and the same contents is used; if its contents differ,
            the name gets more digits.
        """
        digest = self._hash.hexdigest()
        for digits in _DIGITS:
            name = f"{self._name}.{digest[:digits]}.data"
            if self._move_or_reuse(os.path.join(self._folder, name)):
                self.flush_folder()
                return name
        raise ModelFileError(
            f"'{name}' exists already, and its contents do not match the digest in its name: remove it"
        )

    def _move_or_reuse(self, path: str) -> bool:
        while True:
            with contextlib.suppress(FileExistsError):
                self._move(path)
                return True
            descriptor = _open_locked(path)
            if descriptor == _GONE:
                continue
            if descriptor == _TAKEN:
                return False
            self._descriptor = descriptor
            if not self._is_same(descriptor):
                self._descriptor = None
                _unlock_and_close(descriptor)
                return False
            if os.fstat(descriptor).st_nlink > 1:
                # Readers refuse a data file with several hard links. Another graph may refer to this one.
                os.fsync(self.file.fileno())
                self.replace(path)
            elif self._status is not None:
                # The save that made it may not have waited for the disk.
                os.fsync(descriptor)
            return True

    def _move(self, path: str) -> None:
        """Rename the file, unless the name is taken."""
        if os.name == "nt":
            self.file.close()
            os.rename(self.path, path)
            self._descriptor = os.open(path, os.O_RDONLY | _FLAGS)
            locks.acquire(self._descriptor, wait=True)
            return
        try:
            os.link(self.path, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # The file system has no hard links.
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
            os.rename(self.path, path)
        else:
            os.unlink(self.path)

    def _is_same(self, descriptor: int) -> bool:
        """Whether an open file has the bytes of this one."""
        if os.fstat(descriptor).st_size != self._writer.count:
            return False
        # Compare the bytes: the digest in the name is shortened, and the file may have been changed.
        os.lseek(descriptor, 0, os.SEEK_SET)
        with open(self.path, "rb") as written, open(descriptor, "rb", closefd=False) as existing:
            while block := written.read(_BLOCK):
                if existing.read(_BLOCK) != block:
                    return False
        return True


def _adopt(descriptor: int, path: str, status: os.stat_result) -> None:
    """Copy the permissions of the replaced file, and its owner if that is allowed."""
    if hasattr(os, "fchown"):
        status_of_new = os.fstat(descriptor)
        # Only an administrator may change the owner; a member of the group may set the group.
        if (status_of_new.st_uid, status_of_new.st_gid) != (status.st_uid, status.st_gid):
            with contextlib.suppress(OSError):
                os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o777)
    else:
        os.chmod(path, stat.S_IMODE(status.st_mode) & 0o777)


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the path refers to this open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _open_regular(path: str) -> int | None:
    """Open a regular file for reading and, if allowed, for writing, which some locks need."""
    for mode in (os.O_RDWR, os.O_RDONLY):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, mode | _FLAGS | getattr(os, "O_NONBLOCK", 0))
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor
            os.close(descriptor)
    return None


_GONE, _TAKEN = -1, -2
"""The file does not exist, is not a regular file, or is locked by another process."""


def _open_locked(path: str) -> int:
    """Open and lock a file; return its descriptor, `_GONE` or `_TAKEN`."""
    descriptor = _open_regular(path)
    if descriptor is None:
        return _TAKEN if os.path.lexists(path) else _GONE
    busy = locks.acquire(descriptor, wait=True) == Lock.BUSY
    if not busy and _is_at(descriptor, path):
        return descriptor
    os.close(descriptor)
    return _TAKEN if busy else _GONE


def _unlock_and_close(descriptor: int) -> None:
    """Release the lock of a file, and close it."""
    locks.release(descriptor)
    os.close(descriptor)


@contextlib.contextmanager
def _lock_unused(folder: str, names: list[str]) -> Iterator[list[str]]:
    """Yield the files that no process is writing, locked in the meantime."""
    descriptors: dict[str, int] = {}
    try:
        for name in names:
            path = os.path.join(folder, name)
            descriptor = _open_regular(path)
            if descriptor is None:
                continue
            if locks.acquire(descriptor) == Lock.HELD and _is_at(descriptor, path):
                descriptors[name] = descriptor
            else:
                os.close(descriptor)
        yield list(descriptors)
    finally:
        for descriptor in descriptors.values():
            _unlock_and_close(descriptor)


def _remove(folder: str, names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


def remove_abandoned(folder: str) -> None:
    """Remove the hidden files of processes that ended while writing them."""
    hidden = [name for name in names_in(folder) if TEMPORARY.fullmatch(name)]
    with _lock_unused(folder, hidden) as names:
        _remove(folder, names)


def remove_unnamed(folder: str, graph: str) -> None:
    """Remove a graph's data files that no graph in the folder refers to and no process writes."""
    needles = data_needles(folder, graph)
    path = os.path.join(folder, graph)
    if os.path.lexists(path):
        # Usually there is only the current data file, and nothing to search for.
        named = find_mentions([path], needles.values())
        needles = {name: needle for name, needle in needles.items() if needle not in named}
    if not needles:
        return
    with _lock_unused(folder, list(needles)) as names:
        # A process that wants to refer to one of them must lock it first.
        named = find_mentions(graphs_in(folder), [needles[name] for name in names])
        _remove(folder, [name for name in names if needles[name] not in named])
