"""Runs ONNX files in one consumer, in whose environment this file runs: it has numpy and no opsetta.

    python run_files.py ADAPTER JOBS RESULTS

ADAPTER is a file with a function `run`, which takes an object with path, feed (arrays by name), outputs
(their names) and folder (a temporary one), and returns the outputs in this order.

JOBS is a JSON list of numbers and objects with model, inputs, expected (paths) and outputs. A JSON object per
line goes to RESULTS when a job begins, and another when it ends: in a job without an end the process died.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import types

import numpy as np

MAXIMUM_MESSAGE = 600


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, in units of the largest expected value; infinite for NaN and another shape."""
    if found.shape != expected.shape:
        return float("inf")
    scale = max(float(np.abs(expected).max()), 1e-6)
    worst = float(np.abs(found.astype(np.float64) - expected.astype(np.float64)).max()) / scale
    return worst if np.isfinite(worst) else float("inf")


def run(adapter, job: dict) -> dict:
    """The outcome of one file: the largest difference of an output, or the error's text."""
    with np.load(job["inputs"]) as inputs, np.load(job["expected"]) as expected:
        feed, references = dict(inputs), [expected[f"arr_{number}"] for number in range(len(expected))]
    try:
        with tempfile.TemporaryDirectory() as folder:
            names = types.SimpleNamespace(path=job["model"], feed=feed, outputs=job["outputs"], folder=folder)
            results = [np.asarray(result) for result in adapter.run(names)]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:MAXIMUM_MESSAGE]}
    if len(results) != len(references):
        return {"error": f"{len(results)} outputs instead of {len(references)}"}
    outcomes = []
    # `zip` of Python 3.8, which old releases need, has no `strict`.
    for number, reference in enumerate(references):
        result = results[number]
        squeezed = [[size for size in array.shape if size != 1] for array in (result, reference)]
        if getattr(adapter, "DROPS_SIZES_OF_ONE", False) and squeezed[0] == squeezed[1]:
            result = result.reshape(reference.shape)
        shapes = {"shape": list(result.shape), "expected": list(reference.shape)}
        outcomes.append({"difference": difference(result, reference), **shapes})
    return max(outcomes, key=lambda outcome: outcome["difference"])


def main() -> None:
    adapter_path, jobs_path, results_path = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("adapter", adapter_path)
    adapter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(adapter)
    with open(jobs_path, encoding="utf-8") as file:
        jobs = json.load(file)
    with open(results_path, "a", encoding="utf-8") as results:

        def say(value: dict) -> None:
            results.write(json.dumps(value) + "\n")
            results.flush()
            os.fsync(results.fileno())

        for number, job in jobs:
            say({"began": number})
            say({"ended": number, **run(adapter, job)})


if __name__ == "__main__":
    main()
