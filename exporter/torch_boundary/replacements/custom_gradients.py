"""Refuses gradients that a capture would lose without notice: those of `autograd.Function`, and hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.function import _SingleLevelFunction

from ....registration import CaptureError
from ..process.process_state import replaced

_ON_MODULES = ("_backward_hooks", "_backward_pre_hooks")
_ON_PARAMETERS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Raise an error where a model uses them within the context.

    `Function.apply`, which a model may hold as a bound method, calls that of its base class.
    """
    base: Any = _SingleLevelFunction
    base.apply = classmethod(_apply)
    try:
        with replaced(torch.Tensor, "register_hook", _register_hook):
            yield
    finally:
        del base.apply


def check_hooks(model: torch.nn.Module) -> None:
    """Refuse a model with hooks on its gradients.

    Raises:
        CaptureError: a module or a parameter has one.
    """
    for kind, items, names in (
        ("module", model.named_modules(), _ON_MODULES),
        ("parameter", model.named_parameters(), _ON_PARAMETERS),
    ):
        for path, item in items:
            if any(getattr(item, name, None) for name in names):
                raise CaptureError(
                    f"{kind} '{path}' has a hook on its gradients, which cannot be exported: remove the hook"
                )


def _apply(kind: Any, *args: Any, **kwargs: Any) -> Any:
    package, _, inner = kind.__module__.partition(".")
    if package == "torch" and inner.startswith("_"):
        # Of higher-order operators.
        return super(_SingleLevelFunction, kind).apply(*args, **kwargs)
    raise CaptureError(
        f"torch.export does not record the backward of autograd.Function {kind.__name__}: define it with "
        "torch.library.custom_op and register_autograd, or write its forward in differentiable operators"
    )


def _register_hook(tensor: torch.Tensor, hook: Any) -> Any:
    raise CaptureError("torch.export does not record hooks on gradients (Tensor.register_hook)")
