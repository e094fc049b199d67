"""Strings that end a generated text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .text import Tokenizer


class StopStrings:
    """Says which sequences end, because a string ends within their last token, as in transformers.

    Args:
        strings: any of them ends a text.
        tokenizer: of the model.
    """

    def __init__(self, strings: Sequence[str], tokenizer: Tokenizer):
        self._strings = tuple(strings)
        self._tokenizer = tokenizer

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        """Whether each sequence ends with its last token, `[batch]`.

        Args:
            tokens: the sequences so far, `[batch, length]`.
        """
        # A token has at least one byte, so a string has at most as many tokens as bytes.
        window = max(len(string.encode()) for string in self._strings) + 1
        tail = tokens[:, -window:]
        texts = self._tokenizer.decode(list(tail))
        starts = map(len, self._tokenizer.decode(list(tail[:, :-1])))
        # A string that was there before the last token has not ended the text, and does not now.
        return np.array(
            [
                any(text.find(string, max(0, start - len(string) + 1)) >= 0 for string in self._strings)
                for text, start in zip(texts, starts, strict=True)
            ]
        )
