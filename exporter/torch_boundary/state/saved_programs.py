"""Loads programs of `torch.export.save`, also GPU programs on a machine without a GPU."""

from __future__ import annotations

import contextlib
import functools

import torch

from .. import probe
from ..boundary import boundary
from ..process.process_state import replace_attribute
from ..process.silence import suppress_logs

_CPU = torch.device("cpu")


def load_program(path: str) -> torch.export.ExportedProgram:
    """Load a program; without an accelerator, all its tensors are loaded to the CPU.

    The graph keeps the device of its capture, on which autocast depends. `torch.export.load` has no
    `map_location`, and fails for tensors of a device that the machine lacks.
    """
    # torch logs the traceback of its first attempt before it tries the format of older releases.
    with suppress_logs():
        return _load(path)


def _load(path: str) -> torch.export.ExportedProgram:
    if torch.accelerator.is_available():
        return torch.export.load(path)
    with boundary(), contextlib.ExitStack() as stack:
        load_on_cpu = functools.partial(torch.load, map_location=_CPU)
        stack.enter_context(replace_attribute(torch, "load", load_on_cpu))
        if probe.has(probe.SAVED_PROGRAMS):
            from torch.export.pt2_archive import _package

            stack.enter_context(replace_attribute(_package, "deserialize_device", lambda device: _CPU))
        return torch.export.load(path)
