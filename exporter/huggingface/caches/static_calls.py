"""`StaticCalls`: the calls of a decoder with a static cache that process the tokens of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ....registration import UsageError
from ...running.input_sizes import DeclaredInput
from .cache_layout import has_positions

CACHE_POSITION = "cache_position"
"""The input with the positions to write to."""


@dataclasses.dataclass(frozen=True)
class StaticCalls:
    """The sizes of a decoder with a static cache.

    Attributes:
        length: the number of positions of the cache.
        sequence_length: the number of tokens of each call; None if any number is possible.
        states: the inputs of the cache without positions, such as those of recurrences.
    """

    length: int
    sequence_length: int | None
    states: tuple[str, ...] = ()

    @classmethod
    def of_inputs(cls, inputs: Mapping[str, DeclaredInput]) -> StaticCalls | None:
        """The sizes of a file; None if its cache is not static.

        Args:
            inputs: those of the file by name.
        """
        if CACHE_POSITION not in inputs:
            return None
        [count] = inputs[CACHE_POSITION].shape or [None]
        past = {name: value for name, value in inputs.items() if name.startswith("past_key_values.")}
        states = tuple(name for name in past if not has_positions(name))
        cache = next(value for name, value in past.items() if name.endswith(".key"))
        _, _, length, _ = cache.shape or [None] * 4
        assert isinstance(length, int)
        return cls(length, count if isinstance(count, int) else None, states)

    @property
    def computes_blocks(self) -> bool:
        """Whether calls begin at multiples of their length, as a state of a recurrence is kept there only."""
        return bool(self.states) and self.sequence_length is not None

    def check(self, count: int) -> None:
        """Refuse more positions than the cache has.

        Args:
            count: the number of tokens that are cached at most.

        Raises:
            UsageError: the message names both numbers.
        """
        length = self.length
        if self.computes_blocks and self.sequence_length is not None:
            length -= length % self.sequence_length
        if count > length:
            raise UsageError(
                f"the prompt and the new tokens need {count} positions, and the cache of the file has "
                f"{length}: pass fewer, or export the model with a larger max_cache_len"
            )

    def feeds(
        self, tokens: np.ndarray, mask: np.ndarray, count: int
    ) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        """The inputs of each call, and the column of its last token.

        A call of a fixed length begins with tokens that are in the cache already, whose keys and values it
        computes once more; only a text that is shorter than a call is padded, and the mask excludes that.
        With states of recurrences, a call begins at a multiple of its length, and the last one ends with
        padding.

        Args:
            tokens: all tokens, `[batch, length]`.
            mask: of all tokens.
            count: the number of the last tokens, which are not in the cache yet.
        """
        total = tokens.shape[1]
        size = self.sequence_length or count
        begins = [max(end - size, 0) for end in (*range(total - count + size, total, size), total)]
        if self.computes_blocks:
            begins = [*range((total - count) // size * size, total, size)]
        room = np.pad(tokens, ((0, 0), (0, max(begins[-1] + size - total, 0))))
        padded_mask = np.pad(mask, ((0, 0), (0, self.length - total)))
        # Positions count real tokens only, so that padding on the left does not shift a prompt.
        position_ids = np.maximum(padded_mask.cumsum(axis=1) - 1, 0)
        for begin in begins:
            columns = slice(begin, begin + size)
            yield (
                {
                    "input_ids": room[:, columns],
                    "attention_mask": padded_mask,
                    "position_ids": position_ids[:, columns],
                    CACHE_POSITION: np.arange(begin, begin + size),
                },
                min(total - begin, size) - 1,
            )

    def kept_states(
        self,
        cache: Mapping[str, Any],
        results: Mapping[str, Any],
        feed: Mapping[str, np.ndarray],
        column: int,
    ) -> dict[str, Any]:
        """The states after a call, where they are others than the call returned.

        A call that ends with padding is repeated when the next tokens are known, from the same states. Rows
        of padding before a text leave the states as they are: models do not mask calls of one token.

        Args:
            cache: the cache before the call.
            results: the cache that the call returned.
            feed: the inputs that `feeds` returned, with the column of the last token.
        """
        positions = feed[CACHE_POSITION]
        if column + 1 < len(positions):
            return {name: cache[name] for name in self.states}
        is_padding = ~feed["attention_mask"][:, positions].any(axis=1)
        if not is_padding.any():
            return {}
        states = {}
        for name in self.states:
            states[name] = as_array(results[name]).copy()
            states[name][is_padding] = as_array(cache[name])[is_padding]
        return states


def as_array(value: Any) -> np.ndarray:
    """A tensor of a cache: an array, or a value of onnxruntime."""
    array: np.ndarray = value if isinstance(value, np.ndarray) else value.numpy()
    return array
