"""Turns a fault of a pass into an error that names the pass and the node."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator

import onnx_ir as ir

from ..registration import OpsettaError


@contextlib.contextmanager
def faults_of(name: str, remedy: Callable[[], str] = str) -> Iterator[None]:
    """Run a pass inside; an exception that opsetta does not raise on purpose is a fault of the pass.

    Args:
        name: the name of the pass.
        remedy: returns what the caller may do instead; called only after a fault.

    Raises:
        OpsettaError: the pass raised it, or it failed otherwise.
    """
    try:
        yield
    except OpsettaError:
        raise
    except Exception as error:
        sentences = [
            f"pass {name} failed{_place_of(error)}: {type(error).__name__}: {error}",
            "This is a fault of opsetta: please report it, with the model if you can",
            remedy(),
        ]
        raise OpsettaError(". ".join(filter(None, sentences))) from error


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
