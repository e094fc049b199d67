"""Measures the time that a model takes to run in onnxruntime."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping

import onnx_ir as ir

from ..runner import Runner

_LEAST_RUNS = 3


def median_seconds(model: ir.Model, feed: Mapping[str, object], runs: int, budget: float = math.inf) -> float:
    """Return the median time in seconds of runs on one thread, after one run that is not counted.

    Args:
        feed: the inputs by name.
        runs: the number of measured runs.
        budget: seconds after which no further run begins, once three are done.

    Raises:
        InferenceError: onnxruntime is not installed, or refuses the model or its inputs.
    """
    runner = Runner.of_model(model, threads=1)
    values = runner.inputs.feed(feed)
    runner.run_unchecked(values)
    seconds: list[float] = []
    while len(seconds) < runs and (len(seconds) < _LEAST_RUNS or sum(seconds) < budget):
        begin = time.perf_counter()
        runner.run_unchecked(values)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
