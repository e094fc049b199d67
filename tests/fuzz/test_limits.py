"""What hostile files take, in memory and in processor time, stays in proportion to their size."""

import pytest

from . import hostile, limits

QUICK = [
    "range",
    "tile of an input",
    "expand",
    "ones of shape",
    "Hann window",
    "sum along what was concatenated",
    "sliced",
    "where",
    "transform",
    "pooling",
    "loop",
    "ranks that double",
    "lengths that double",
    "14 levels of two calls",
    "90 levels of two calls",
    "calls in branches",
    "a large function called often",
    "a chain of 10000 functions",
    "an initializer without contents",
    "1000 graphs deep",
    "zeros",
]
"""One of each kind; all others in full runs."""


@pytest.mark.parametrize("name", QUICK)
def test_a_hostile_file_takes_no_more_than_its_size_allows(name, tmp_path):
    assert limits.problems(name, tmp_path) == []


@pytest.mark.sweep
@pytest.mark.parametrize("name", [name for name in hostile.FILES if name not in QUICK])
def test_every_hostile_file_takes_no_more_than_its_size_allows(name, tmp_path):
    assert limits.problems(name, tmp_path) == []


@pytest.mark.parametrize("way", ["load", "info", "check"])
@pytest.mark.parametrize("name", ["1.9 GB of zeros", "1.9 GB of zeros after a header", "1.9 GB of newlines"])
def test_a_large_file_that_is_no_model_is_not_read(name, way, tmp_path):
    path = tmp_path / "model.onnx"
    hostile.FILES[name](path)
    taken = limits.measure(way, path)
    assert "its bytes are no message" in taken.end
    assert taken.seconds < 1
    assert taken.memory < 200_000_000
