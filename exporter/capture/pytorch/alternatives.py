"""After a failed capture, tries other ways to capture a copy of the model, to recommend those that work."""

from __future__ import annotations

import contextlib
import copy
import io
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import torch

from ....passes.faults import raise_fault
from ....registration import CaptureError
from ...torch_boundary.boundary import boundary
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import FakeTensor
from ...torch_boundary.process.process_state import has_compiled_code
from ...torch_boundary.process.silence import quiet
from ...torch_boundary.replacements.models.transformer_modules import disable_fused_attention
from ...torch_boundary.state.model_state import Preserved, referenced_objects
from ...torch_boundary.static_lookups import is_instance

SECONDS = 5.0
"""An attempt takes as long as a capture, so none is made after a failed capture that took longer."""
BYTES = 256 * 2**20
"""A model with more parameters and buffers than this is not copied."""

Captures = Mapping[str, Callable[[Any], Any]]
"""By name (strict, script, trace), a function that captures a model in that form, or raises."""

_FORMS = {
    "strict": "strict=True",
    "script": "torch.jit.script(model)",
    "trace": "torch.jit.trace(model, args)",
}


_GRADIENTS = re.compile("grad|deriv|backward", re.IGNORECASE)
_Change = Callable[[torch.Tensor], torch.Tensor]
_FRACTIONS: tuple[_Change, ...] = (lambda x: -x, lambda x: x * 0.5 + 1, torch.zeros_like)
_NUMBERS: tuple[_Change, ...] = (lambda x: x.flip(tuple(range(x.dim()))), lambda x: x // 2, torch.zeros_like)
"""Integers may be indices, so these changes stay within their range."""


class Alternatives:
    """The alternatives to the capture of a model with given arguments.

    Args:
        model: the model, which is copied, but neither run nor changed.
        call: the example arguments, `(args, kwargs)`.
        captures: the functions that capture the model in each form.
        tries_forms: whether to try the forms, each of which takes as long as a capture.

    The time from construction to the first call counts as the time of the failed capture.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        call: tuple[tuple[object, ...], Mapping[str, object]],
        captures: Captures,
        tries_forms: bool,
    ):
        self._model = model
        self._call = call
        self._captures = captures
        self._tries_forms = tries_forms
        self._eager_error: Exception | None = None
        self._has_run = False
        self._begin = time.perf_counter()
        self._seconds: float | None = None

    def __call__(self, names: Sequence[str], runs_model: bool) -> tuple[Exception | None, list[str]]:
        """Run a copy of the model in PyTorch, then try the forms; nothing is printed or left changed.

        Args:
            names: the forms.
            runs_model: whether to run the model although no forms were asked for.

        Returns:
            The exception of eager PyTorch, or None; and lines about the alternatives.
        """
        names = [name for name in names if name in self._captures]
        forms = ", ".join(_FORMS[name] for name in names)
        requested_names = names if self._tries_forms else []
        if self._seconds is None:
            self._seconds = time.perf_counter() - self._begin
        if any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves(self._call)):
            # PyTorch runs the model on arguments with data only.
            return None, []
        if self._seconds > SECONDS or _bytes(self._model) > BYTES or _reaches_state(self._model):
            return None, [f"not tried, because it would take long or need copies: {forms}"] if names else []
        untried = [f"explain=True tries other captures: {forms}"] if names and not self._tries_forms else []
        if not (runs_model or self._tries_forms or self._has_run):
            return None, untried
        # The model runs once, however often it is asked about.
        if self._has_run and (self._eager_error is not None or not requested_names):
            return self._eager_error, [] if self._eager_error is not None else untried
        # A deep copy shares the objects that its hooks and functions refer to, so these are restored, too.
        preserved = Preserved(self._model, self._call)
        # The model has already printed during the capture.
        muted = (
            contextlib.redirect_stdout(_Muted(sys.stdout)),
            contextlib.redirect_stderr(_Muted(sys.stderr)),
        )
        with boundary(quiet(), disable_fused_attention(), *muted, preserved):
            try:
                model = copy.deepcopy(self._model)
                call = _clone_tensors(self._call)
            except Exception as failure:
                # Without a copy, an attempt would change the user's model.
                raise_fault(failure, "when it copied the model")
                return None, []
            if not self._has_run:
                self._eager_error = _error_of(model, *call)
                self._has_run = True
            if self._eager_error is not None:
                return self._eager_error, []
            with torch.no_grad():
                return None, self._try_forms(requested_names) + untried

    def _try_forms(self, names: Sequence[str]) -> list[str]:
        begin = time.perf_counter()
        lines, failed, skipped = [], [], []
        for name in names:
            # Strict capture would empty the caches of the user's compiled functions.
            if time.perf_counter() - begin > SECONDS or (name == "strict" and has_compiled_code()):
                skipped.append(_FORMS[name])
                continue
            try:
                lines.append(self._try(name))
            except Exception as error:
                # After any error of torch or of the model, the alternative does not work.
                raise_fault(error, "when it tried another capture of the model")
                failed.append(_FORMS[name])
        lines += [f"tried, and fails too: {', '.join(failed)}"] if failed else []
        return lines + ([f"not tried: {', '.join(skipped)}"] if skipped else [])

    def _try(self, name: str) -> str:
        model = copy.deepcopy(self._model)
        args, kwargs = _clone_tensors(self._call)
        if name == "strict":
            self._captures[name](model)
            return "strict=True captures this model (tried)"
        if name == "script":
            self._captures[name](torch.jit.script(model))
            return (
                "opsetta.export(torch.jit.script(model), args) captures this model (tried); a script keeps "
                "branches and loops"
            )
        # Tracing runs the model, which may write to its buffers.
        example_options = {"example_kwarg_inputs": kwargs} if kwargs else {"example_inputs": args}
        if args and kwargs:
            raise CaptureError("torch.jit.trace accepts positional or keyword arguments, not both")
        traced = torch.jit.trace(copy.deepcopy(model), check_trace=False, **example_options)
        self._captures[name](traced)
        agreement_count = _agreements(model, traced, (args, kwargs))
        if agreement_count is None:
            return "torch.jit.trace(model, args) does not help: for other inputs its results differ (tried)"
        return (
            "opsetta.export(torch.jit.trace(model, args), args) captures this model (tried), but records "
            f"only the path of the example; it agreed with the model for {agreement_count} other inputs, "
            "and is wrong for inputs that take another path"
        )


def _agreements(model: Any, traced: Any, call: tuple[tuple[object, ...], dict[str, Any]]) -> int | None:
    """The number of other inputs for which a trace agrees with the model; None if it differs for one."""
    count = 0
    for changed_call in _changed_calls(call):
        answer = agrees(copy.deepcopy(model), copy.deepcopy(traced), changed_call)
        if answer is False:
            return None
        # The model refuses some values, which does not count against the trace.
        count += answer is True
    return count


def agrees(
    model: Callable[..., object],
    program: Callable[..., object],
    call: tuple[tuple[object, ...], Mapping[str, object]],
) -> bool | None:
    """Whether a TorchScript program of a model gives its results for a call; None if the model fails."""
    args, kwargs = _clone_tensors(call)
    torch.manual_seed(0)
    try:
        expected = model(*args, **kwargs)
    except Exception as error:
        raise_fault(error, "when it ran the model in PyTorch")
        return None
    args, kwargs = _clone_tensors(call)
    torch.manual_seed(0)
    try:
        actual = program(*args, **kwargs)
        torch.testing.assert_close(
            pytree.tree_leaves(actual), pytree.tree_leaves(expected), equal_nan=True, check_stride=False
        )
    except Exception as error:
        raise_fault(error, "when it ran TorchScript of the model")
        return False
    return True


def _changed_calls(
    call: tuple[tuple[object, ...], dict[str, Any]],
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The call with other values in tensors of the same shapes."""
    for number, fraction in zip(_NUMBERS, _FRACTIONS, strict=True):

        def change(tensor: torch.Tensor, number: _Change = number, fraction: _Change = fraction) -> Any:
            if tensor.dtype == torch.bool:
                return ~tensor
            return (fraction if tensor.is_floating_point() or tensor.is_complex() else number)(tensor)

        yield pytree.tree_map_only(torch.Tensor, change, call)


def _clone_tensors(
    call: tuple[tuple[object, ...], Mapping[str, object]],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = call
    result: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(
        torch.Tensor, _clone, (tuple(args), dict(kwargs))
    )
    return result


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _error_of(model: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Call the model in PyTorch, and return its exception; None if it succeeds with or without gradients.

    An operator of the model may have no derivative, and a model may differentiate in its forward. Only an
    error that mentions gradients is a reason to run the model twice.
    """
    last = None
    for gradients in dict.fromkeys([False, torch.is_grad_enabled()]):
        try:
            with torch.set_grad_enabled(gradients):
                model(*args, **kwargs)
        except Exception as error:
            raise_fault(error, "when it ran the model in PyTorch")
            last = error
            if _GRADIENTS.search(str(error)) is None:
                break
        else:
            return None
    return last


def _bytes(model: torch.nn.Module) -> int:
    # Sparse tensors have no `nbytes`.
    tensors = (*model.parameters(), *model.buffers())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _reaches_state(model: torch.nn.Module) -> bool:
    """Whether a function refers to outer state that a copy of it would share."""
    function = vars(model).get("forward")
    if type(function) is not types.FunctionType:
        return False
    state = (torch.nn.Module, torch.Tensor, list, dict, set)
    return any(is_instance(item, state) for item in referenced_objects(function))


class _Muted(io.TextIOBase):
    """A stream that passes on only what other threads write."""

    def __init__(self, stream: TextIO | None):
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        """Pass on what another thread writes."""
        if self._stream is not None and threading.get_ident() != self._thread:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the underlying stream."""
        if self._stream is not None:
            self._stream.flush()
