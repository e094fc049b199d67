"""torch's `nn.Transformer`, encoder and decoder as what they compute, whichever kernel would compute it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules import transformer


def _is_causal_if_said(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """A mask that happens to be causal masks as any other does: only the kernel would be another."""
    return is_causal is True


@contextlib.contextmanager
def without_fused_attention() -> Iterator[None]:
    """Within it, the modules run layer by layer.

    Their fused kernels, which eager PyTorch takes for some inputs, set what is padded to zero; the layers do
    not, and they are what is captured.
    """
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextlib.contextmanager
def captured() -> Iterator[None]:
    """Within it, the modules do not ask whether a mask is causal, which torch.export cannot answer."""
    held = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = _is_causal_if_said
    try:
        with without_fused_attention():
            yield
    finally:
        transformer._detect_is_causal_mask = held
