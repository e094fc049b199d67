"""What reading a file may take, measured: each way of reading it runs in a process of its own.

    python -m tests.fuzz.limits [--json] [--way WAY ...] [NAME ...]

Measures hostile files, or families of them: all, unless named. Families are `models` (ONNX, TensorFlow and
Caffe2), `readers` (values that are read often), `patterns` (large models of few operators), `checkpoints`
(TensorFlow's, and SavedModels), `archives` (of PyTorch), `sources` (`save_source`) and `settings` (TOML,
JSON, folders of Hugging Face).

Time is processor time, that of the process and of those that it starts: how busy the machine is does not
count. A process that waits, and does not run, is ended. Memory is the most that the process held at once; it
is a fork of one that has imported what reads files, and has made none of them. What imported code takes
beyond opsetta's own, such as torch's, does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import importlib
import json
import os
import pathlib
import resource
import select
import signal
import stat
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import IO

import typer

import opsetta
from opsetta import symbolics  # noqa: F401
from opsetta.exporter.command_line.commands import inspection

from . import (
    hostile,
    hostile_archives,
    hostile_checkpoints,
    hostile_graphs,
    hostile_patterns,
    hostile_readers,
    hostile_settings,
    hostile_sources,
)
from .hostile import Builder

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADDRESS_SPACE = 3 << 30
"""Bytes that a process may ask for beyond those of what it imports: a guard for the machine."""
OWN_CODE = 100 * 10**6
"""Bytes that a process holds that has imported opsetta and nothing else."""
Way = Callable[[pathlib.Path], object]
"""A way of reading the file of a path. The folder of the path has what else was made for it."""


def allowed_memory(size: int) -> int:
    """Bytes that a process may hold at once for a file of a size, the interpreter's own among them."""
    return 300 * 10**6 + 4 * size


def allowed_seconds(size: int) -> float:
    """Seconds of processor time for a file of a size."""
    return 5 + size / 10**6


STILL = 60.0
"""Seconds by the clock without processor time after which a process is ended: it waits for something."""


def _processor_time(group: int) -> float:
    """Seconds that the running processes of a group have run."""
    total = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # The name of the program, in parentheses, may have spaces.
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _ends(pipe: IO[bytes], group: int) -> bool:
    """Wait until a process writes to a pipe or closes it; False if it waits for something else."""
    before = -1.0
    while not select.select([pipe], [], [], STILL)[0]:
        now = _processor_time(group)
        if now <= before:
            return False
        before = now
    return True


def _converted(opset: int) -> Callable[[pathlib.Path], object]:
    def convert(path: pathlib.Path) -> None:
        opsetta.load(path).lower(opset).save(path.parent / "converted.onnx")

    return convert


def _check(path: pathlib.Path) -> None:
    # A file with invalid nodes ends the command with 1.
    with contextlib.suppress(typer.Exit):
        inspection.check(path)


@dataclasses.dataclass(frozen=True)
class Family:
    """Hostile files, and how each of them is read.

    Attributes:
        files: what makes each file, by its name.
        ways: the ways of reading each.
        imports: modules that are imported before.
    """

    files: Mapping[str, Builder]
    ways: Mapping[str, Way]
    imports: Sequence[str] = ()


WAYS: dict[str, Way] = {
    "load": opsetta.load,
    "info": inspection.info,
    "check": _check,
    "convert to 7": _converted(7),
    "convert to 23": _converted(23),
}
FAMILIES = {
    "models": Family({**hostile.FILES, **hostile_graphs.FILES}, WAYS),
    "readers": Family(hostile_readers.FILES, WAYS),
    "patterns": Family(hostile_patterns.FILES, {**WAYS, **hostile_patterns.WAYS}),
    "checkpoints": Family(hostile_checkpoints.FILES, hostile_checkpoints.WAYS),
    "settings": Family(hostile_settings.FILES, hostile_settings.WAYS, hostile_settings.IMPORTS),
    "sources": Family(hostile_sources.FILES, hostile_sources.WAYS),
    "archives": Family(hostile_archives.FILES, hostile_archives.WAYS, hostile_archives.IMPORTS),
}
"""Those that import torch come last."""


@dataclasses.dataclass(frozen=True)
class Taken:
    """What one way of reading a file took.

    Attributes:
        end: how it ended, in words.
        failed: whether that was neither a result nor an error of ours.
        imported: bytes of imported code that do not count.
    """

    seconds: float
    memory: int
    end: str
    failed: bool
    imported: int = 0

    def problem(self, size: int) -> str:
        """What is wrong with it; nothing, mostly."""
        if self.failed:
            return self.end
        if self.seconds > allowed_seconds(size):
            return f"{self.seconds:.1f} s for {size} bytes, where {allowed_seconds(size):.1f} are allowed"
        if self.memory - self.imported > allowed_memory(size):
            megabytes, most = (self.memory - self.imported) / 10**6, allowed_memory(size) / 10**6
            return f"{megabytes:.0f} MB for {size} bytes, where {most:.0f} are allowed"
        return ""


