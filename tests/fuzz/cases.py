"""One mutated file through everything that reads files, and what came of it."""

from __future__ import annotations

import collections
import contextlib
import difflib
import functools
import logging
import os
import pathlib
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from typing import Any

import onnx
import onnx_ir as ir

import opsetta
from opsetta.exporter.files.reading import read_model, to_ir
from opsetta.exporter.files.summary import describe_file

from . import caffe2_nets, checkpoint_files, corpus, mutations, source_files, tensorflow_files
from .canonical import canonical

MEMORY = 3 << 30
"""Bytes of address space that a process may have."""
SECONDS = 10.0
"""How long one file may take."""


class _Watch:
    """Sees every file that Python opens, and keeps those that lie outside of the model's folder."""

    def __init__(self) -> None:
        self.folder = ""
        self.outside: list[str] = []
        self._ours = tuple(os.path.realpath(path) for path in {sys.prefix, sys.base_prefix, os.getcwd()})
        self._package = os.path.realpath(os.path.dirname(str(opsetta.__file__)))

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not self.folder or not isinstance(arguments[0], (str, bytes)):
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        # Stages of a conversion read the memory of this process.
        if not path.startswith((self.folder, self._package, *self._ours, os.path.realpath("/proc/self"))):
            self.outside.append(path)


class Setting:
    """What cases share: the files that are mutated, a folder with traps, and the watch over it.

    Args:
        root: an empty folder.
        source: one of `SOURCES`.
    """

    def __init__(self, root: pathlib.Path, source: str = "onnx"):
        self.folder = corpus.make_folder(root)
        files, self.mutate, self.read_everything = _SOURCES[source]
        self.files = files()
        self.watch = _Watch()
        sys.addaudithook(self.watch)


@functools.cache
def _bounded_setting(root: str, source: str) -> Setting:
    """The setting of a process that has no more memory than it may, in a folder of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    logging.disable()
    return Setting(pathlib.Path(tempfile.mkdtemp(dir=root)), source)


def run_cases(root: str, source: str, seed: int, span: tuple[int, int]) -> dict[str, Any]:
    """Run a range of cases; how they ended, by count, the failures, and the slowest.

    Each case is made from the seed and its number alone; files are written below the folder `root`.
    """
    setting = _bounded_setting(root, source)
    ends: collections.Counter[str] = collections.Counter()
    failures = []
    slowest = (0.0, -1)
    for number in range(*span):
        start = time.perf_counter()
        end, problem = run_case(setting, seed, number)
        slowest = max(slowest, (time.perf_counter() - start, number))
        ends[end] += 1
        if problem:
            failures.append((number, problem))
    return {
        "ends": ends,
        "failures": failures,
        "slowest": slowest,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def run_case(setting: Setting, seed: int, number: int) -> tuple[str, str]:
    """How one case ended, and what is wrong with that, if anything is."""
    return run_data(setting, setting.mutate(random.Random(f"{seed}:{number}"), setting.files))


def run_data(setting: Setting, data: bytes) -> tuple[str, str]:
    """As `run_case`, of a file with these contents."""
    path = setting.folder / "model.onnx"
    path.write_bytes(data)
    setting.watch.folder, setting.watch.outside = os.path.realpath(setting.folder), []
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            end = setting.read_everything(path)
    except Exception:
        return "failed", traceback.format_exc()[-3000:]
    finally:
        setting.watch.folder = ""
    if setting.watch.outside:
        return "outside", f"opened {setting.watch.outside}"
    if time.perf_counter() - start > SECONDS:
        return "slow", f"took {time.perf_counter() - start:.1f} s"
    return end, ""


def _read_everything(path: pathlib.Path) -> str:
    """Read a file in every way there is; anything but our own errors goes on to the caller."""
    try:
        proto = read_model(path)
    except opsetta.ModelFileError:
        return "refused as a file"
    with contextlib.suppress(opsetta.OpsettaError):
        describe_file(path)
    with contextlib.suppress(opsetta.OpsettaError):
        opsetta.check_inplace(proto)
    try:
        model = to_ir(proto, path.parent)
    except opsetta.ModelFileError:
        return "refused as a model"
    _read_tensors(model)
    written = ir.to_proto(model)
    if canonical(written) != canonical(proto) and not model.meta.get("left_out"):
        raise AssertionError(f"something was lost:\n{difference(proto, written)}")
    return "read"


def _read_tensors(model: ir.Model) -> None:
    """Use the contents of every tensor, those beside the file too."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        for tensor in ir.external_data._all_tensors(graph, include_attributes=True):
            array = tensor.numpy()
            assert array.shape == tuple(tensor.shape.numpy())
            if tensor.dtype != ir.DataType.STRING:
                assert len(tensor.tobytes()) == tensor.nbytes


def difference(one: onnx.ModelProto, other: onnx.ModelProto) -> str:
    """The first lines in which two models differ."""
    texts = [str(canonical(model)).splitlines() for model in (one, other)]
    changed = [line for line in difflib.unified_diff(*texts, lineterm="", n=2) if not line.startswith("@@")]
    return "\n".join(line[:200] for line in changed[:25])


def _mutating(source: mutations.Source) -> Any:
    return functools.partial(mutations.mutate, source=source)


_SOURCES: dict[str, tuple[Any, Any, Any]] = {
    "onnx": (corpus.files, mutations.mutate, _read_everything),
    "tensorflow": (
        tensorflow_files.files,
        _mutating(tensorflow_files.SOURCE),
        tensorflow_files.read_everything,
    ),
    "checkpoints": (checkpoint_files.files, checkpoint_files.mutate, checkpoint_files.read_everything),
    "freezing": (checkpoint_files.graphs, checkpoint_files.mutate_graph, checkpoint_files.freeze_everything),
    "captures": (source_files.files, source_files.mutate, source_files.read_everything),
    "caffe2": (caffe2_nets.files, _mutating(caffe2_nets.SOURCE), caffe2_nets.read_everything),
}
SOURCES = tuple(_SOURCES)
"""Models of ONNX, TensorFlow's graphs, checkpoints, graphs that are frozen, captures, and Caffe2's nets."""
