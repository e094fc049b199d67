"""The choice of the next token from its logits."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...registration import UsageError
from .token_rules import TokenRules


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The sampling of tokens; without `sample`, the most probable token is chosen.

    Raises:
        UsageError: a number is out of range.
    """

    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.temperature <= 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise UsageError("temperature must be above 0, top_k 0 or more, and top_p above 0 and at most 1")


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
        logits = self._rules(logits, tokens)
        if not self._sampling.sample:
            result: np.ndarray = logits.argmax(axis=1)
            return result
        probabilities = self._probabilities(logits.astype(np.float64) / self._sampling.temperature)
        return np.array([self._random.choice(len(row), p=row) for row in probabilities], dtype=np.int64)

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The probabilities for sampling; those of excluded tokens are 0."""
        order = np.argsort(-logits, axis=1, kind="stable")
        ordered = np.take_along_axis(logits, order, axis=1)
        weights = np.exp(ordered - ordered[:, :1])
        if self._sampling.top_k:
            weights[:, self._sampling.top_k :] = 0
        weights /= weights.sum(axis=1, keepdims=True)
        # A token stays if those before it have less than the wanted probability.
        weights[weights.cumsum(axis=1) - weights >= self._sampling.top_p] = 0
        weights /= weights.sum(axis=1, keepdims=True)
        probabilities: np.ndarray = np.zeros_like(weights)
        np.put_along_axis(probabilities, order, weights, axis=1)
        return probabilities
