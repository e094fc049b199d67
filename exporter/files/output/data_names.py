"""The names of data files, and which graphs of a folder refer to them."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
from collections.abc import Iterable

from ....registration import ModelFileError
from ..weights.message import varint
from .output_paths import ResolvedPath

TEMPORARY = re.compile(r"\.opsetta-[0-9a-f]{16}\.part")
_DATA = re.compile(r"\.(?P<digest>[0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{64})\.data\Z")
"""The end of a data file's name, after the graph's."""
_LOCATION = b"\x0a\x08location\x12"
"""The start of an external data entry in a message, up to the length of the file name."""
_LARGEST_GRAPH = 2**31 - 1
"""Bytes of a protobuf message at most."""


def names_in(folder: str) -> list[str]:
    """The files of a folder, links included."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        # A folder may be another process's, and vanish while this one looks for graphs.
        return [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    # The folder cannot be listed: it may be writable but not readable.
    return []


def data_bytes(path: str | os.PathLike[str]) -> int:
    """Return the total bytes of the data files that a graph refers to, except those with a fixed name."""
    folder, graph = os.path.split(os.path.abspath(path))
    needles = data_needles(folder, graph)
    mentions = find_mentions([os.fspath(path)], needles.values())
    return sum(
        os.stat(os.path.join(folder, name)).st_size for name, needle in needles.items() if needle in mentions
    )


def data_needles(folder: str, graph: str) -> dict[str, bytes]:
    """The data files of a graph, also of earlier versions of it, and the text that refers to each of them."""
    matches = {name: _DATA.search(name) for name in names_in(folder) if name.startswith(f"{graph}.")}
    return {
        name: f".{match['digest']}.data".encode()
        for name, match in matches.items()
        if match is not None and match.start() == len(graph)
    }


def graphs_in(folder: str) -> list[str]:
    """The files of a folder that may be graphs: all except data files and opsetta's hidden files."""
    names = [name for name in names_in(folder) if not _DATA.search(name) and not TEMPORARY.fullmatch(name)]
    return [os.path.join(folder, name) for name in names]


def find_mentions(paths: Iterable[str], needles: Iterable[bytes]) -> set[bytes]:
    """The needles that at least one of the graphs contains; all of them if a graph cannot be read."""
    missing = set(needles)
    named: set[bytes] = set()
    for path in paths:
        if not missing:
            break
        try:
            status = os.stat(path)
            # An empty file cannot be mapped, and a larger one is no graph.
            if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= _LARGEST_GRAPH:
                continue
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                named |= {needle for needle in missing if content.find(needle) >= 0}
        except PermissionError:
            continue
        except (OSError, ValueError):
            if os.path.islink(path) and not os.path.exists(path):
                continue
            # It was renamed a moment ago.
            return named | missing
        missing -= named
    return named


def check_data_name(target: ResolvedPath, name: str) -> None:
    """Refuse a fixed name that belongs to another file."""
    # A model written on one system may be read on another, so the rules of all systems apply.
    windows = os.path.splitdrive(name)[0] or ":" in name
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name or windows:
        raise ModelFileError(f"external data needs the name of a file in the model's folder, not {name!r}")
    # Some file systems ignore the case of names.
    if name.casefold() == target.name.casefold() or TEMPORARY.fullmatch(name):
        raise ModelFileError(f"external data cannot have the name '{name}'")
    path = os.path.join(target.folder, name)
    if not os.path.lexists(path):
        return
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"'{path}' cannot be written: it is not a regular file")
    # The forms of the name in a binary message, in text format and in JSON.
    encoded = name.encode(errors="surrogateescape")
    needles = [_LOCATION + varint(len(encoded)) + encoded, f'"{name}"'.encode(errors="surrogateescape")]
    # torch.onnx leaves an empty file beside a model without external data.
    if status.st_size and not find_mentions([target.path] if target.status is not None else [], needles):
        raise ModelFileError(
            f"'{path}' exists already, but is not the data of '{target.shown}': remove it, or choose "
            "another name"
        )
    if find_mentions([p for p in graphs_in(target.folder) if p not in (target.path, path)], needles):
        raise ModelFileError(f"'{path}' is also the data of another model: choose another name")
