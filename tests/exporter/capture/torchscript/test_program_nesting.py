"""Programs and pickles that would end the process of PyTorch's readers are told by their nesting."""

import io
import pickle

import pytest

from opsetta.exporter.capture.torchscript.program_nesting import (
    MAXIMUM_OPERATIONS,
    nests_deeply,
    pickle_excess,
)

DEEP = 2_000


@pytest.mark.parametrize(
    "program",
    [
        "(" * DEEP + "x" + ")" * DEEP,
        "-" * DEEP + "x",
        "not " * DEEP + "x",
        " + ".join(["x"] * DEEP),
        "f(a, " + "[" * DEEP + "]" * DEEP + ")",
        "x" + ".y" * DEEP,
        "x if y else " * DEEP + "z",
        "(-" * (DEEP // 3) + "x",
        "if x:\n" + " " * DEEP + "pass",
        "'it''s (' " + "[" * DEEP,
        '"\\"" + ' + "[" * DEEP,
    ],
)
def test_a_deep_program_is_found(program):
    assert nests_deeply(f"def forward(self):\n  return {program}\n")


@pytest.mark.parametrize(
    "program",
    [
        "[" + ", ".join(["-1"] * 5_000) + "]",
        "\n  ".join(["x = f(x + 1)"] * 5_000),
        '"' + "(" * 5_000 + '"',
        "'" + '"(' * 5_000 + "'",
        '"' + '\\"(' * 5_000 + '"',
        "x  # " + "(" * 5_000,
        "f(" + "\n    x," * 5_000 + ")",
        "f(" + ", ".join(["a.b.c(x)"] * 5_000) + ")",
    ],
)
def test_a_long_program_is_not_deep(program):
    assert not nests_deeply(f"def forward(self):\n  return {program}\n")


def _nested(make, depth):
    value = make(None)
    for _ in range(depth):
        value = make(value)
    return value


def test_deep_pickles_are_found():
    lists = b"\x80\x02" + b"]" * DEEP + b"a" * (DEEP - 1) + b"."
    tuples = b"\x80\x02)" + b"\x85" * DEEP + b"."
    marked = b"\x80\x02" + b"(" * DEEP + b"t" * DEEP + b"."
    memo = b"\x80\x02)q\x00" + b"0h\x00\x85q\x00" * DEEP + b"."
    appended = b"\x80\x02" + b"](" * DEEP + b"e" * DEEP + b"."
    for data in (lists, tuples, marked, memo, appended):
        assert "deep" in pickle_excess(io.BytesIO(data))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_shallow_pickles_are_not_deep(protocol):
    for make in (lambda x: [x], lambda x: (x, 1), lambda x: {"a": x}, lambda x: {1: [x]}):
        data = pickle.dumps(_nested(make, 100), protocol)
        assert pickle_excess(io.BytesIO(data)) == ""
    data = pickle.dumps([[1, 2, "a"] for _ in range(5_000)], protocol)
    assert pickle_excess(io.BytesIO(data)) == ""


def test_operations_of_a_pickle_are_bounded():
    data = b"\x80\x02(" + b"]" * MAXIMUM_OPERATIONS + b"t."
    assert "operations" in pickle_excess(io.BytesIO(data))
