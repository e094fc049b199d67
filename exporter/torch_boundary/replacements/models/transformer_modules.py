"""Captures `nn.Transformer`, its encoder and decoder as separate layers instead of fused kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.nn.modules import transformer

from ...process.process_state import replace_attribute


def _is_declared_causal(mask: object, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Return the flag instead of testing the mask's values; the answer only selects a kernel."""
    return is_causal is True


@contextlib.contextmanager
def disable_fused_attention() -> Iterator[None]:
    """Make the modules run layer by layer within the context.

    The fused kernels, which eager PyTorch uses for some inputs, set padded positions to zero. The captured
    layers do not.
    """
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextlib.contextmanager
def skip_mask_test() -> Iterator[None]:
    """Skip the modules' test for causal masks, which torch.export cannot trace."""
    with (
        replace_attribute(transformer, "_detect_is_causal_mask", _is_declared_causal),
        disable_fused_attention(),
    ):
        yield
