"""The rules of transformers that change logits before the choice of a token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..settings import Settings, Tokens


class TokenRules:
    """Changes the logits of the next tokens, as transformers does, in the same order.

    The rules are those of `transformers.GenerationMixin._get_logits_processor`.

    Args:
        settings: of the folder.
        begin: the length of the sequences before the first generated token.
        longest: the length of the longest sequence.
        padding: the number of padding tokens that each prompt begins with.
        source: the tokens of the encoder's input, or of the prompt of a decoder.
    """

    def __init__(
        self,
        settings: Settings,
        begin: int = 0,
        longest: int | None = None,
        padding: np.ndarray | None = None,
        source: np.ndarray | None = None,
    ):
        self._settings = settings
        self._begin = begin
        self._longest = longest
        self._padding = padding
        self._source = source

    def __call__(self, logits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The changed logits.

        Args:
            logits: `[batch, vocabulary]`; they are changed.
            tokens: the sequences so far, `[batch, length]`.
        """
        settings, length = self._settings, tokens.shape[1]
        _add_biases(logits, tokens, settings.biases)
        if self._source is not None and settings.source_repetition_penalty != 1.0:
            seen = _occurring(self._source, logits.shape)
            # transformers rewards tokens of the source, so its factor is the inverse of a penalty.
            _penalize(logits, seen, 1.0 / settings.source_repetition_penalty)
        if settings.repetition_penalty != 1.0:
            counted = np.ones_like(tokens, dtype=bool)
            if self._padding is not None:
                counted = np.arange(length) >= self._padding[:, None]
            _penalize(logits, _occurring(tokens, logits.shape, counted), settings.repetition_penalty)
        if settings.ngram_size:
            _ban_ngrams(logits, tokens, tokens, settings.ngram_size)
        if self._source is not None and settings.source_ngram_size:
            _ban_ngrams(logits, tokens, self._source, settings.source_ngram_size)
        _add_biases(logits, tokens, [(word, -np.inf) for word in settings.bad_words])
        if length < settings.least_length or length - self._begin < settings.least_new_tokens:
            _ban(logits, settings.ends)
        # Position 1 follows the start token.
        if settings.forced_first is not None and length == 1:
            _force(logits, (settings.forced_first,))
        # The last position of the longest text, whether it has ended or not.
        if settings.forced_last and self._longest is not None and length == self._longest - 1:
            _force(logits, settings.forced_last)
        _ban(logits, settings.suppressed)
        delay = 1 if self._begin == 1 and settings.forced_first is not None else 0
        if length == self._begin + delay:
            _ban(logits, settings.suppressed_first)
        return logits


def _ban(logits: np.ndarray, tokens: Sequence[int]) -> None:
    logits[:, [token for token in tokens if 0 <= token < logits.shape[1]]] = -np.inf


def _force(logits: np.ndarray, tokens: Sequence[int]) -> None:
    logits[:] = -np.inf
    logits[:, list(tokens)] = 0.0


def _occurring(tokens: np.ndarray, shape: tuple[int, ...], counted: np.ndarray | None = None) -> np.ndarray:
    """Which tokens of the vocabulary occur in each sequence, `[batch, vocabulary]`.

    Args:
        counted: the positions that count, `[batch, length]`.
    """
    occurring = np.zeros(shape, dtype=bool)
    inside = tokens < shape[1]
    rows, positions = np.nonzero(inside if counted is None else inside & counted)
    occurring[rows, tokens[rows, positions]] = True
    return occurring


def _penalize(logits: np.ndarray, seen: np.ndarray, penalty: float) -> None:
    factor = np.float32(penalty)
    logits[:] = np.where(seen, np.where(logits < 0, logits * factor, logits / factor), logits)


def _ban_ngrams(logits: np.ndarray, tokens: np.ndarray, text: np.ndarray, size: int) -> None:
    """Ban the tokens that would end a sequence of this size that occurs in a text, `[batch, length]`."""
    length = tokens.shape[1]
    if text.shape[1] < size or length < size - 1:
        return
    windows = np.lib.stride_tricks.sliding_window_view(text, size, axis=1)
    prefix = tokens[:, length + 1 - size :]
    rows, positions = np.nonzero((windows[:, :, :-1] == prefix[:, None]).all(axis=2))
    banned = windows[rows, positions, -1]
    inside = banned < logits.shape[1]
    logits[rows[inside], banned[inside]] = -np.inf


def _add_biases(logits: np.ndarray, tokens: np.ndarray, biases: Iterable[tuple[Tokens, float]]) -> None:
    """Add each bias to the logit of the last token of a sequence, after the tokens before it."""
    total = np.zeros_like(logits)
    for sequence, bias in biases:
        *prefix, last = sequence
        if len(prefix) > tokens.shape[1] or last >= logits.shape[1]:
            continue
        matches = (tokens[:, tokens.shape[1] - len(prefix) :] == prefix).all(axis=1)
        total[matches, last] += np.float32(bias)
    logits += total
