"""Removes checks of losses that read values, which a capture cannot do."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import torch

from ...process.process_state import replace_attribute


@contextlib.contextmanager
def skip_variance_check() -> Iterator[None]:
    """Capture `gaussian_nll_loss` without its check that no variance is negative."""
    original: Callable[..., torch.Tensor] = torch.nn.functional.gaussian_nll_loss

    @functools.wraps(original)
    def gaussian_nll_loss(*args: object, **kwargs: object) -> torch.Tensor:
        # The check is the only use of `any`; a negative variance is clamped to `eps` after it.
        with replace_attribute(torch, "any", lambda *condition: False):
            return original(*args, **kwargs)

    with replace_attribute(torch.nn.functional, "gaussian_nll_loss", gaussian_nll_loss):
        yield
