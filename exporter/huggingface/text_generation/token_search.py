"""Searches for sequences of tokens: one sequence for each prompt, or the best ones of several beams."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np

from ....registration import UsageError
from ..settings import Settings
from .stop_strings import StopStrings
from .token_choice import TokenChoice, largest

_EXCLUDED = np.float32(-1e9)
"""The score of a sequence that must not be chosen, as in transformers."""


@dataclasses.dataclass(frozen=True)
class SequenceEnd:
    """What ends a sequence.

    Attributes:
        longest: the number of tokens of the longest sequence, with the prompt.
        tokens: any of them ends a sequence.
        padding: the token behind the end.
        strings: the texts that end a sequence, if there are any.
    """

    longest: int
    tokens: tuple[int, ...]
    padding: int
    strings: StopStrings | None = None

    def is_reached(self, sequences: np.ndarray) -> np.ndarray:
        """Whether each sequence ends with its last token, `[batch]`, from `[batch, length]`."""
        ended: np.ndarray = np.isin(sequences[:, -1], self.tokens)
        if self.strings is not None:
            ended |= self.strings(sequences)
        return ended if sequences.shape[1] < self.longest else np.ones_like(ended)


class TokenSearch(Protocol):
    """A search that a loop over the decoder advances.

    Attributes:
        tokens: the sequences that the decoder continues, `[batch, length]`.
        is_running: whether a sequence has not ended.
    """

    tokens: np.ndarray
    is_running: bool

    def advance(self, logits: np.ndarray) -> np.ndarray | None:
        """Append a token to each sequence.

        Args:
            logits: of the next tokens, `[batch, vocabulary]`; they are changed.

        Returns:
            The number of the earlier sequence that each sequence continues; None if it is its own.
        """

    def results(self) -> np.ndarray:
        """The sequences, padded behind their ends."""


class SingleSearch:
    """One sequence for each prompt, whose next token is the most probable one, or drawn.

    Args:
        tokens: the prompts, `[batch, length]`.
        choice: of the next token.
        end: of a sequence.
        on_tokens: called with the next tokens `[batch]`.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        choice: TokenChoice,
        end: SequenceEnd,
        on_tokens: Callable[[np.ndarray], None] | None,
    ):
        self.tokens = tokens
        self.is_running = True
        self._choice = choice
        self._end = end
        self._on_tokens = on_tokens
        self._running = np.ones(len(tokens), dtype=bool)

    def advance(self, logits: np.ndarray) -> None:
        """As `TokenSearch.advance`."""
        # A sequence that has ended goes on with padding until the others end.
        chosen = np.where(self._running, self._choice(logits, self.tokens), self._end.padding)
        self.tokens = np.concatenate([self.tokens, chosen[:, None]], axis=1)
        if self._on_tokens is not None:
            self._on_tokens(chosen)
        self._running &= ~self._end.is_reached(self.tokens)
        self.is_running = bool(self._running.any())

    def results(self) -> np.ndarray:
        """As `TokenSearch.results`."""
        return self.tokens


@dataclasses.dataclass(frozen=True)
class BeamSettings:
    """The settings of beam search, by their names in transformers.

    Raises:
        UsageError: a number is out of range.
    """

    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False

    def __post_init__(self) -> None:
        if self.num_beams < 1 or self.num_return_sequences < 1:
            raise UsageError("num_beams and num_return_sequences must be 1 or more")
        if self.early_stopping not in (True, False, "never"):
            raise UsageError(f"early_stopping must be True, False or 'never', not {self.early_stopping!r}")
        if 1 < self.num_beams < self.num_return_sequences:
            raise UsageError(
                f"num_return_sequences={self.num_return_sequences} needs as many beams, and num_beams is "
                f"{self.num_beams}"
            )

    @classmethod
    def merge(cls, settings: Settings, **arguments: int | float | str | None) -> BeamSettings:
        """The settings of a folder, of which those arguments that are not None replace some.

        Raises:
            UsageError: there are no beams for an argument, or a number is out of range.
        """
        stated = {name: getattr(settings, name) for name in ("num_beams", "length_penalty", "early_stopping")}
        passed = {name: item for name, item in arguments.items() if item is not None}
        merged = cls(**{**stated, **passed})
        of_beams = sorted({"length_penalty", "early_stopping"}.intersection(passed))
        if merged.num_beams == 1 and of_beams:
            raise UsageError(f"{of_beams[0]} is for beam search: pass num_beams, too")
        return merged

    @property
    def rows(self) -> int:
        """The number of sequences that are generated for each prompt."""
        return max(self.num_beams, self.num_return_sequences)


