"""What generation begins with: tokens, their mask, and the other inputs of the decoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from ....registration import UsageError


@dataclasses.dataclass(frozen=True)
class Prompt:
    """What generation begins with.

    Attributes:
        tokens: of the decoder, `[batch, length]`.
        inputs: of all calls of the decoder, apart from tokens and the cache.
        source: the tokens of the encoder's input, or of the prompt of a decoder.
        padding: the number of padding tokens that each prompt begins with.
    """

    tokens: np.ndarray
    inputs: Mapping[str, np.ndarray]
    source: np.ndarray | None = None
    padding: np.ndarray | None = None

    def repeat(self, count: int) -> Prompt:
        """Repeat each prompt, so that the repetitions follow each other."""
        return Prompt(
            np.repeat(self.tokens, count, axis=0),
            {name: np.repeat(array, count, axis=0) for name, array in self.inputs.items()},
            None if self.source is None else np.repeat(self.source, count, axis=0),
            None if self.padding is None else np.repeat(self.padding, count, axis=0),
        )


def read_tokens(input_ids: ArrayLike, attention_mask: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and their mask.

    Raises:
        UsageError: they are not of two dimensions, or empty, or differ in shape.
    """
    tokens = np.asarray(input_ids, dtype=np.int64)
    mask = np.ones_like(tokens) if attention_mask is None else np.asarray(attention_mask, dtype=np.int64)
    if tokens.ndim != 2 or not tokens.size or mask.shape != tokens.shape:
        raise UsageError(
            f"tokens and mask must have the same shape [batch, length], not {list(tokens.shape)} and "
            f"{list(mask.shape)}"
        )
    return tokens, mask
