"""Refuses gradients that a capture would lose without notice: those of `autograd.Function`, and hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.function import _SingleLevelFunction

from .....registration import CaptureError
from ...process.process_state import replace_attribute

_ON_MODULES = ("_backward_hooks", "_backward_pre_hooks")
_ON_PARAMETERS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@contextlib.contextmanager
def refuse_custom_gradients() -> Iterator[None]:
    """Raise an error if a model uses them within the context.

    `apply` of the base class is patched, because a model may hold `Function.apply` as a bound method.
    """
    base: Any = _SingleLevelFunction
    base.apply = classmethod(_apply)
    try:
        with replace_attribute(torch.Tensor, "register_hook", _register_hook):
            yield
    finally:
        del base.apply


def check_hooks(model: torch.nn.Module) -> None:
    """Refuse a model with hooks on its gradients.

    Raises:
        CaptureError: a module or a parameter has such a hook.
    """
    for owner, items, names in (
        ("module", model.named_modules(), _ON_MODULES),
        ("parameter", model.named_parameters(), _ON_PARAMETERS),
    ):
        for path, item in items:
            if any(getattr(item, name, None) for name in names):
                raise CaptureError(
                    f"{owner} '{path}' has a hook on its gradients, which cannot be exported: remove the hook"
                )


def _apply(function_class: Any, /, *args: object, **kwargs: object) -> Any:
    package, _, inner = function_class.__module__.partition(".")
    if package == "torch" and inner.startswith("_"):
        # torch's own functions, which implement higher-order operators.
        return super(_SingleLevelFunction, function_class).apply(*args, **kwargs)
    raise CaptureError(
        f"torch.export does not record the backward of autograd.Function {function_class.__name__}: define "
        "it with torch.library.custom_op and register_autograd, or "
        "write its forward in differentiable operators"
    )


def _register_hook(tensor: torch.Tensor, hook: object) -> object:
    raise CaptureError("torch.export does not record hooks on gradients (Tensor.register_hook)")
