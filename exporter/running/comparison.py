"""Compares two model files: their contents, their latency in onnxruntime, and their results."""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...registration import InferenceError, OpsettaError
from ..files.reading import bounds_of, read_model
from ..files.reading.encodings.text import form_of
from ..files.summary import describe_file
from .session import open_session, session_options

_BOUND = 2
"""Random integers are 0 or 1, which embeddings and masks take."""
_SIZE = 2
_HEAD = 512
"""Bytes that tell a binary file from a text."""
_FLOATS = {"float": np.float32, "float16": np.float16, "double": np.float64}
_INTEGERS = {
    f"{sign}int{bits}": getattr(np, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest differences of one output over all seeds; they are None if shapes or types differ.

    Attributes:
        name: the output's name in the first file.
        reason: why there are no numbers.
    """

    name: str
    absolute: float | None
    relative: float | None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two files side by side.

    Attributes:
        files: what `files.summary` says of each.
        latency: medians in milliseconds of each file, by "all" and "none" for onnxruntime's optimizations.
        outputs: the differences by output, in order.
    """

    files: tuple[dict[str, Any], dict[str, Any]]
    latency: dict[str, tuple[float, float]]
    outputs: tuple[Difference, ...]


def compare_files(
    first: str | os.PathLike,
    second: str | os.PathLike,
    *,
    runs: int = 20,
    seeds: Sequence[int] = (0, 1),
    dimensions: Mapping[str, int] | None = None,
    trusted: bool = False,
) -> Comparison:
    """Compare two files that take the same inputs, by name or else in order.

    Sessions have one thread. Runs of both files alternate, so that changes of the machine's load affect both.

    Args:
        runs: measured runs of each file at each level; 0 measures nothing.
        seeds: one random input for each.
        dimensions: sizes of named dimensions; 2 for others.
        trusted: see `opsetta.load`.

    Raises:
        ModelFileError: a file cannot be read.
        InferenceError: onnxruntime is not installed, or refuses a file or its inputs.
        OpsettaError: the inputs or outputs of the files do not correspond.
    """
    paths = os.fspath(first), os.fspath(second)
    files = describe_file(paths[0], trusted=trusted), describe_file(paths[1], trusted=trusted)
    sizes = dict(dimensions or {})
    named = {size for entry in files[0]["inputs"] for size in entry["shape"] or () if isinstance(size, str)}
    unknown = sorted(set(sizes) - named)
    if unknown:
        listed = ", ".join(sorted(named)) or "none"
        raise OpsettaError(f"no input of '{paths[0]}' has a dimension '{unknown[0]}' (named: {listed})")
    names = _corresponding(files, paths)
    feeds = [random_feed(files[0]["inputs"], seed, sizes) for seed in seeds]
    models = [_loadable(path, trusted) for path in paths]
    latency: dict[str, tuple[float, float]] = {}
    outputs: tuple[Difference, ...] = ()
    for level in ("all", "none"):
        sessions = [_session(model, path, level) for model, path in zip(models, paths, strict=True)]
        if level == "all":
            outputs = _differences(sessions, feeds, names)
        if runs:
            latency[level] = _medians(sessions, feeds[0], names, runs)
    return Comparison(files, latency, outputs)


def _corresponding(files: tuple[dict[str, Any], dict[str, Any]], paths: tuple[str, str]) -> dict[str, str]:
    """The names of the second file's inputs by those of the first."""
    mine, theirs = ([entry["name"] for entry in file["inputs"]] for file in files)
    for kind in ("inputs", "outputs"):
        a, b = (len(file[kind]) for file in files)
        if a != b:
            raise OpsettaError(
                f"the files cannot be compared: '{paths[0]}' has {a} {kind}, and '{paths[1]}' has {b}"
            )
    return {name: name for name in mine} if set(mine) == set(theirs) else dict(zip(mine, theirs, strict=True))


def random_inputs(inputs: Sequence[ir.Value], seed: int = 0) -> dict[str, np.ndarray]:
    """Random values for the inputs of a model, by name; unknown and named sizes are 2.

    Raises:
        OpsettaError: an input has no shape, or an element type for which no values are made.
    """
    entries = [
        {
            "name": value.name or "",
            "type": value.dtype.name if value.dtype is not None else "unknown",
            "shape": None
            if value.shape is None
            else [size if isinstance(size, int) else None for size in value.shape],
        }
        for value in inputs
    ]
    return random_feed(entries, seed, {})


def random_feed(
    inputs: Sequence[Mapping[str, Any]], seed: int, sizes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Random values: normally distributed floats, integers of 0 and 1, random bools.

    Args:
        inputs: name, type and shape of each, as `files.summary` lists them.
        sizes: sizes of named dimensions; 2 for others.

    Raises:
        OpsettaError: an input has no shape, or a type for which no values are made.
    """
    random = np.random.default_rng(seed)
    found = {}
    for entry in inputs:
        if entry["shape"] is None:
            raise OpsettaError(
                f"input '{entry['name']}' has no shape, so no random values can be made for it"
            )
        shape = [_size(size, sizes) for size in entry["shape"]]
        kind = entry["type"].lower()
        if kind in _FLOATS:
            found[entry["name"]] = random.standard_normal(shape).astype(_FLOATS[kind])
        elif kind in _INTEGERS:
            found[entry["name"]] = random.integers(0, _BOUND, shape).astype(_INTEGERS[kind])
        elif kind == "bool":
            found[entry["name"]] = random.random(shape) < 0.5
        else:
            raise OpsettaError(
                f"input '{entry['name']}' has the type {entry['type']}, for which random values are not "
                "supported"
            )
    return found


def _size(size: int | str | None, sizes: Mapping[str, int]) -> int:
    """The size of a dimension; old exporters write -1 for one that varies."""
    if isinstance(size, int):
        return size if size >= 0 else _SIZE
    return sizes.get(size or "", _SIZE)


def _loadable(path: str, trusted: bool) -> str | bytes:
    """The path of a binary file; the contents of a text, which onnxruntime does not read, as a binary."""
    with open(path, "rb") as file:
        if form_of(file.read(_HEAD)) == "binary":
            return path
    return read_model(path, bounds_of(trusted)).SerializeToString()


def _session(model: str | bytes, path: str, level: str) -> Any:
    options = session_options(threads=1)
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if level == "all" else levels.ORT_DISABLE_ALL
    return open_session(model, f"'{path}'", options=options)


def _run(session: Any, feed: Mapping[str, np.ndarray], names: Mapping[str, str] | None) -> list[Any]:
    own = feed if names is None else {names[name]: array for name, array in feed.items()}
    try:
        return session.run(None, own)
    except Exception as error:
        raise InferenceError(f"onnxruntime could not run a file: {' '.join(str(error).split())}") from error


def _medians(
    sessions: Sequence[Any], feed: Mapping[str, np.ndarray], names: Mapping[str, str], runs: int
) -> tuple[float, float]:
    """The medians of alternating runs in milliseconds; the first run of each is not counted."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(runs + 1):
        for session, other, taken in zip(sessions, (None, names), seconds, strict=True):
            begin = time.perf_counter()
            _run(session, feed, other)
            if turn:
                taken.append(time.perf_counter() - begin)
    return statistics.median(seconds[0]) * 1000, statistics.median(seconds[1]) * 1000


def _differences(
    sessions: Sequence[Any], feeds: Sequence[Mapping[str, np.ndarray]], names: Mapping[str, str]
) -> tuple[Difference, ...]:
    found: dict[int, Difference] = {}
    called = [entry.name for entry in sessions[0].get_outputs()]
    for feed in feeds:
        mine, theirs = _run(sessions[0], feed, None), _run(sessions[1], feed, names)
        for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            found[place] = _larger_difference(found.get(place), _difference(called[place], a, b))
    return tuple(found[place] for place in sorted(found))


def _larger_difference(before: Difference | None, after: Difference) -> Difference:
    if before is None or after.reason:
        return after
    if before.reason or before.absolute is None or after.absolute is None:
        return before
    return Difference(
        before.name, max(before.absolute, after.absolute), max(before.relative or 0.0, after.relative or 0.0)
    )


def _difference(name: str, a: Any, b: Any) -> Difference:
    """The differences of two results; equal infinities and NaN are no difference."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        same = type(a) is type(b) and str(a) == str(b)
        return Difference(name, 0.0, 0.0) if same else Difference(name, None, None, "not equal")
    if a.shape != b.shape:
        return Difference(name, None, None, f"shape {list(a.shape)} against {list(b.shape)}")
    if a.dtype != b.dtype:
        return Difference(name, None, None, f"{a.dtype} against {b.dtype}")
    if a.dtype.kind not in "fiub":
        same = np.array_equal(a, b)
        return Difference(name, 0.0, 0.0) if same else Difference(name, None, None, "not equal")
    mine, theirs = a.astype(np.float64), b.astype(np.float64)
    equal = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    with np.errstate(invalid="ignore", divide="ignore"):
        absolute = np.where(equal, 0.0, np.abs(mine - theirs))
        relative = np.where(equal, 0.0, absolute / np.maximum(np.abs(mine), np.finfo(np.float32).tiny))
    absolute, relative = (np.where(np.isnan(x), np.inf, x) for x in (absolute, relative))
    return Difference(name, float(absolute.max(initial=0.0)), float(relative.max(initial=0.0)))