def _size_of(folder: pathlib.Path) -> int:
    """The bytes of the files of a folder."""
    statuses = [file.lstat() for file in folder.rglob("*")]
    return sum(status.st_size for status in statuses if stat.S_ISREG(status.st_mode))


def measure(way: Way, path: pathlib.Path, size: int) -> Taken:
    """Run one way of reading a file in a fork of this process.

    Args:
        size: bytes of the file, and of what belongs to it.
    """
    receiving, sending = os.pipe()
    gc.collect()
    with open("/proc/self/statm", "rb") as file:
        imported = max(0, int(file.read().split()[1]) * resource.getpagesize() - OWN_CODE)
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        _child(way, path, sending, size)
    os.close(sending)
    with open(receiving, "rb") as pipe:
        hangs = not _ends(pipe, child)
        if hangs:
            os.killpg(child, signal.SIGKILL)
        said = pipe.read()
    _, status, used = os.wait4(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    end = json.loads(said) if said else f"the process ended with {ended}"
    end = "the process waits for something that does not come" if hangs else end
    failed = not said or hangs or end.startswith("Traceback") or "MemoryError" in end
    return Taken(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, end, failed, imported)


def _child(way: Way, path: pathlib.Path, sending: int, size: int) -> None:
    """What the fork does; it does not return."""
    end = "done"
    try:
        with open("/proc/self/statm", "rb") as file:
            space = int(file.read().split()[0]) * resource.getpagesize() + ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        seconds = 3 * int(allowed_seconds(size)) + 10
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        warnings.simplefilter("ignore")
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            way(path)
    except opsetta.OpsettaError as error:
        end = f"{type(error).__name__}: {error}"[:300]
    except BaseException:
        end = f"Traceback: {traceback.format_exc()[-2000:]}"
    with open(sending, "wb") as pipe:
        pipe.write(json.dumps(end).encode())
        pipe.flush()
    os._exit(0)


def _make(name: str, build: Builder, path: pathlib.Path) -> None:
    """Make a hostile file in a fork: what this process held to make it would count as taken to read it."""
    child = os.fork()
    if not child:
        try:
            build(path)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"the hostile file '{name}' could not be made")


def taken_by(family: Family, name: str, ways: Sequence[str] = ()) -> tuple[int, dict[str, Taken]]:
    """Make a hostile file and read it: its size, and what each way took.

    Args:
        ways: the ways of its family to read it; all, unless named.
    """
    for module in family.imports:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory(prefix="opsetta-hostile-") as folder:
        path = pathlib.Path(folder) / "files" / "model.onnx"
        path.parent.mkdir()
        _make(name, family.files[name], path)
        size = _size_of(path.parent)
        chosen = {title: way for title, way in family.ways.items() if not ways or title in ways}
        return size, {title: measure(way, path, size) for title, way in chosen.items()}


def _chosen(names: Sequence[str]) -> list[tuple[Family, str]]:
    """The files with these names, and those of the families with these names; all without any."""
    return [
        (family, name)
        for title, family in FAMILIES.items()
        for name in family.files
        if not names or title in names or name in names
    ]


def measured(names: Sequence[str]) -> dict[str, tuple[int, dict[str, Taken]]]:
    """What hostile files take, in forks of a process that has imported nothing but what reads them."""
    command = [sys.executable, "-m", "tests.fuzz.limits", "--json", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {
        name: (size, {way: Taken(**fields) for way, fields in ways.items()})
        for name, (size, ways) in json.loads(done.stdout).items()
    }


def main(arguments: Sequence[str]) -> int:
    """Run the command; 1 where a file took too much."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a file or a family")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--way", action="append", help="only this way of reading; may be repeated")
    options = parser.parse_args(arguments)
    as_json = options.json
    measurements: dict[str, tuple[int, dict[str, Taken]]] = {}
    count = 0
    for family, name in _chosen(options.names):
        size, ways = measurements[name] = taken_by(family, name, options.way or ())
        for way, taken in {} if as_json else ways.items():
            problem = taken.problem(size)
            count += bool(problem)
            print(
                f"{name:32} {size:10} {way:13} {taken.seconds:6.2f} s "
                f"{(taken.memory - taken.imported) / 10**6:6.0f} MB  "
                f"{problem and '***'} {taken.end[-160:]!r}",
                flush=True,
            )
    if as_json:
        print(json.dumps({n: (s, {w: dataclasses.asdict(t) for w, t in ways.items()})
                          for n, (s, ways) in measurements.items()}))  # fmt: skip
        return 0
    print(f"{count} problems")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
