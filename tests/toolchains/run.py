"""Runs every file in every consumer, each consumer in processes of its own environment."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import onnx

from .consumers import CONSUMERS, HERE, environment, interpreter
from .write import path_of, stem

SECONDS = 600
"""How long one file may take."""
_MAXIMUM_MESSAGE = 2000


def jobs(
    folder: pathlib.Path, models: list[str], writers: list[str], consumer: str = ""
) -> dict[tuple[str, str], dict]:
    """Find the files that were written for a consumer; the keys are pairs of model and writer."""
    found = {}
    for model in models:
        for writer in writers:
            path = path_of(folder, model, writer, consumer)
            if path.exists():
                outputs = [value.name for value in onnx.load(path, load_external_data=False).graph.output]
                sides = {side: str(folder / f"{stem(model)}-{side}.npz") for side in ("inputs", "expected")}
                found[model, writer] = {"model": str(path), "outputs": outputs, **sides}
    return found


def refusals(folder: pathlib.Path, models: list[str], consumer: str) -> dict[tuple[str, str], dict]:
    """The models that a consumer's target refuses, with the errors, as outcomes."""
    paths = {model: path_of(folder, model, "target", consumer).with_suffix(".refused") for model in models}
    return {
        (model, "target"): {"error": path.read_text(encoding="utf-8")}
        for model, path in paths.items()
        if path.exists()
    }


def run(
    consumer: str, work: dict[tuple[str, str], dict], root: pathlib.Path, seconds: float = SECONDS
) -> dict[tuple[str, str], dict]:
    """The outcome of each file. A process that dies is followed by one for the files after it.

    Args:
        seconds: how long one file may take.
    """
    keys, found = list(work), {}
    left = list(range(len(keys)))
    while left:
        batch = [(number, work[keys[number]]) for number in left]
        outcomes, died = _process(consumer, batch, root, seconds)
        for number, outcome in outcomes.items():
            found[keys[number]] = outcome
        began = [number for number in left if number in outcomes]
        if died is not None and not began:
            return {**found, **{keys[number]: {"error": died} for number in left}}
        left = [number for number in left if number not in outcomes]
    return found


def _process(
    consumer: str, batch: list, root: pathlib.Path, seconds: float
) -> tuple[dict[int, dict], str | None]:
    """The outcomes of the files up to one in which the process died, and what it then said."""
    python = interpreter(root, consumer)
    with tempfile.TemporaryDirectory() as folder:
        results, given = pathlib.Path(folder, "results"), pathlib.Path(folder, "jobs.json")
        given.write_text(json.dumps(batch), encoding="utf-8")
        adapter = HERE / "adapters" / f"{CONSUMERS[consumer].adapter}.py"
        modules = {"NODE_MODULES": str(environment(root, consumer) / "node_modules"), "OMP_NUM_THREADS": "1"}
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [python, HERE / "run_files.py", adapter, given, results]
        died = _watch(command, results, seconds, {**kept, **modules}, folder)
        lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    return outcomes_of(lines, died), died


def outcomes_of(lines: list[dict], died: str | None) -> dict[int, dict]:
    """Outcomes by number; a file that began and did not end has the way in which the process died."""
    outcomes = {line.pop("ended"): line for line in map(dict, lines) if "ended" in line}
    for line in lines:
        if "began" in line and line["began"] not in outcomes:
            outcomes[line["began"]] = {"error": died or "the process ended", "crash": True}
    return outcomes


def _watch(
    command: list, results: pathlib.Path, seconds: float, environment: dict[str, str], folder: str
) -> str | None:
    """Run a process until it ends, or until it writes nothing for too long; how it died, if it did."""
    errors = pathlib.Path(folder, "stderr")
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=stderr, env=environment, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
        size, since = -1, time.monotonic()
        while process.poll() is None:
            written = results.stat().st_size if results.exists() else 0
            if written != size:
                size, since = written, time.monotonic()
            elif time.monotonic() - since > seconds:
                # The converter that the adapter started is in the same process group.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"takes more than {seconds} s"
            time.sleep(0.02)
    message = errors.read_text(encoding="utf-8", errors="replace")[-_MAXIMUM_MESSAGE:]
    return None if not process.returncode else _death(process.returncode, message)


def _death(code: int, message: str) -> str:
    last = message.strip().splitlines()[-1] if message.strip() else ""
    return f"signal {-code}: {last}" if code < 0 else f"exit {code}: {last}"


def run_all(
    root: pathlib.Path, consumers: list[str], models: list[str], writers: list[str], seconds: float = SECONDS
) -> None:
    """Add what was found to `results.json`, one entry for each consumer, model and writer."""
    path, folder = root / "results.json", root / "files"
    for consumer in consumers:
        work = jobs(folder, models, writers, consumer)
        outcomes = run(consumer, work, root, seconds)
        if "target" in writers:
            outcomes |= refusals(folder, models, consumer)
        # Read late, because another process may run other consumers at the same time.
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for (model, writer), outcome in outcomes.items():
            known.setdefault(consumer, {}).setdefault(model, {})[writer] = outcome
        path.write_text(json.dumps(known, indent=1), encoding="utf-8")
        print(f"{consumer}: {len(work)} files", flush=True)
