"""Reads external data of tensors, from files inside the model's folder only."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import stat
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from .....registration import ModelFileError
from ...small_files import reason_of
from ...weights.stored_tensors import FileTensor, StoredFile
from ..encodings.other_formats import describe_format
from ..names import quoted
from .prepacked import PREFIX, PackedEntries, is_entry, parse_entry

_NUMBER = re.compile(r"[0-9]{1,19}")
_IGNORED = ("checksum", "basepath")


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """The folders in which external data of a model may be.

    Attributes:
        path: the folder of the file that the user named.
        linked: if the file is a link, the folder of its target, whose files belong to the model too. The
            cache of the Hugging Face hub has such links.
        allow_links: whether links, hard links included, may lead outside.
    """

    path: str
    linked: str | None = None
    allow_links: bool = False

    @classmethod
    def of(cls, model: str | os.PathLike[str], allow_links: bool = False) -> ModelFolder:
        """The folder of a model's file."""
        path = os.path.abspath(model)
        linked = os.path.dirname(os.path.realpath(path)) if os.path.islink(path) else None
        return cls(os.path.dirname(path), linked, allow_links)


Folder = str | os.PathLike[str] | ModelFolder


class ExternalFiles:
    """The external data files of a model.

    Args:
        folder: the model's folder.
        note: called with the kind and the title of each entry that is dropped.
        remedy: what to do about links that are refused, in error messages.
    """

    def __init__(
        self,
        folder: Folder,
        note: Callable[[str, str], None],
        remedy: str = "opsetta.load(path, allow_links=True) follows it",
    ):
        model_folder = folder if isinstance(folder, ModelFolder) else ModelFolder(os.path.abspath(folder))
        self.folder = model_folder.path
        self._model_folder = model_folder
        self._sizes: dict[str, int] = {}
        self._mapped: dict[str, StoredFile] = {}
        self._note = note
        self._remedy = remedy
        self._packed: list[tuple[str, str, str, str]] = []

    @property
    def are_used(self) -> bool:
        """Whether a tensor that was checked has its contents in a file."""
        return bool(self._sizes)

    def packed_weights(self) -> PackedEntries:
        """Packed weights of onnxruntime that were read, by tensor and key.

        Raises:
            ModelFileError: an entry leads outside of its file.
        """
        # Read after all checks, so that no file of a refused model is opened.
        packed_entries: PackedEntries = {}
        for name, title, location, entry in self._packed:
            key, _, value = entry.partition("=")
            packed_entries.setdefault(name, {})[key] = [
                (kernel, self.contents(location, offset, size, f"a packed form of {title}"))
                for kernel, offset, size in parse_entry(value)
            ]
        return packed_entries

    def check(self, tensor: onnx.TensorProto, size: int, title: str) -> None:
        """Refuse external data outside of the folder, or with another length than the tensor.

        No file is opened. A tensor without elements needs no file; it moves into the message.

        Args:
            size: the bytes of the tensor, by its element type and shape.
            title: the tensor's name in error messages.

        Raises:
            ModelFileError: the entries are malformed, lead outside of the folder, or do not match `size`.
        """
        entries = self._entries(tensor, title)
        location = entries.get("location", "")
        check_relative(location, title)
        offset, length = (_number(entries, key, title) for key in ("offset", "length"))
        if length is not None and length != size:
            raise ModelFileError(f"{title} is {size} bytes, but its external data has {length}")
        if size == 0:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = b""
            return
        # A model may have thousands of tensors in one file.
        if location not in self._sizes:
            self._sizes[location] = self._size(location, title)
        file_size = self._sizes[location]
        if (offset or 0) + size > file_size:
            raise _too_short(self._real_path(location, title), location, offset or 0, size, file_size, title)

    def _entries(self, tensor: onnx.TensorProto, title: str) -> dict[str, str]:
        entries: dict[str, str] = {}
        for entry in tensor.external_data:
            if entries.setdefault(entry.key, entry.value) != entry.value:
                raise ModelFileError(f"{title} has external data with two values of {quoted(entry.key)}")
        for key in list(entries):
            if key in _IGNORED or (key.startswith(PREFIX) and not is_entry(entries[key])):
                self._note(f"the {key.split('_')[0]} of external data", title)
                del entries[key]
            elif key.startswith(PREFIX):
                self._packed.append(
                    (tensor.name, title, entries.get("location", ""), f"{key}={entries[key]}")
                )
                del entries[key]
            elif key not in ("location", "offset", "length"):
                raise ModelFileError(
                    f"{title} has external data with the key {quoted(key)}, which ONNX does not define"
                )
        del tensor.external_data[:]
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        return entries

    def contents(self, location: str, offset: int, size: int, title: str) -> np.ndarray:
        """Bytes of a file in the folder; the first call opens it and maps it into memory.

        The bytes stay the same if the file is replaced.

        Raises:
            ModelFileError: the file is not in the folder, cannot be read, or is too short.
        """
        stored_file = self.file(location, title)
        _check_range(stored_file, location, offset, size, title)
        return stored_file.contents[offset : offset + size]

    def tensor(
        self,
        location: str,
        offset: int,
        dtype: ir.DataType,
        shape: Sequence[int],
        name: str | None,
        title: str,
    ) -> FileTensor:
        """A tensor in a file in the folder, as in `contents`."""
        stored_file = self.file(location, title)
        file_tensor = FileTensor(stored_file, offset, dtype, shape, name)
        _check_range(stored_file, location, offset, file_tensor.nbytes, title)
        return file_tensor

    def whole(self, location: str, title: str) -> np.ndarray:
        """All bytes of a file in the folder, as in `contents`."""
        return self.file(location, title).contents

    def file(self, location: str, title: str) -> StoredFile:
        """A file in the folder, as in `contents`."""
        if location not in self._mapped:
            real = self._real_path(location, title)
            try:
                # Check the open file, not the path, which may name another file by now.
                with open(real, "rb", opener=_open_file, buffering=0) as file:
                    self._check_status(os.fstat(file.fileno()), location, title)
                    self._mapped[location] = StoredFile(real, file)
            except ModelFileError:
                raise
            except (OSError, ValueError) as error:
                # mmap raises ValueError for an empty file.
                raise ModelFileError(
                    f"{title} is in {quoted(location)}, which cannot be read: {reason_of(error)}"
                ) from None
        return self._mapped[location]

    def _size(self, location: str, title: str) -> int:
        """The size of a file in the folder."""
        real = self._real_path(location, title)
        try:
            status = os.stat(real)
        except OSError as error:
            raise ModelFileError(
                f"{title} is in {quoted(location)}, which cannot be read: {error.strerror}; "
                "copy it into the model's folder"
            ) from None
        self._check_status(status, location, title)
        return status.st_size

    def _real_path(self, location: str, title: str) -> str:
        """The real path of a file; links are followed only inside the model's folders."""
        path = os.path.join(self.folder, location)
        if self._model_folder.linked is not None and not os.path.lexists(path):
            path = os.path.join(self._model_folder.linked, location)
        real = os.path.realpath(path)
        folders = [os.path.realpath(folder) for folder in (self.folder, self._model_folder.linked) if folder]
        within = any(real == folder or real.startswith(os.path.join(folder, "")) for folder in folders)
        if not within and not self._model_folder.allow_links:
            raise ModelFileError(
                f"{title} is in {quoted(location)}, a link out of the model's folder; {self._remedy}"
            )
        return real

    def _check_status(self, status: os.stat_result, location: str, title: str) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(f"{title} is in {quoted(location)}, which is not a regular file")
        if status.st_nlink > 1 and not self._model_folder.allow_links:
            raise ModelFileError(
                f"{title} is in {quoted(location)}, which has hard links, perhaps outside of the model's "
                f"folder; {self._remedy}"
            )


