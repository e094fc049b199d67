"""Leaves out attention masks of transformers that mask nothing, as its models do outside of an export.

In an export transformers does not test whether a padding mask masks anything, because that would read its
values, and makes the mask even if there is none. Some models then fail: Informer shortens its sequences
between layers, but not the mask.
Semantics: `_ignore_bidirectional_mask_sdpa` in transformers/masking_utils.py.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import torch

from ...process.process_state import replace_attribute

_MASKS = "transformers.masking_utils"
_TEST = "_ignore_bidirectional_mask_sdpa"


@contextlib.contextmanager
def omit_full_masks() -> Iterator[None]:
    """Leave out bidirectional masks without padding within the context, if transformers is imported."""
    module = sys.modules.get(_MASKS)
    original: Callable[..., bool] | None = getattr(module, _TEST, None)
    if original is None:
        yield
        return
    answer = original

    def allows_everything(
        padding_mask: torch.Tensor | None, kv_length: int, local_attention_size: int | None = None
    ) -> bool:
        # With a local attention size, it would have to be compared with a dynamic length: a branch.
        if padding_mask is None and local_attention_size is None:
            return True
        return answer(padding_mask, kv_length, local_attention_size)

    with replace_attribute(module, _TEST, allows_everything):
        yield
