"""The node cases of onnx's backend tests: a model, its inputs, and the outputs that it has to give."""

from __future__ import annotations

import functools
import pathlib
import warnings
from typing import Any

from ..opsets import HIGHEST

TARGETS = (7, 8, 9, 11, 13, 15, 17, 18, 20, 21, 23, 26, HIGHEST)

# Cases whose outputs are drawn anew at every run: types and shapes are compared.
RANDOM = ("test_bernoulli", "test_training_dropout")


@functools.cache
def all_cases() -> list[Any]:
    """Every node case, in the package's own order."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collect_testcases(None)


def chosen_cases() -> list[tuple[str, int]]:
    """Names of cases, each with an opset, that together run the whole version ladder: see `choose_cases`."""
    text = pathlib.Path(__file__).with_name("chosen_cases.txt").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines()]
    return [(name, int(opset)) for name, *opsets in lines for opset in opsets]


def is_random(name: str) -> bool:
    """Whether a case draws its results; a dropout of nothing draws none."""
    return name.startswith(RANDOM) and "zero_ratio" not in name
