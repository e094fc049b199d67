"""Assigns to a local variable of a running function, as a debugger does."""

from __future__ import annotations

import ctypes
import types


def set_local(frame: types.FrameType, name: str, value: object) -> None:
    """Assign to a variable of a frame."""
    variables = frame.f_locals
    variables[name] = value
    # Before Python 3.13, `f_locals` is a copy, which this function of CPython writes back.
    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
