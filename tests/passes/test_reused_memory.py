"""Memory of computed weights is used again, but never while an array or a view refers to it."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

from opsetta.passes.onnx_graph.constants.deferred_constants import transposed_blocks
from opsetta.passes.onnx_graph.constants.reused_memory import BLOCK, ReusedMemory, empty

FLOAT = np.dtype(np.float32)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_when_an_array_is_gone() -> None:
    memory = ReusedMemory()
    with memory.activate():
        first = empty((4, 8), FLOAT)
        place = address(first)
        second = empty((4, 8), FLOAT)
        assert address(second) != place
        del first
        assert address(empty((2, 2), np.dtype(np.int64))) == place


@pytest.mark.parametrize(
    "view", [lambda a: a[1:], lambda a: a.T.reshape(-1), lambda a: a.view(np.uint8).data[3:]]
)
def test_memory_stays_with_a_view(view: object) -> None:
    memory = ReusedMemory()
    with memory.activate():
        made = empty((4, 8), FLOAT)
        made[...] = 7
        place, part = address(made), view(made)  # type: ignore[operator]
        contents = bytes(part)
        is_view = np.shares_memory(made, np.asarray(part))
        del made
        other = empty((4, 8), FLOAT)
        other[...] = 3
        assert bytes(part) == contents
        assert not is_view or address(other) != place


def test_other_arrays_have_memory_of_their_own() -> None:
    memory = ReusedMemory()
    found: list[np.ndarray] = []
    with memory.activate():
        place = address(empty((8,), FLOAT))
        large = empty((BLOCK // 4 + 1,), FLOAT)
        thread = threading.Thread(target=lambda: found.append(empty((8,), FLOAT)))
        thread.start()
        thread.join()
        assert empty((0, 3), FLOAT).shape == (0, 3)
    found += [large, empty((8,), FLOAT)]
    assert all(each.flags.owndata and address(each) != place for each in found)


def test_the_innermost_memory_is_given() -> None:
    outer, inner = ReusedMemory(), ReusedMemory()
    with outer.activate():
        place = address(empty((8,), FLOAT))
        with inner.activate():
            assert address(empty((8,), FLOAT)) != place
        assert address(empty((8,), FLOAT)) == place


@pytest.mark.parametrize("kind", [np.float32, np.int8, ml_dtypes.bfloat16])
def test_blocks_of_a_transposed_weight_are_right_in_reused_memory(kind: type) -> None:
    matrix = np.arange(1500 * 900).reshape(1500, 900).astype(kind)
    with ReusedMemory().activate():
        written = b"".join(block.tobytes() for block in transposed_blocks(matrix))
    assert written == matrix.T.tobytes()