def _check_range(file: StoredFile, location: str, offset: int, size: int, title: str) -> None:
    if offset + size > file.size:
        raise _too_short(file.path, location, offset, size, file.size, title)


def _too_short(
    path: str, location: str, offset: int, size: int, file_size: int, title: str
) -> ModelFileError:
    """The error for a file that ends before a tensor; it may be the pointer to a file, or a web page."""
    file_format = describe_format(path)
    reason = f"which is {file_format}"
    if file_format is None:
        reason = (
            f"which has {file_size} bytes: it is truncated, or another model's; download or copy it again"
        )
    return ModelFileError(f"{title} is {size} bytes at {offset} in {quoted(location)}, {reason}")


def _open_file(path: str, flags: int) -> int:
    """Open the file that was checked before; refuse links, and do not wait for pipes."""
    # Between the check and the opening somebody may have replaced the file by a link or a pipe.
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
        flags |= getattr(os, name, 0)
    return os.open(path, flags)


def check_relative(location: str, title: str) -> None:
    """Refuse a path that leads out of its folder on any operating system."""
    # A model written on one system may be read on another: apply the rules of both everywhere.
    windows = pathlib.PureWindowsPath(location)
    if not location or "\0" in location:
        raise ModelFileError(f"{title} has external data without a location, or with a NUL in it")
    if windows.drive or windows.root or location.startswith("/"):
        raise ModelFileError(f"{title} is in {quoted(location)}: external data must be in the model's folder")
    if ".." in windows.parts:
        raise ModelFileError(f"{title} is in {quoted(location)}: external data must be in the model's folder")


def _number(entries: dict[str, str], key: str, title: str) -> int | None:
    if key not in entries:
        return None
    if _NUMBER.fullmatch(entries[key]) is None:
        raise ModelFileError(f"{title} has external data at the {key} {quoted(entries[key])}")
    return int(entries[key])
