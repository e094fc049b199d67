"""What hostile files take, in memory and in processor time, stays in proportion to their size."""

import functools
import re

import pytest

from . import hostile_patterns, limits

QUICK = [
    "range",
    "loop",
    "ranks that double",
    "a chain of 10000 functions",
    "Caffe2 many fills",
    "an array of 16 TB",
]
"""Some kinds of cost; all others in full runs."""


LARGE = ["1.9 GB of zeros", "1.9 GB of zeros after a header", "1.9 GB of newlines"]
"""They are refused by their first bytes."""


@functools.cache
def measured(is_full: bool) -> dict:
    names = [name for family in limits.FAMILIES.values() for name in family.files]
    return limits.measured(names if is_full else [*QUICK, *LARGE])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK + LARGE else pytest.mark.sweep)
        for family in limits.FAMILIES.values()
        for name in family.files
    ],
)
def test_a_hostile_file_takes_no_more_than_its_size_allows(name, sweep):
    size, ways = measured(sweep)[name]
    problems = {way: taken.problem(size) for way, taken in ways.items()}
    assert {way: problem for way, problem in problems.items() if problem} == {}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_file_that_is_no_model_is_not_read(name, sweep):
    _, ways = measured(sweep)[name]
    for way, taken in ways.items():
        assert re.search("not a protobuf message|a text without a model", taken.end), way
        assert taken.seconds < 5, way  # Reading them whole takes far longer.
        assert taken.memory < 200_000_000, way


@pytest.mark.parametrize("way", ["plan", "stream", "flatten"])
def test_ways_of_reading_patterns_read_a_small_one(way, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(hostile_patterns.chain("w = Relu(v)", "float[n, 4]", 3).SerializeToString())
    hostile_patterns.WAYS[way](path)
    assert len(list(tmp_path.iterdir())) == 2
