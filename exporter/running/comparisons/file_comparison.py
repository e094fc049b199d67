"""Compares two model files: their contents, their latency in onnxruntime, and their results."""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....registration import OpsettaError
from ...files.reading import bounds_of, read_model
from ...files.reading.encodings.text import form_of
from ...files.small_files import open_regular
from ...files.summary import describe_file
from ..model_inputs import inputs_of_message
from ..random_inputs import random_inputs
from ..sessions.session import OpenSession, as_python, open_session, session_options

_HEAD = 512
"""How many bytes are read to tell a binary file from a text."""


@dataclasses.dataclass(frozen=True)
class OutputDifference:
    """The largest differences of one output over all seeds.

    Attributes:
        name: the output's name in the first file.
        absolute, relative: the differences; None if shapes or types differ.
        reason: why the differences are None.
    """

    name: str
    absolute: float | None
    relative: float | None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of comparing two files.

    Attributes:
        files: the description of each file by `files.summary`.
        latency: the median of each file in milliseconds, by onnxruntime's optimizations: "all" or "none".
        outputs: the differences of each output, in order.
    """

    files: tuple[dict[str, Any], dict[str, Any]]
    latency: dict[str, tuple[float, float]]
    outputs: tuple[OutputDifference, ...]


def compare_files(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *,
    runs: int = 20,
    seeds: Sequence[int] = (0, 1),
    dimensions: Mapping[str, int] | None = None,
    trusted: bool = False,
) -> Comparison:
    """Compare two files that take the same inputs, by name or else in order.

    Sessions have one thread. Runs of both files alternate, so that changes of the machine's load affect both.

    Args:
        runs: the number of measured runs of each file at each level; 0 measures nothing.
        seeds: the seeds of the random inputs.
        dimensions: sizes of named dimensions; for others, 2 or the next size for which the first file is
            valid.
        trusted: see `opsetta.load`.

    Raises:
        ModelFileError: a file cannot be read.
        InferenceError: onnxruntime is not installed, or refuses a file or its inputs.
        DimensionError: one of the files is not valid for the sizes.
        OpsettaError: the inputs or outputs of the files do not correspond.
    """
    paths = os.fspath(first), os.fspath(second)
    files = describe_file(paths[0], trusted=trusted), describe_file(paths[1], trusted=trusted)
    inputs = [inputs_of_message(read_model(path, bounds_of(trusted))) for path in paths]
    sizes = dict(dimensions or {})
    named = inputs[0].dimension_names
    unknown = sorted(set(sizes) - set(named))
    if unknown:
        known_names = ", ".join(sorted(named)) or "none"
        raise OpsettaError(f"no input of '{paths[0]}' has a dimension '{unknown[0]}' (named: {known_names})")
    names = _match_inputs(files, paths)
    models = [_loadable(path, trusted) for path in paths]
    feeds = []
    for seed in seeds:
        values = random_inputs(inputs[0], seed, sizes)
        feeds.append((inputs[0].feed(values), inputs[1].feed({names[name]: values[name] for name in values})))
    latency: dict[str, tuple[float, float]] = {}
    outputs: tuple[OutputDifference, ...] = ()
    for level in ("all", "none"):
        sessions = [_session(model, path, level) for model, path in zip(models, paths, strict=True)]
        # Results are compared only with optimizations, because users run the files so.
        if level == "all":
            outputs = _differences(sessions, feeds)
        if runs:
            latency[level] = _medians(sessions, feeds[0], runs)
    return Comparison(files, latency, outputs)


def _match_inputs(files: tuple[dict[str, Any], dict[str, Any]], paths: tuple[str, str]) -> dict[str, str]:
    """Map the names of the first file's inputs to those of the second: by name, else in order."""
    first_names, second_names = ([entry["name"] for entry in file["inputs"]] for file in files)
    for side in ("inputs", "outputs"):
        a, b = (len(file[side]) for file in files)
        if a != b:
            raise OpsettaError(
                f"the files cannot be compared: '{paths[0]}' has {a} {side}, and '{paths[1]}' has {b}"
            )
    return (
        {name: name for name in first_names}
        if set(first_names) == set(second_names)
        else dict(zip(first_names, second_names, strict=True))
    )


