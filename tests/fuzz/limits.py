"""What reading a file may take, measured: each way of reading it runs in a process of its own.

python -m tests.fuzz.limits [--json] [NAME ...]      # of the hostile files; all of them unless named

Time is processor time, that of the process and of those that it starts: how busy the machine is does not
count. The clock on the wall ends only what hangs. Memory is the most that the process held at once; it is a
fork of one that has imported what reads files, and has made none of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence

import opsetta
from opsetta import symbolics  # noqa: F401
from opsetta.exporter.command_line.commands import inspection
from opsetta.exporter.running import inplace_check

from . import hostile, hostile_graphs

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {**hostile.FILES, **hostile_graphs.FILES}
ADDRESS_SPACE = 3 << 30
"""Bytes that a process may ask for: a guard for the machine, far above what is allowed."""


def allowed_memory(size: int) -> int:
    """Bytes that a process may hold at once for a file of a size, the interpreter's own among them."""
    return 300 * 10**6 + 4 * size


def allowed_seconds(size: int) -> float:
    """Seconds of processor time for a file of a size."""
    return 5 + size / 10**6


def hanging_seconds(size: int) -> float:
    """Seconds by the clock after which a process is ended, however little of them it ran."""
    return 60 + 20 * allowed_seconds(size)


def _converted(opset: int) -> Callable[[pathlib.Path], object]:
    def convert(path: pathlib.Path) -> None:
        opsetta.load(path).lower(opset).save(path.parent / "converted.onnx")

    return convert


WAYS: dict[str, Callable[[pathlib.Path], object]] = {
    "load": opsetta.load,
    "info": inspection.info,
    "check": inplace_check.check_inplace,
    "convert to 7": _converted(7),
    "convert to 23": _converted(23),
}


@dataclasses.dataclass(frozen=True)
class Taken:
    """What one way of reading a file took.

    Attributes:
        end: how it ended, in words.
        failed: whether that was neither a result nor an error of ours.
    """

    seconds: float
    memory: int
    end: str
    failed: bool

    def problem(self, size: int) -> str:
        """What is wrong with it; nothing, mostly."""
        if self.failed:
            return self.end
        if self.seconds > allowed_seconds(size):
            return f"{self.seconds:.1f} s for {size} bytes, where {allowed_seconds(size):.1f} are allowed"
        if self.memory > allowed_memory(size):
            megabytes, most = self.memory / 10**6, allowed_memory(size) / 10**6
            return f"{megabytes:.0f} MB for {size} bytes, where {most:.0f} are allowed"
        return ""


def measure(way: str, path: pathlib.Path) -> Taken:
    """Run one way of reading a file in a fork of this process."""
    size = path.stat().st_size
    receiving, sending = os.pipe()
    gc.collect()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        _child(way, path, sending, size)
    os.close(sending)
    with open(receiving, "rb") as pipe:
        seconds = hanging_seconds(size)
        hangs = not select.select([pipe], [], [], seconds)[0]
        if hangs:
            os.killpg(child, signal.SIGKILL)
        said = pipe.read()
    _, status, used = os.wait4(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    end = json.loads(said) if said else f"the process ended with {ended}"
    end = f"the process did not end within {seconds:.0f} s" if hangs else end
    failed = not said or hangs or end.startswith("Traceback") or "MemoryError" in end
    return Taken(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, end, failed)


def _child(way: str, path: pathlib.Path, sending: int, size: int) -> None:
    """What the fork does; it does not return."""
    end = "done"
    try:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        seconds = 3 * int(allowed_seconds(size)) + 10
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        warnings.simplefilter("ignore")
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            WAYS[way](path)
    except opsetta.OpsettaError as error:
        end = f"{type(error).__name__}: {error}"[:300]
    except BaseException:
        end = f"Traceback: {traceback.format_exc()[-2000:]}"
    with open(sending, "wb") as pipe:
        pipe.write(json.dumps(end).encode())
        pipe.flush()
    os._exit(0)


def _make(name: str, path: pathlib.Path) -> None:
    """Make a hostile file in a fork: what this process held to make it would count as taken to read it."""
    child = os.fork()
    if not child:
        try:
            FILES[name](path)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"the hostile file '{name}' could not be made")


def taken_by(name: str, folder: pathlib.Path) -> tuple[int, dict[str, Taken]]:
    """Make a hostile file and read it in every way: its size, and what each way took."""
    path = folder / "model.onnx"
    _make(name, path)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return size, {way: measure(way, path) for way in WAYS}


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
    as_json = "--json" in arguments
    found: dict[str, tuple[int, dict[str, Taken]]] = {}
    count = 0
    for name in [name for name in arguments if name != "--json"] or FILES:
        with tempfile.TemporaryDirectory(prefix="opsetta-hostile-") as folder:
            size, ways = found[name] = taken_by(name, pathlib.Path(folder))
        for way, taken in {} if as_json else ways.items():
            problem = taken.problem(size)
            count += bool(problem)
            print(
                f"{name:32} {size:10} {way:13} {taken.seconds:6.2f} s {taken.memory / 10**6:6.0f} MB  "
                f"{problem and '***'} {taken.end[-160:]!r}",
                flush=True,
            )
    if as_json:
        print(json.dumps({n: (s, {w: dataclasses.asdict(t) for w, t in ways.items()})
                          for n, (s, ways) in found.items()}))  # fmt: skip
        return 0
    print(f"{count} problems")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
