"""`StaticCalls`: the calls of a decoder with a static cache that process the tokens of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from ...registration import UsageError
from ..running.input_sizes import DeclaredInput

CACHE_POSITION = "cache_position"
"""The input with the positions to write to."""


@dataclasses.dataclass(frozen=True)
class StaticCalls:
    """The sizes of a decoder with a static cache.

    Attributes:
        length: the number of positions of the cache.
        sequence_length: the number of tokens of each call; None if any number is possible.
    """

    length: int
    sequence_length: int | None

    @classmethod
    def of_inputs(cls, inputs: Mapping[str, DeclaredInput]) -> StaticCalls | None:
        """The sizes of a file; None if its cache is not static.

        Args:
            inputs: those of the file by name.
        """
        if CACHE_POSITION not in inputs:
            return None
        [count] = inputs[CACHE_POSITION].shape or [None]
        cache = next(value for name, value in inputs.items() if name.startswith("past_key_values."))
        _, _, length, _ = cache.shape or [None] * 4
        assert isinstance(length, int)
        return cls(length, count if isinstance(count, int) else None)

    def check(self, count: int) -> None:
        """Refuse more positions than the cache has.

        Args:
            count: the number of tokens that are cached at most.

        Raises:
            UsageError: the message names both numbers.
        """
        if count > self.length:
            raise UsageError(
                f"the prompt and the new tokens need {count} positions, and the cache of the file has "
                f"{self.length}: pass fewer, or export the model with a larger max_cache_len"
            )

    def feeds(
        self, tokens: np.ndarray, mask: np.ndarray, count: int
    ) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        """The inputs of each call, and the column of its last token.

        A call of a fixed length begins with tokens that are in the cache already, whose keys and values it
        computes once more; only a text that is shorter than a call is padded, and the mask excludes that.

        Args:
            tokens: all tokens, `[batch, length]`.
            mask: of all tokens.
            count: the number of the last tokens, which are not in the cache yet.
        """
        total = tokens.shape[1]
        size = self.sequence_length or count
        room = np.pad(tokens, ((0, 0), (0, max(size - total, 0))))
        padded_mask = np.pad(mask, ((0, 0), (0, self.length - total)))
        # Positions count real tokens only, so that padding on the left does not shift a prompt.
        position_ids = np.maximum(padded_mask.cumsum(axis=1) - 1, 0)
        for stop in [*range(total - count + size, total, size), total]:
            begin = max(stop - size, 0)
            columns = slice(begin, begin + size)
            yield (
                {
                    "input_ids": room[:, columns],
                    "attention_mask": padded_mask,
                    "position_ids": position_ids[:, columns],
                    CACHE_POSITION: np.arange(begin, begin + size),
                },
                stop - begin - 1,
            )
