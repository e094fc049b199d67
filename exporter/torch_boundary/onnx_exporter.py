"""The state of torch's own ONNX exporter: its flag, and the symbolic functions registered with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from . import probe


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Make `torch.onnx.is_in_onnx_export()` true; run inside `boundary`, because the flag is global."""
    if not probe.has(probe.ONNX_FLAG):
        yield
        return
    from torch.onnx._internal.exporter import _flags

    # An export within torch.onnx's own has set the flag already.
    before = _flags._is_onnx_exporting
    _flags._is_onnx_exporting = True
    try:
        yield
    finally:
        _flags._is_onnx_exporting = before


def registered_functions() -> list[tuple[str, int, Callable[..., object]]]:
    """The functions of `torch.onnx.register_custom_op_symbolic`, as (name, opset, function)."""
    if not probe.has(probe.ONNX_FUNCTIONS):
        return []
    from torch.onnx._internal.torchscript_exporter.registration import registry

    return [
        (name, opset, function)
        for name, group in registry._registry.items()
        for opset, function in group._functions._overrides.items()
    ]
