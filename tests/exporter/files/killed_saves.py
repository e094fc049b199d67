"""Saves over a model, killed at each call that Python makes of the system: `killed_saves.py FOLDER SCENARIO`.

Each save runs in a forked process. It is killed before every function of `os`, `fcntl` and `mmap`
and every method of a file, the first time at its first call, the next time at its second, until it ends.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import shutil
import signal
import sys
import threading
from collections.abc import Callable

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pairs import listing, number_at, pair

from opsetta.exporter.files import writing
from opsetta.exporter.files.weights import tensor_writer

MODULES = {"posix", "nt", "fcntl", "mmap", "_io"}


def touches_files(function: object) -> bool:
    """Whether a built-in function may call the system for a file."""
    owner = getattr(function, "__self__", None)
    return (
        getattr(function, "__module__", None) in MODULES
        or isinstance(owner, io.IOBase)
        or (isinstance(owner, np.ndarray) and getattr(function, "__name__", "") == "tofile")
    )


def killed_at(count: int, save: Callable[[], None]) -> bool:
    """Save in a process that is killed at one of its calls; whether it came that far."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = count

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal left
        if event == "c_call" and touches_files(argument):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        threading.setprofile(profile)
        sys.setprofile(profile)
        save()
    finally:
        sys.setprofile(None)
        os._exit(0)


def inline(path: pathlib.Path, number: int) -> None:
    writing.save(pair(number), path)


def external(path: pathlib.Path, number: int) -> None:
    writing.save(pair(number), path, external_data=True)


SCENARIOS = {
    "inline over a pair": (external, inline),
    "a pair over a pair": (external, external),
    "a pair over an inline model": (inline, external),
    "a pair where there was none": (None, external),
}


def main() -> None:
    """Print what was at the path after each save that was killed, and after the last, which was not."""
    # What a killed process wrote needs no disk to be there: another call of the system stands for this one.
    os.fsync = os.fstat  # type: ignore[assignment]
    # Small weights are written in a thread too.
    tensor_writer._SMALL = 0
    folder, (before, save) = pathlib.Path(sys.argv[1]), SCENARIOS[sys.argv[2]]
    path = folder / "model.onnx"
    found: list[int | None] = []
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "notes.txt").write_text("not ours")
        if before is not None:
            before(path, 1)
        kept = listing(folder)
        killed = killed_at(len(found), lambda: save(path, 2))
        found.append(number_at(path) if path.exists() else None)
        if found[-1] != 2:
            # The old model is whole, and nothing of it is gone.
            assert set(kept) <= set(listing(folder)), listing(folder)
        save(path, 3)
        assert number_at(path) == 3
        left = ["model.onnx", *["model.onnx.DIGEST.data"] * (save is external), "notes.txt"]
        assert listing(folder) == left, listing(folder)
        if not killed:
            break
    print(json.dumps(found))


if __name__ == "__main__":
    main()
