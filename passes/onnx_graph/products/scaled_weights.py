"""Weights times a factor for each row or column, computed in pieces while they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..constants.reused_memory import BLOCK


def scaled_blocks(
    weight: np.ndarray, factor: np.ndarray, multiply: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Iterator[np.ndarray]:
    """The product of a weight and a factor in pieces, in the order of the elements.

    Args:
        factor: broadcasts to the shape of the weight.
        multiply: returns the product of two arrays of one shape.
    """
    waiting = [(weight, np.broadcast_to(factor, weight.shape))]
    while waiting:
        part, numbers = waiting.pop()
        if part.nbytes <= BLOCK:
            yield multiply(part, numbers)
        elif len(part) == 1:
            waiting.append((part[0], numbers[0]))
        else:
            rows = max(1, BLOCK * len(part) // part.nbytes)
            starts = reversed(range(0, len(part), rows))
            waiting += [(part[start : start + rows], numbers[start : start + rows]) for start in starts]
