"""The records of the parity suite as models of their own, which each consumer runs.

Each record is exported for the consumer's target. A first input of floats passes an identity convolution or
linear layer, because many consumers lay tensors out differently behind one.
"""

from __future__ import annotations

import importlib
import json
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import torch

import opsetta

from ..parity.records import Record
from . import report, run
from .consumers import CONSUMERS, TARGETS
from .write import silent

SECONDS = 60
"""How long one operator may take."""
_DTYPES = (torch.float32, torch.int64)


class _Embedded(torch.nn.Module):
    """A function whose first input passes a layer that leaves it unchanged."""

    def __init__(self, function: Callable[..., Any], first: torch.Tensor):
        super().__init__()
        self.function = function
        self.layer: torch.nn.Module = torch.nn.Identity()
        if first.dtype == torch.float32 and first.ndim in (2, 3, 4) and first.numel():
            size = first.shape[1] if first.ndim == 4 else first.shape[-1]
            self.layer = torch.nn.Conv2d(size, size, 1) if first.ndim == 4 else torch.nn.Linear(size, size)
            with torch.no_grad():
                self.layer.weight.copy_(torch.eye(size).reshape(self.layer.weight.shape))
                self.layer.bias.zero_()

    def forward(self, first: torch.Tensor, *others: Any) -> Any:
        return self.function(self.layer(first), *others)


def records() -> Iterator[tuple[str, Record]]:
    """The records of the parity suite whose inputs are tensors that every consumer takes, by unique names."""
    folder = pathlib.Path(__file__).resolve().parents[1] / "parity"
    numbers: Counter[str] = Counter()
    for path in sorted(folder.glob("test_*.py")):
        module = importlib.import_module(f"tests.parity.{path.stem}")
        lists = [value for value in vars(module).values() if isinstance(value, list)]
        for record in (item for items in lists for item in items if isinstance(item, Record)):
            tensors = [value for value in record.inputs if isinstance(value, torch.Tensor)]
            if len(tensors) < len(record.inputs) or not tensors or record.dynamic is not None:
                continue
            if all(value.dtype in _DTYPES and value.ndim and value.numel() for value in tensors):
                stem = f"{path.stem.removeprefix('test_')}/{record.name}"
                numbers[stem] += 1
                yield stem if numbers[stem] == 1 else f"{stem}_{numbers[stem]}", record


def write(name: str, record: Record, target: str, folder: pathlib.Path) -> dict[str, str] | str | None:
    """Write the file of one record for a target.

    Returns:
        What `run` needs of the file; the error where opsetta refuses the record; None where its result is not
        a tensor of floats.
    """
    inputs = tuple(value.detach().clone() for value in record.inputs)
    names = [f"in{number}" for number in range(len(inputs))]
    model = _Embedded(record.function, inputs[0]).eval()
    with silent():
        with torch.no_grad():
            expected = model(*(value.clone() for value in inputs))
        expected = expected[0] if isinstance(expected, tuple | list) else expected
        if not isinstance(expected, torch.Tensor) or expected.dtype != torch.float32 or not expected.numel():
            return None
        if not bool(torch.isfinite(expected).all()):
            return None
        try:
            program = opsetta.export(model, inputs, target=target, input_names=names)
        except opsetta.OpsettaError as error:
            return str(error)
    folder.mkdir(parents=True, exist_ok=True)
    stem = name.replace("/", "-").replace(" ", "_")
    paths = {part: str(folder / f"{stem}.{part}") for part in ("onnx", "inputs.npz", "expected.npz")}
    program.save(paths["onnx"])
    arrays = {key: value.numpy() for key, value in zip(names, inputs, strict=True)}
    np.savez(paths["inputs.npz"], **arrays)
    np.savez(paths["expected.npz"], expected.numpy())
    output = onnx.load(paths["onnx"], load_external_data=False).graph.output[0].name
    return {
        "model": paths["onnx"],
        "output": output,
        "inputs": paths["inputs.npz"],
        "expected": paths["expected.npz"],
    }


def run_operators(root: pathlib.Path, consumers: list[str], only: str = "") -> None:
    """Run every record in each consumer, and write `operators.json`: the verdict about each record."""
    path = root / "operators.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for consumer in consumers:
        if consumer not in TARGETS:
            continue
        outcomes: dict[str, dict[str, Any]] = results.setdefault(consumer, {})
        work: dict[tuple[str, str], dict[str, str]] = {}
        for name, record in records():
            if only not in name:
                continue
            try:
                job = write(name, record, TARGETS[consumer], root / "operators" / consumer)
            except Exception as error:
                job = f"{type(error).__name__}: {error}"
            if isinstance(job, str):
                outcomes[name] = {"verdict": "not written", "reason": report.reason(job)}
            elif job is not None:
                work[name, "opsetta"] = job
        for (name, _), outcome in run.run(consumer, work, root, SECONDS).items():
            verdict = report.verdict(outcome, CONSUMERS[consumer].tolerance)
            outcomes[name] = {"verdict": verdict}
            if "error" in outcome:
                outcomes[name]["reason"] = report.reason(outcome["error"])
        path.write_text(json.dumps(results, indent=1, sort_keys=True), encoding="utf-8")
        counts = Counter(outcome["verdict"] for outcome in outcomes.values())
        print(f"{consumer}: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
