"""Runs ONNX files in one consumer, in whose environment this file runs: it has numpy and no opsetta.

    python run_files.py ADAPTER JOBS RESULTS

ADAPTER is a file with a function `run`, which takes an object with path, feed (arrays by name), output (the
first output's name) and folder (a temporary one), and returns that output.

JOBS is a JSON list of numbers and objects with model, inputs, expected (paths) and output. A JSON object per
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
    """The outcome of one file: the difference, or the error's text."""
    with np.load(job["inputs"]) as inputs, np.load(job["expected"]) as expected:
        feed, wanted = dict(inputs), expected["arr_0"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            names = types.SimpleNamespace(path=job["model"], feed=feed, output=job["output"], folder=folder)
            found = np.asarray(adapter.run(names))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:MAXIMUM_MESSAGE]}
    squeezed = [[size for size in array.shape if size != 1] for array in (found, wanted)]
    if getattr(adapter, "DROPS_SIZES_OF_ONE", False) and squeezed[0] == squeezed[1]:
        found = found.reshape(wanted.shape)
    return {
        "difference": difference(found, wanted),
        "shape": list(found.shape),
        "expected": list(wanted.shape),
    }


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
