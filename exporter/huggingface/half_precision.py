"""Models in float16 that clamp their hidden states where some are infinite, such as BART and DETR."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class _FiniteQuestion:
    """The result of `torch.isfinite`: it answers one question only, so that no other use of it is wrong."""

    def all(self) -> bool:
        """Whether all elements are finite: no, so that the model clamps them."""
        return False


@contextlib.contextmanager
def clamp_always() -> Iterator[None]:
    """Within the context, `if not torch.isfinite(states).all()` is true for states in float16.

    A graph cannot have the branch of the example only. The states are then clamped to the largest number less
    1000, which does not change smaller ones.
    """
    import torch

    from ..torch_boundary.process.process_state import replace_attribute

    isfinite = torch.isfinite

    def isfinite_or_question(input: torch.Tensor) -> torch.Tensor | _FiniteQuestion:
        return _FiniteQuestion() if input.dtype == torch.float16 else isfinite(input)

    with replace_attribute(torch, "isfinite", isfinite_or_question):
        yield
