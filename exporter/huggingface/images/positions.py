"""Positions of tokens in time, height and width, as Qwen2-VL has them."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ....registration import UsageError


def grid_positions(
    tokens: np.ndarray, mask: np.ndarray, image_token: int | None, grids: np.ndarray, merge: int
) -> np.ndarray:
    """The positions of the tokens of prompts, `[batch, 3, length]`.

    A token of text has one position on all axes. Those of an image have a row and a column behind the text
    before it, and the text behind it follows its longer side.

    Args:
        tokens: `[batch, length]`.
        mask: 0 for padding, whose positions are 0.
        image_token: the token that stands for a part of an image.
        grids: the frames, rows and columns of the patches of each image, `[images, 3]`.
        merge: the number of rows and of columns of patches that become one token.

    Raises:
        UsageError: an image has another number of tokens than its grid, or there are more images or fewer.
    """
    positions = np.zeros((len(tokens), 3, tokens.shape[1]), np.int64)
    sizes = iter((np.asarray(grids, np.int64) // [1, merge, merge]).tolist())
    for row, row_mask, row_positions in zip(tokens, mask, positions, strict=True):
        next_position = 0
        for is_image, group in itertools.groupby(row_mask.nonzero()[0], (row == image_token).__getitem__):
            part = list(group)
            if not is_image:
                row_positions[:, part] = next_position + np.arange(len(part))
                next_position += len(part)
                continue
            size = next(sizes, [0, 0, 0])
            if math.prod(size) != len(part):
                raise UsageError(
                    f"an image has {math.prod(size)} features, and the tokens {len(part)} image tokens "
                    f"({image_token}) at its position"
                )
            # The frames of a still image are one.
            row_positions[:, part] = next_position + np.indices(size).reshape(3, -1)
            next_position += max(size[1:])
    if next(sizes, None) is not None:
        raise UsageError("there are more images than groups of image tokens")
    return positions


def continue_positions(positions: np.ndarray, count: int) -> np.ndarray:
    """The positions of the last tokens of sequences, `[3, batch, count]`.

    Args:
        positions: of the prompts, `[batch, 3, length]`.
        count: the number of tokens of the sequences.
    """
    added = count - positions.shape[2]
    following = positions.max(axis=(1, 2), keepdims=True) + 1 + np.arange(added)
    extended = np.concatenate([positions, following.repeat(3, axis=1)], axis=2)
    transposed: np.ndarray = extended.transpose(1, 0, 2)
    return transposed
