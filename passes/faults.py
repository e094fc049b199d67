"""Tells faults of opsetta from errors of a model or of torch, and reports them as what they are."""

from __future__ import annotations

import contextlib
import dis
import os
import pathlib
import traceback
import types
from collections.abc import Callable, Iterator

import onnx_ir as ir

from ..registration import OpsettaError

REPORT = "This is a fault of opsetta: please report it, with the model if you can"
_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_FOLDERS = tuple(
    str(_PACKAGE / name) + os.sep for name in "exporter passes registration symbolics torch_onnx".split()
)
_LIBRARIES = ("onnx", "onnx_ir", "sympy")
"""Packages that opsetta calls, and models do not."""
_OF_SURROUNDINGS = (ImportError, MemoryError, OSError, RecursionError, Warning)
"""Exceptions that code without a fault raises too."""


class Fault(OpsettaError):
    """Opsetta failed by a fault of its own; `__cause__` is the exception."""


def is_fault(error: BaseException) -> bool:
    """Whether an exception, or one that it is raised from, comes from opsetta's own code.

    It does if the innermost frame is opsetta's, apart from frames of the libraries that only opsetta calls.
    Functions of torch that are written in C have no frame. So an exception of a call with `*args`, which
    passes on what a model calls, is not opsetta's; nor is a `RuntimeError`, unless opsetta raises it.
    Exceptions of opsetta's own classes are raised on purpose.
    """
    current: BaseException | None = error
    while current is not None:
        module = type(current).__module__.partition(".")[0]
        if isinstance(current, Fault):
            return True
        if isinstance(current, OpsettaError):
            return False
        is_possible = module in ("builtins", *_LIBRARIES) and not isinstance(current, _OF_SURROUNDINGS)
        if is_possible and _is_raised_by_opsetta(current):
            return True
        current = current.__cause__
    return False


def _is_raised_by_opsetta(error: BaseException) -> bool:
    frames = [(frame.f_code, trace.tb_lasti) for trace, frame in _traced_frames(error)]
    is_of_library = False
    while frames and _is_of_library(frames[-1][0].co_filename):
        frames.pop()
        is_of_library = True
    if not frames or not frames[-1][0].co_filename.startswith(_FOLDERS):
        return False
    code, offset = frames[-1]
    instruction = dis.opname[code.co_code[offset]]
    if isinstance(error, RuntimeError):
        return instruction == "RAISE_VARARGS"
    return is_of_library or instruction != "CALL_FUNCTION_EX"


def _traced_frames(error: BaseException) -> Iterator[tuple[types.TracebackType, types.FrameType]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace, trace.tb_frame
        trace = trace.tb_next


def _is_of_library(file: str) -> bool:
    return any(f"site-packages{os.sep}{name}{os.sep}" in file for name in _LIBRARIES)


def raise_fault(error: BaseException, activity: str) -> None:
    """Raise `Fault` if an exception is a fault of opsetta; return for all others.

    Args:
        activity: what opsetta did, such as "when it captured the model".
    """
    if isinstance(error, Fault):
        raise error
    if is_fault(error):
        raise Fault(f"opsetta failed {activity}: {type(error).__name__}: {error}. {REPORT}") from error


@contextlib.contextmanager
def faults_reported(activity: str) -> Iterator[None]:
    """Report faults of opsetta inside as such; other exceptions are unchanged.

    Raises:
        Fault: see `raise_fault`.
    """
    try:
        yield
    except Exception as error:
        raise_fault(error, activity)
        raise


@contextlib.contextmanager
def faults_of(name: str, remedy: Callable[[], str] = str) -> Iterator[None]:
    """Run a pass inside; an exception that opsetta does not raise on purpose is a fault of the pass.

    Args:
        name: the name of the pass.
        remedy: returns what the caller may do instead; called only after a fault.

    Raises:
        OpsettaError: the pass raised it.
        Fault: the pass failed otherwise.
    """
    try:
        yield
    except OpsettaError:
        raise
    except Exception as error:
        sentences = [
            f"pass {name} failed{_place_of(error)}: {type(error).__name__}: {error}",
            REPORT,
            remedy(),
        ]
        raise Fault(". ".join(filter(None, sentences))) from error


def run_pass(each: ir.passes.PassBase, model: ir.Model, remedy: str = "") -> ir.passes.PassResult:
    """Run a pass on a model. What a pass of somebody else raises is not changed.

    Raises:
        OpsettaError: see `faults_of`.
    """
    if type(each).__module__.partition(".")[0] != __name__.partition(".")[0]:
        return each(model)
    with faults_of(type(each).__name__, lambda: remedy):
        return each(model)


def _place_of(error: BaseException) -> str:
    """The node that was rewritten, for messages: the variable `node` of the innermost call that has one."""
    found: ir.Node | None = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        local = frame.f_locals.get("node")
        found = local if isinstance(local, ir.Node) else found
    if found is None:
        return ""
    operator = f"{found.domain}::{found.op_type}" if found.domain else found.op_type
    return f" at node '{found.name}' ({operator})"
