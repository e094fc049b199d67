"""Tells bugs of opsetta from errors of a model or of torch, and reports bugs as `Fault`."""

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
_SOURCE_FOLDERS = tuple(
    str(_PACKAGE / name) + os.sep for name in "exporter passes registration symbolics torch_onnx".split()
)
_LIBRARIES = ("onnx", "onnx_ir", "sympy")
"""Packages that opsetta calls, and models do not."""
_ENVIRONMENT_ERRORS = (ImportError, MemoryError, OSError, RecursionError, Warning)
"""Exceptions that correct code raises too, because of its environment."""


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
        is_possible = module in ("builtins", *_LIBRARIES) and not isinstance(current, _ENVIRONMENT_ERRORS)
        if is_possible and _is_raised_by_opsetta(current):
            return True
        current = current.__cause__
    return False


def _is_raised_by_opsetta(error: BaseException) -> bool:
    frames: list[tuple[types.CodeType, int]] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code, trace.tb_lasti))
        trace = trace.tb_next
    is_of_library = False
    while frames and _is_of_library(frames[-1][0].co_filename):
        frames.pop()
        is_of_library = True
    if not frames or not frames[-1][0].co_filename.startswith(_SOURCE_FOLDERS):
        return False
    code, offset = frames[-1]
    instruction = dis.opname[code.co_code[offset]]
    if isinstance(error, RuntimeError):
        # torch's C++ code raises RuntimeError for errors of the model; it has no frame of its own.
        return instruction == "RAISE_VARARGS"
    # `f(*args)` forwards a call of the model, and a C function that fails there has no frame either.
    return is_of_library or instruction != "CALL_FUNCTION_EX"


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
            f"pass {name} failed{_describe_failing_node(error)}: {type(error).__name__}: {error}",
            REPORT,
            remedy(),
        ]
        raise Fault(". ".join(filter(None, sentences))) from error


def run_pass(graph_pass: ir.passes.PassBase, model: ir.Model, remedy: str = "") -> ir.passes.PassResult:
    """Run a pass on a model; exceptions of passes that opsetta does not define stay unchanged.

    Raises:
        OpsettaError: see `faults_of`.
    """
    if type(graph_pass).__module__.partition(".")[0] != __name__.partition(".")[0]:
        return graph_pass(model)
    with faults_of(type(graph_pass).__name__, lambda: remedy):
        return graph_pass(model)


def _describe_failing_node(error: BaseException) -> str:
    """The node that the pass was rewriting, for messages.

    Rewrite functions call it `node`, so this reads that variable of the innermost call that has one.
    """
    failing_node: ir.Node | None = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        local = frame.f_locals.get("node")
        failing_node = local if isinstance(local, ir.Node) else failing_node
    if failing_node is None:
        return ""
    operator = (
        f"{failing_node.domain}::{failing_node.op_type}" if failing_node.domain else failing_node.op_type
    )
    return f" at node '{failing_node.name}' ({operator})"
