"""Reflect padding of audio codecs, without a branch on the length.

EnCodec and its successors append zeros to an input that is not longer than the edge that they reflect. For
longer inputs the number of these zeros is 0, so that one formula serves all lengths.

Semantics: transformers, `EncodecConv1d._pad1d` and its copies.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from .model_methods import replace_methods


def _pad1d(
    hidden_states: torch.Tensor, paddings: tuple[Any, Any], mode: str = "zero", value: float = 0.0
) -> torch.Tensor:
    # The right padding is a tensor that the model computes from the length.
    pad: Any = torch.nn.functional.pad
    result: torch.Tensor
    if mode != "reflect":
        result = pad(hidden_states, paddings, mode, value)
        return result
    largest = torch.maximum(*(torch.as_tensor(padding) for padding in paddings))
    zeros: Any = (largest - hidden_states.shape[-1] + 1).clamp(min=0)
    result = pad(pad(hidden_states, (0, zeros)), paddings, mode, value)
    return result[..., : result.shape[-1] - zeros]


def pad_any_length() -> AbstractContextManager[None]:
    """Replace the functions of transformers within the context, where their modules are imported."""
    methods = {
        ("encodec", "EncodecConv1d", "_pad1d"): _pad1d,
        ("mimi", "MimiConv1d", "_pad1d"): _pad1d,
        ("pocket_tts_audio_tokenizer", "PocketTTSAudioTokenizerConv1d", "_pad1d"): _pad1d,
    }
    return replace_methods(methods, frozenset({"max", "pad"}))