class BeamSearch:
    """Beam search as `GenerationMixin._beam_search` of transformers 5: same scores, ends and padding.

    Args:
        tokens: the prompts, of which each is there once for each beam, `[batch * beams, length]`.
        choice: of tokens by their scores.
        end: of a sequence.
        settings: of the search.
    """

    def __init__(self, tokens: np.ndarray, choice: TokenChoice, end: SequenceEnd, settings: BeamSettings):
        self.tokens = tokens
        self.is_running = True
        self._choice = choice
        self._end = end
        self._settings = settings
        self._prompt_length = tokens.shape[1]
        shape = (len(tokens) // settings.num_beams, settings.num_beams)
        # transformers takes a padding token of 0 for none.
        self._fill = end.padding or (end.tokens or (0,))[0]
        self._finished = np.full((*shape, end.longest), self._fill, dtype=np.int64)
        self._lengths = np.zeros(shape, dtype=np.int64)
        self._finished_scores = np.full(shape, _EXCLUDED)
        self._is_finished = np.zeros(shape, dtype=bool)
        # Only the first beam counts at first, or all beams would be equal.
        self._scores = np.zeros(shape, dtype=np.float32)
        self._scores[:, 1:] = _EXCLUDED
        self._may_improve = np.ones((shape[0], 1), dtype=bool)

    def advance(self, logits: np.ndarray) -> np.ndarray:
        """As `TokenSearch.advance`."""
        batch, beams = self._scores.shape
        vocabulary = logits.shape[1]
        scores = self._choice.scores(_log_softmax(logits), self.tokens)
        scores = (scores.reshape(batch, beams, -1) + self._scores[:, :, None]).reshape(batch, -1)
        # As many candidates end at most, so that enough of them continue.
        candidates = self._choice.select(scores, max(2, 1 + len(self._end.tokens)) * beams)
        candidate_scores = np.take_along_axis(scores, candidates, axis=1)
        rows = candidates // vocabulary + np.arange(batch)[:, None] * beams
        sequences = np.concatenate([self.tokens[rows], candidates[:, :, None] % vocabulary], axis=2)
        ends = self._end.is_reached(sequences.reshape(-1, sequences.shape[2])).reshape(rows.shape)

        running_scores = candidate_scores + ends * _EXCLUDED
        best = largest(running_scores, beams)
        self._scores = np.take_along_axis(running_scores, best, axis=1)
        self._keep_finished(sequences, candidate_scores, ends)
        self.tokens = np.take_along_axis(sequences, best[:, :, None], axis=1).reshape(batch * beams, -1)
        self._find_improvable()
        is_full = self._settings.early_stopping is True and self._is_finished.all()
        self.is_running = bool(self._may_improve.any()) and not is_full and not ends.all()
        return np.take_along_axis(rows, best, axis=1).ravel()

    def _keep_finished(self, sequences: np.ndarray, scores: np.ndarray, ends: np.ndarray) -> None:
        """Keep the best of the finished sequences and of the candidates that end, among the best beams."""
        beams, length = self._scores.shape[1], sequences.shape[2]
        just_finished = ends & (np.arange(ends.shape[1]) < beams)
        generated = length - self._prompt_length
        scores = scores / np.float32(generated**self._settings.length_penalty)
        if self._settings.early_stopping is True:
            scores = scores + self._is_finished.all(axis=1, keepdims=True) * _EXCLUDED
        scores = scores + ~self._may_improve * _EXCLUDED + ~just_finished * _EXCLUDED
        room = self._end.longest - length
        padded = np.pad(sequences, ((0, 0), (0, 0), (0, room)), constant_values=self._fill)
        merged_scores = np.concatenate([self._finished_scores, scores], axis=1)
        best = largest(merged_scores, beams)
        self._finished = np.take_along_axis(
            np.concatenate([self._finished, padded], axis=1), best[:, :, None], axis=1
        )
        self._finished_scores, self._is_finished, self._lengths = (
            np.take_along_axis(np.concatenate(pair, axis=1), best, axis=1)
            for pair in (
                (self._finished_scores, scores),
                (self._is_finished, just_finished),
                (self._lengths, np.full(ends.shape, length)),
            )
        )

    def _find_improvable(self) -> None:
        """Find the prompts whose running sequences may still be better than the finished ones."""
        penalty = self._settings.length_penalty
        # Scores are negative: a longer sequence has a better one if the penalty is positive.
        estimates_longest = self._settings.early_stopping == "never" and penalty > 0
        length = (self._end.longest if estimates_longest else self.tokens.shape[1]) - self._prompt_length
        best = self._scores[:, :1] / np.float32(length**penalty)
        worst = np.where(self._is_finished, self._finished_scores.min(axis=1, keepdims=True), _EXCLUDED)
        self._may_improve &= (best > worst).any(axis=1, keepdims=True)

    def results(self) -> np.ndarray:
        """As `TokenSearch.results`."""
        count = self._settings.num_return_sequences
        length = int(self._lengths[:, :count].max())
        return self._finished[:, :count, :length].reshape(-1, length)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def check_search(
    beams: BeamSettings, settings: Settings, sample: bool, streams: bool, max_new_tokens: int
) -> None:
    """Refuse settings of a search that are out of range, or do not fit each other.

    Raises:
        UsageError: the message names the argument.
    """
    if max_new_tokens < 1:
        raise UsageError(f"max_new_tokens must be 1 or more, not {max_new_tokens}")
    if not 0 <= settings.least_new_tokens <= max_new_tokens:
        raise UsageError(
            f"min_new_tokens must be from 0 to max_new_tokens={max_new_tokens}, not "
            f"{settings.least_new_tokens}"
        )
    if settings.repetition_penalty <= 0 or settings.ngram_size < 0:
        raise UsageError("repetition_penalty must be above 0, and no_repeat_ngram_size 0 or more")
    if beams.num_beams == 1 and beams.num_return_sequences > 1 and not sample:
        raise UsageError("several results for a prompt need beams or sampling: pass num_beams or sample")
    if beams.num_beams > 1 and streams:
        raise UsageError(
            f"beam search ({beams.num_beams} beams) has no text before its end: stream with num_beams=1"
        )
