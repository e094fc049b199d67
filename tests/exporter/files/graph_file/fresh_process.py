"""The round trip that a user makes: save here, load and lower where torch cannot be imported."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

import opsetta
from opsetta.exporter.files.graph_file.equality import difference

from ....opsets import is_full_run
from . import without_torch
from .without_torch import digests, second_save

REFERENCE = 18
"""The opset at which results are compared."""
TOLERANCE = 5e-3
"""Of what is at most one; a quantized model may be a step of its last scale off."""


def check_round_trip(folder: pathlib.Path, programs: Mapping[str, opsetta.Program]) -> None:
    """Save programs, and see that a process without torch lowers them to the same bytes.

    At every opset in a full run; else at the lowest, the highest, and some between.
    """
    expected = {f"{name}.source.onnx": _saved(folder, name, program) for name, program in programs.items()}
    # The script has the work tree's package, wherever it lies, and no torch.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run(
        [sys.executable, without_torch.__file__, str(folder), *map(str, opsets())],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert set(report) == set(expected)
    for name, found in report.items():
        assert found["second"] == expected[name]["second"], name
        assert found["opsets"] == expected[name]["opsets"], name
        assert all(error < TOLERANCE for error in found["errors"]), (name, found["errors"])


def opsets() -> list[int]:
    """The opsets at which programs are lowered."""
    every = range(opsetta.MINIMUM_OPSET, opsetta.MAXIMUM_OPSET + 1)
    return [*every] if is_full_run() else [every[0], REFERENCE, every[-1]]


def _saved(folder: pathlib.Path, name: str, program: opsetta.Program) -> dict[str, Any]:
    path = folder / f"{name}.source.onnx"
    program.save_source(path)
    loaded = opsetta.load(path)
    assert difference(program._capture, loaded._capture) is None
    assert second_save(loaded) == hashlib.sha256(path.read_bytes()).hexdigest()
    _save_reference(folder / f"{name}.npz", program)
    found = digests(program, opsets())
    # Lowering reads the graph and leaves it as it is.
    program.save_source(folder / "again")
    assert (folder / "again").read_bytes() == path.read_bytes()
    return {"second": second_save(loaded), "opsets": found}


def _save_reference(path: pathlib.Path, program: opsetta.Program) -> None:
    """The example's inputs and what eager PyTorch gives for them, where all are what numpy has."""
    from opsetta.exporter.running import calls

    args, kwargs = program._capture.example or ((), {})
    leaves = calls.flatten(program._calls.interface, args, kwargs)
    given = [leaf for leaf, name in zip(leaves, program.interface.inputs, strict=True) if name is not None]
    results = calls.run_eager(program._calls.module(), program.interface, args, kwargs)
    arrays = {f"input {i}": np.asarray(leaf) for i, leaf in enumerate(given)}
    arrays |= {f"output {i}": np.asarray(result) for i, result in enumerate(results)}
    if any(np.iscomplexobj(array) for array in arrays.values()):
        return
    np.savez(path, opset=np.int64(REFERENCE), **arrays)  # type: ignore[arg-type]
