"""Names lines of code for messages and files: by module path or file name, never by a path on a machine."""

from __future__ import annotations

import functools
import pathlib
import re
import sys
import types

_INSTALLED = ("site-packages", "dist-packages")


def shown_line(file: str, line: int | str) -> str:
    """Name a line of code: `models/net.py:12` for a line of the module `models.net`, else `net.py:12`.

    The text depends neither on the folder of the code nor on the working directory.
    """
    return f"{shown_file(file)}:{line}"


def shown_frame(frame: str) -> str:
    """Name a line of code by its text in a stack trace: `File "model.py", line 12, in forward`."""
    path, _, numbered = frame.strip().removeprefix('File "').partition('", line ')
    return shown_line(path, re.match(r"\d*", numbered)[0])  # type: ignore[index]


@functools.lru_cache(maxsize=4096)
def shown_file(file: str) -> str:
    """Name a file of code: the path of its module, else the file name; `<stdin>` and such are unchanged."""
    # Code of a console or of `exec` has no file.
    if not file or file.startswith("<"):
        return file or "<unknown>"
    # A stack trace may come from a program that was captured on Windows.
    segments = re.split(r"[/\\]", file)
    for position in range(len(segments) - 1, 0, -1):
        if segments[position - 1] in _INSTALLED:
            return "/".join(segments[position:])
    return _module_path(file, segments) or segments[-1]


def _module_path(file: str, parts: list[str]) -> str:
    """Return the end of a path that spells its module's name, `models/net.py`; "" if none is imported."""
    longest = ""
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType):
            continue
        # Reading an attribute of a lazy module may import others, so its `__dict__` is read.
        attributes = object.__getattribute__(module, "__dict__")
        if attributes.get("__file__") != file:
            continue
        segments = name.split(".")
        if pathlib.PurePath(parts[-1]).stem == "__init__":
            segments.append("__init__")
        stems = [*parts[:-1], pathlib.PurePath(parts[-1]).stem]
        if stems[-len(segments) :] == segments:
            longest = max(longest, "/".join([*segments[:-1], parts[-1]]), key=len)
    return longest
