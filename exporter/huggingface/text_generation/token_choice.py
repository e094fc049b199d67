"""The choice of the next token from its logits."""

from __future__ import annotations

import dataclasses

import numpy as np

from ....registration import UsageError
from ..settings import Settings
from .token_rules import TokenRules


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The sampling of tokens; without `sample`, the most probable token is chosen.

    Attributes:
        sample, temperature, top_k, top_p, min_p, seed: as for `TextGenerator.generate`.
        least_tokens: the number of tokens that are kept whatever the others say.

    Raises:
        UsageError: a number is out of range.
    """

    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    least_tokens: int = 1

    def __post_init__(self) -> None:
        if self.temperature <= 0 or self.top_k < 0 or not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1:
            raise UsageError(
                "temperature must be above 0, top_k 0 or more, top_p above 0 and at most 1, and min_p from 0 "
                "to 1"
            )
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"seed must be 0 or more, not {self.seed}")

    @classmethod
    def merge(cls, settings: Settings, sample: bool, **arguments: int | float | None) -> Sampling:
        """The sampling of a folder, of which those arguments that are not None replace some."""
        stated = {name: getattr(settings, name) for name in ("temperature", "top_k", "top_p", "min_p")}
        return cls(
            sample, **{**stated, **{name: item for name, item in arguments.items() if item is not None}}
        )

    def filter(self, scores: np.ndarray) -> np.ndarray:
        """Divide scores by the temperature, and exclude those that are not drawn by -inf."""
        scores = scores / self.temperature
        order = np.argsort(-scores, axis=1, kind="stable")
        ordered = np.take_along_axis(scores, order, axis=1)
        is_excluded = np.zeros(scores.shape, dtype=bool)
        is_excluded[:, self.top_k or scores.shape[1] :] = True
        weights = np.where(is_excluded, 0, np.exp(ordered - ordered[:, :1]))
        weights /= weights.sum(axis=1, keepdims=True)
        if self.top_p < 1:
            # A token stays if those before it have less than the requested probability.
            is_excluded |= weights.cumsum(axis=1) - weights >= self.top_p
        is_excluded |= weights < self.min_p * weights[:, :1]
        is_excluded[:, : self.least_tokens] = False
        ordered[is_excluded] = -np.inf
        np.put_along_axis(scores, order, ordered, axis=1)
        return scores


class TokenChoice:
    """Chooses a token for each sequence."""

    def __init__(self, rules: TokenRules, sampling: Sampling):
        self._rules = rules
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def __call__(self, logits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The next tokens `[batch]`.

        Args:
            logits: `[batch, vocabulary]`; they are changed.
            tokens: the sequences so far, `[batch, length]`.
        """
        return self.select(self.scores(logits, tokens), 1)[:, 0]

    def scores(self, logits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The scores of tokens by the rules, and by the filters of sampling; arguments as for a call."""
        scores = self._rules(logits, tokens)
        return self._sampling.filter(scores.astype(np.float64)) if self._sampling.sample else scores

    def select(self, scores: np.ndarray, count: int) -> np.ndarray:
        """The positions of the best scores of each row, the best first; or positions that are drawn.

        Args:
            scores: `[rows, positions]`.
            count: of positions.
        """
        if not self._sampling.sample:
            return largest(scores, count)
        # The largest sums of logarithms and Gumbel noise are draws without replacement.
        return largest(scores + self._random.gumbel(size=scores.shape), count)


def largest(scores: np.ndarray, count: int) -> np.ndarray:
    """The positions of the largest scores of each row, the largest first.

    Args:
        scores: `[rows, positions]`.
        count: of positions.
    """
    if count == 1:
        first: np.ndarray = scores.argmax(axis=1)[:, None]
        return first
    positions = np.argpartition(-scores, min(count, scores.shape[1]) - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, positions, axis=1), axis=1, kind="stable")
    result: np.ndarray = np.take_along_axis(positions, order, axis=1)
    return result
