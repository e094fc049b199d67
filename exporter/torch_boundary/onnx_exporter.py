"""The state of torch's own ONNX exporter: its flag, and the symbolic functions registered with it."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Callable, Iterator

import torch

from . import probe

_REGISTRATION = "torch.onnx._internal.torchscript_exporter.registration"


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Make `torch.onnx.is_in_onnx_export()` true; run inside `boundary`, because the flag is global."""
    if not probe.has(probe.ONNX_FLAG):
        yield
        return
    from torch.onnx._internal.exporter import _flags

    # torch.onnx has already set the flag if this export runs inside one of its own.
    before = _flags._is_onnx_exporting
    _flags._is_onnx_exporting = True
    try:
        yield
    finally:
        _flags._is_onnx_exporting = before


def registered_functions() -> list[tuple[str, int, Callable[..., object]]]:
    """The functions of `torch.onnx.register_custom_op_symbolic`, as (name, opset, function)."""
    # Importing the module takes long, and nothing is registered before it is imported.
    if _REGISTRATION not in sys.modules or not probe.has(probe.ONNX_FUNCTIONS):
        return []
    from torch.onnx._internal.torchscript_exporter.registration import registry

    return [
        (name, opset, function)
        for name, group in registry._registry.items()
        for opset, function in group._functions._overrides.items()
    ]


def modules_of_symbolic_functions(name: str) -> list[types.ModuleType]:
    """Return the modules of `torch.onnx.<name>`: the public one, and the one that defines its members.

    `from torch.onnx import symbolic_helper` returns one or the other, by what was imported before.
    """
    before = vars(torch.onnx).get(name)
    modules = [importlib.import_module(f"torch.onnx.{name}")]
    if before is not None:
        # The import has replaced the attribute.
        setattr(torch.onnx, name, before)
    if probe.has(probe.ONNX_FUNCTIONS):
        import torch.onnx._internal.torchscript_exporter as definitions

        modules += [vars(definitions)[name]] if name in vars(definitions) else []
    return modules
