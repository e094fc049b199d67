"""Warns at the line of the user's code that called opsetta."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import sys
import types
import warnings

from .printable import printable

_FOLDER = pathlib.Path(__file__).parent.parent
_SKIPPED = (
    *(
        f"{folder / name}{os.sep}"
        for folder in (_FOLDER, _FOLDER.resolve())
        for name in ("registration", "symbolics", "passes", "exporter", "torch_onnx")
    ),
    contextlib.__file__,
    functools.__file__,
    "<@beartype",
    "<frozen ",
)
"""Beginnings of the file names of frames that are not the caller's."""
_LIBRARIES = ("/torch/", "/beartype/")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line of code that belongs neither to opsetta nor to torch.

    At the command line, such a warning is printed without a line.
    """
    frame: types.FrameType | None = sys._getframe(1)
    caller = frame
    while frame is not None and _is_skipped(frame.f_code.co_filename):
        frame = frame.f_back
    caller = frame or caller
    assert caller is not None
    item = category(message)
    item.is_of_opsetta = True  # type: ignore[attr-defined]
    warnings.warn_explicit(
        item,
        category,
        caller.f_code.co_filename,
        caller.f_lineno,
        caller.f_globals.get("__name__") or "<unknown>",
        caller.f_globals.setdefault("__warningregistry__", {}),
    )


def command_line_text(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as a command prints it, without a line of Python; for `warnings.formatwarning`."""
    text = printable(str(message))
    if getattr(message, "is_of_opsetta", False):
        return f"opsetta: warning: {text}\n"
    return f"{filename}:{lineno}: {category.__name__}: {text}\n"


def _is_skipped(filename: str) -> bool:
    if filename.startswith(_SKIPPED):
        return True
    path = filename.replace("\\", "/")
    return any(f"site-packages{name}" in path for name in _LIBRARIES)