def _loadable(path: str, trusted: bool) -> str | bytes:
    """Return the path of a binary file; the binary message of a text file, which onnxruntime cannot read."""
    with open_regular(path) as file:
        if form_of(file.read(_HEAD)) == "binary":
            return path
    result: str | bytes = read_model(path, bounds_of(trusted)).SerializeToString()
    return result


def _session(model: str | bytes, path: str, level: str) -> OpenSession:
    # One thread, because latencies with more would depend on the load of the machine.
    options = session_options(threads=1)
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if level == "all" else levels.ORT_DISABLE_ALL
    return OpenSession(open_session(model, f"'{path}'", options=options), f"'{path}'")


Feeds = tuple[Mapping[str, object], Mapping[str, object]]
"""The same values by the input names of both files."""


def _medians(sessions: Sequence[OpenSession], feeds: Feeds, runs: int) -> tuple[float, float]:
    """Return the medians of alternating runs in milliseconds; the first run of each is not counted."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for run in range(runs + 1):
        for session, feed, durations in zip(sessions, feeds, seconds, strict=True):
            # The first run allocates memory and packs weights.
            begin = time.perf_counter()
            session.run(feed)
            if run:
                durations.append(time.perf_counter() - begin)
    return statistics.median(seconds[0]) * 1000, statistics.median(seconds[1]) * 1000


def _differences(sessions: Sequence[OpenSession], feeds: Sequence[Feeds]) -> tuple[OutputDifference, ...]:
    largest: dict[int, OutputDifference] = {}
    output_names = sessions[0].output_names
    for pair in feeds:
        first_results, second_results = (
            [as_python(value) for value in session.run(feed)]
            for session, feed in zip(sessions, pair, strict=True)
        )
        for position, (a, b) in enumerate(zip(first_results, second_results, strict=True)):
            largest[position] = _larger_difference(
                largest.get(position), _difference(output_names[position], a, b)
            )
    return tuple(largest[position] for position in sorted(largest))


def _larger_difference(before: OutputDifference | None, after: OutputDifference) -> OutputDifference:
    if before is None or after.reason:
        return after
    if before.reason or before.absolute is None or after.absolute is None:
        return before
    return OutputDifference(
        before.name, max(before.absolute, after.absolute), max(before.relative or 0.0, after.relative or 0.0)
    )


def _difference(name: str, a: object, b: object) -> OutputDifference:
    """Compute the differences of two results; equal infinities, or NaN in both, are no difference."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        is_equal = type(a) is type(b) and str(a) == str(b)
        return (
            OutputDifference(name, 0.0, 0.0) if is_equal else OutputDifference(name, None, None, "not equal")
        )
    if a.shape != b.shape:
        return OutputDifference(name, None, None, f"shape {list(a.shape)} against {list(b.shape)}")
    if a.dtype != b.dtype:
        return OutputDifference(name, None, None, f"{a.dtype} against {b.dtype}")
    if a.dtype.kind not in "fiub":
        is_equal = np.array_equal(a, b)
        return (
            OutputDifference(name, 0.0, 0.0) if is_equal else OutputDifference(name, None, None, "not equal")
        )
    first, second = a.astype(np.float64), b.astype(np.float64)
    equal = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore", divide="ignore"):
        absolute = np.where(equal, 0.0, np.abs(first - second))
        # The maximum avoids a division by 0.
        relative = np.where(equal, 0.0, absolute / np.maximum(np.abs(first), np.finfo(np.float32).tiny))
    absolute, relative = (np.where(np.isnan(x), np.inf, x) for x in (absolute, relative))
    return OutputDifference(name, float(absolute.max(initial=0.0)), float(relative.max(initial=0.0)))
