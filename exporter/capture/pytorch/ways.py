"""The ways to capture a PyTorch model, and which of them to try after a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from ....passes.faults import is_fault, raise_fault
from ....registration import CaptureError
from ...torch_boundary import probe
from ...torch_boundary.process.process_state import has_compiled_code
from ..direct.refusals import LoopRefused, NotRecordable
from ..user_lines import user_line_of
from .failures import (
    is_about_sizes,
    is_caught_assertion,
    is_decision,
    is_fixed_by_condition,
    is_recognised,
    lacks_shapes,
    may_help,
    reads_value,
    returns_object,
)

Result = TypeVar("Result")
SAME_CONDITION = (
    "torch.export was not tried: it tests the same condition on the size; capture='torch.export' and "
    "capture='strict' try it"
)
STRICT_SKIPPED = "strict capture was not tried: it would empty the caches of your compiled functions"


class Failures(Exception):
    """No way captured the model.

    Attributes:
        errors: the error of each way that was tried, in order.
        notes: the reasons why ways that may help were not tried.
        reads_values: whether code of the model asked for the value of a tensor.
    """

    def __init__(self, errors: Mapping[str, Exception], notes: list[str], reads_values: bool = False):
        self.errors = dict(errors)
        self.notes = notes
        self.reads_values = reads_values
        super().__init__(", ".join(errors))

    @property
    def explained(self) -> Exception:
        """The error that is most useful to the user."""
        ways = ("torch.export", "gradients", "direct", "strict")
        ordered_errors = [self.errors[way] for way in ways if way in self.errors]
        clearest = next(
            (error for error in ordered_errors if not isinstance(error, NotRecordable)), ordered_errors[0]
        )
        direct = self.errors.get("direct")
        # It names what the loop does; other ways only see that a size is fixed.
        if isinstance(direct, LoopRefused):
            return direct
        # Only a trace captures TorchScript parts; the other ways fail for reasons of their own.
        if "trace" in self.errors and isinstance(direct, NotRecordable):
            return self.errors["trace"]
        # Direct capture names the line that fixed a size, so prefer its error. Where torch.export fixes
        # the size silently, the model may fail later with an unrelated error.
        is_explained = isinstance(direct, CaptureError) and not isinstance(direct, NotRecordable)
        is_better = direct is not None and (is_explained or is_about_sizes(direct))
        is_better = is_better and (is_about_sizes(clearest) or not is_recognised(clearest))
        return direct if direct is not None and is_better else clearest


def capture_by(
    by: str,
    specialize: bool,
    attempt: Callable[[str, bool], Result],
    eager_error: Callable[[], Exception | None],
) -> Result:
    """Capture by the given way; "auto" tries another way after a failure that it may avoid.

    Args:
        by: "auto", "direct", "torch.export" or "strict".
        specialize: fix decisions that depend on inputs, where no way captures the model without.
        attempt: captures by a way; with the values of the example where the second argument is True.
        eager_error: the error of the model in PyTorch itself, where that can be tried, or None.

    Raises:
        Failures: no way captured the model.
        Fault: opsetta failed.
    """
    if by == "direct":
        probe.require(probe.DIRECT_CAPTURE)
    errors: dict[str, Exception] = {}
    notes: list[str] = []
    ways = [by] if by != "auto" else ["torch.export", "strict"]
    if by == "auto" and probe.has(probe.DIRECT_CAPTURE):
        ways.insert(0, "direct")
    for way in ways:
        if errors and not _may_cure(way, errors):
            continue
        # PyTorch runs a model many times faster than torch.export captures it.
        if errors and way == "torch.export" and _is_of_model(errors["direct"], eager_error):
            break
        if errors and way == "strict":
            # Strict capture would empty the caches of functions that the user compiled with torch.compile.
            if has_compiled_code():
                notes.append(STRICT_SKIPPED)
                continue
            if eager_error() is not None:
                break
        try:
            return attempt(way, False)
        except Exception as error:
            errors[way] = error
            if is_fault(error):
                _report(error, way, eager_error)
                break
            # Both ways of torch.export take many times as long to find the same.
            if by == "auto" and is_fixed_by_condition(error):
                notes.append(SAME_CONDITION)
                break
    # With the values of the example, the model may fail for another reason.
    reads_values = any(map(reads_value, errors.values()))
    if specialize and "direct" in errors and not isinstance(errors["direct"], NotRecordable):
        try:
            return attempt("direct", True)
        except Exception as error:
            errors["direct"] = error
            if is_fault(error):
                _report(error, "direct", eager_error)
    raise Failures(errors, notes, reads_values)


def _report(error: Exception, way: str, eager_error: Callable[[], Exception | None]) -> None:
    """Raise `Fault`, unless the model fails in PyTorch too: then the error is the model's."""
    if eager_error() is None:
        raise_fault(error, f"in the capture '{way}' of the model")


def _is_of_model(error: Exception, eager_error: Callable[[], Exception | None]) -> bool:
    """Whether a failure of direct capture is the model's own: PyTorch fails alike, at the same line."""
    if is_recognised(error):
        return False
    eager = eager_error()
    return type(eager) is type(error) and user_line_of(eager) == user_line_of(error)


def _may_cure(way: str, errors: Mapping[str, Exception]) -> bool:
    """Whether a way may capture a model for which others failed."""
    last = list(errors.values())[-1]
    if way == "torch.export":
        from ...torch_boundary.recording.gradients import OtherGradients

        # torch.export runs the same Python code on the same fake tensors as direct capture: code that reads
        # a value fails in both, and so do an operator without shapes and a result of another class.
        is_same = reads_value(last) or lacks_shapes(last) or returns_object(last)
        return not (is_same or isinstance(last, OtherGradients))
    if isinstance(last, CaptureError) or not may_help("strict", last):
        return False
    # TorchDynamo refuses a branch on values, too, after many times as long.
    if reads_value(last) and is_decision(last):
        return False
    # TorchDynamo would leave out the code that handles the failed assertion.
    return not any(map(is_caught_assertion, errors.values()))
