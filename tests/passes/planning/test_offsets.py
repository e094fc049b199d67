"""Offsets: no overlap, alignment, and the distance to the lower bound."""

import csv
import pathlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsetta.passes.planning import Interval, assign_offsets, lower_bound, overlap
from opsetta.passes.planning.offsets import peak

DATA = pathlib.Path(__file__).parents[2] / "data" / "planning"


@st.composite
def intervals(draw) -> list[Interval]:
    spans = st.tuples(st.integers(0, 300), st.integers(0, 12), st.integers(0, 8))
    return [
        Interval(size, first, first + length) for size, first, length in draw(st.lists(spans, max_size=24))
    ]


@settings(max_examples=300, deadline=None)
@given(intervals(), st.sampled_from([1, 16, 64]))
def test_no_buffers_overlap(buffers, alignment):
    offsets = assign_offsets(buffers, alignment)
    assert overlap(buffers, offsets) is None
    assert all(offset % alignment == 0 for offset in offsets)
    assert peak(buffers, offsets) >= lower_bound(buffers)
    assert assign_offsets(buffers, alignment) == offsets


@settings(max_examples=100, deadline=None)
@given(intervals())
def test_the_lower_bound_is_the_fullest_step(buffers):
    steps = range(max((b.last for b in buffers), default=-1) + 1)
    live = [sum(b.size for b in buffers if b.first <= step <= b.last) for step in steps]
    assert lower_bound(buffers) == max(live, default=0)


def test_a_planted_overlap_is_caught():
    buffers = [Interval(64, 0, 3), Interval(64, 2, 5), Interval(32, 4, 6), Interval(0, 0, 9)]
    offsets = assign_offsets(buffers)
    assert overlap(buffers, offsets) is None
    moved = [offsets[0], offsets[0] + 63, offsets[2], 0]
    assert overlap(buffers, moved) == (0, 1)
    assert overlap(buffers, [0, 64, 0, 10]) is None
    assert overlap([Interval(1, 0, 2), Interval(1, 2, 3)], [0, 0]) == (0, 1)


def jigsaw(pieces: int, steps: int, seed: int) -> list[Interval]:
    """Buffers that fill a block of 2**20 bytes without a gap: the best peak is known, and hard to find."""
    chosen = random.Random(seed)
    parts = [(0, steps, 0, 2**20)]
    while len(parts) < pieces:
        parts.sort(key=lambda p: (p[1] - p[0]) * (p[3] - p[2]) * chosen.random())
        begin, end, low, high = parts.pop()
        if end - begin > 2 and chosen.random() < 0.5:
            cut = chosen.randrange(begin + 1, end)
            parts += [(begin, cut, low, high), (cut, end, low, high)]
        else:
            cut = chosen.randrange(low + 1, high)
            parts += [(begin, end, low, cut), (begin, end, cut, high)]
    return [Interval(high - low, begin, end - 1) for begin, end, low, high in parts]


@pytest.mark.parametrize(("pieces", "steps"), [(60, 40), (154, 100), (250, 300)])
def test_jigsaws_are_placed_within_a_quarter(pieces, steps):
    buffers = jigsaw(pieces, steps, 0)
    offsets = assign_offsets(buffers)
    assert overlap(buffers, offsets) is None
    assert lower_bound(buffers) == 2**20
    assert peak(buffers, offsets) <= 1.25 * 2**20


MINIMALLOC = {
    "A": (154, 1024),
    "B": (170, 1024),
    "C": (203, 1015),
    "D": (213, 963),
    "E": (215, 1024),
    "F": (296, 1024),
    "G": (308, 1024),
    "H": (316, 1024),
    "I": (374, 1024),
    "J": (409, 966),
    "K": (454, 1024),
}
"""Of each published instance: how many buffers, and the lower bound in units of 1024 bytes."""


@pytest.mark.parametrize(
    "instance", [pytest.param(name, marks=[] if name in "AEK" else pytest.mark.sweep) for name in MINIMALLOC]
)
def test_published_instances_are_placed_within_a_quarter(instance):
    with (DATA / "minimalloc.csv").open(newline="") as lines:
        buffers = [
            Interval(int(row["size"]) * 1024, int(row["lower"]) * 1024, int(row["upper"]) * 1024 - 1)
            for row in csv.DictReader(lines)
            if row["instance"] == instance
        ]
    bound = lower_bound(buffers)
    assert (len(buffers), bound) == (MINIMALLOC[instance][0], MINIMALLOC[instance][1] * 1024)
    offsets = assign_offsets(buffers)
    assert overlap(buffers, offsets) is None
    assert peak(buffers, offsets) <= 1.25 * bound


def test_chains_need_two_buffers():
    buffers = [Interval(100, step, step + 1) for step in range(200)]
    assert peak(buffers, assign_offsets(buffers)) == 200


def test_nothing_and_empty_buffers():
    assert assign_offsets([]) == []
    assert assign_offsets([Interval(0, 0, 5), Interval(0, 0, 5)]) == [0, 0]
