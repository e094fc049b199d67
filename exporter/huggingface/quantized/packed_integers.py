"""Integers of a few bits that a checkpoint stores in words of 32 bits."""

from __future__ import annotations

import numpy as np

WORD = 32
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where AWQ has the integers of a word: it stores the columns 0, 2, 4, 6, 1, 3, 5, 7 in this order."""


def unpack_rows(words: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The unsigned integers of each row, the lowest bits of a word first.

    Integers whose size does not divide that of a word continue in the next word.

    Args:
        words: 32-bit integers `[rows, words]`.
        bits: of an integer, 8 at most.
        count: integers of a row.

    Returns:
        UINT8 `[rows, count]`.
    """
    words = np.ascontiguousarray(words).view(np.uint32)
    if WORD % bits == 0:
        per_word = WORD // bits
        integers = np.empty((*words.shape, per_word), dtype=np.uint8)
        for index in range(per_word):
            integers[..., index] = (words >> (bits * index)) & ((1 << bits) - 1)
        return integers.reshape(len(words), -1)[:, :count]
    bytes_of_rows = words.astype("<u4").view(np.uint8)
    digits = np.unpackbits(bytes_of_rows, axis=1, count=count * bits, bitorder="little")
    integers = np.packbits(digits.reshape(len(words), count, bits), axis=2, bitorder="little")
    return integers.reshape(len(words), count)


def unpack_awq(words: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The unsigned integers of each row in the order of AWQ, as for `unpack_rows`."""
    integers = unpack_rows(words, bits, words.shape[1] * WORD // bits)
    per_word = integers.reshape(len(words), -1, WORD // bits)
    return per_word[:, :, list(AWQ_ORDER)].reshape(len(words), -1)[:, :count]


def add_one(words: np.ndarray, bits: int) -> np.ndarray:
    """Packed integers, each increased by 1, for a size that divides that of a word.

    GPTQ subtracts 1 from each packed zero point: a 0 borrows from the integer beside it, so that the sum is
    computed in whole words.
    """
    summand = sum(1 << shift for shift in range(0, WORD, bits))
    result: np.ndarray = words.view(np.uint32) + np.uint32(summand)
    return result


def with_sign(integers: np.ndarray, bits: int) -> np.ndarray:
    """Unsigned integers less the middle of their range, as INT8."""
    # Differences of UINT8 below 0 have the bytes that INT8 has for them.
    differences: np.ndarray = integers - np.uint8(1 << (bits - 1))
    return differences.view(np.int8)
