"""The records of the parity suite as models of their own, which each consumer runs.

Each record is captured once, and written for the target of each consumer. A first input of floats passes an
identity convolution or linear layer, because many consumers lay tensors out differently behind one.
"""

from __future__ import annotations

import importlib
import json
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import torch

import opsetta

from ..parity.records import Record
from . import report, run
from .consumers import CONSUMERS, TARGETS
from .operator_table import operator_of
from .write import outputs_of, silent

SECONDS = 60
"""How long one operator may take."""
_DTYPES = (torch.float32, torch.int64)


class _Embedded(torch.nn.Module):
    """A function whose first input passes a layer that leaves it unchanged."""

    def __init__(self, function: Callable[..., Any], first: torch.Tensor):
        super().__init__()
        self.function = function
        self.layer: torch.nn.Module = torch.nn.Identity()
        # A product of 0 and an infinite element is NaN.
        is_finite = first.dtype == torch.float32 and bool(first.isfinite().all())
        if is_finite and first.ndim in (2, 3, 4) and first.numel():
            size = first.shape[1] if first.ndim == 4 else first.shape[-1]
            self.layer = torch.nn.Conv2d(size, size, 1) if first.ndim == 4 else torch.nn.Linear(size, size)
            with torch.no_grad():
                self.layer.weight.copy_(torch.eye(size).reshape(self.layer.weight.shape))
                self.layer.bias.zero_()

    def forward(self, first: torch.Tensor, *others: Any) -> Any:
        outputs = outputs_of(self.function(self.layer(first), *others))
        return tuple(value for value in outputs if value.dtype in _DTYPES and value.numel())


def records(variants: int | None = None) -> Iterator[tuple[str, Record]]:
    """The records of the parity suite whose inputs are tensors that every consumer takes, by unique names.

    Args:
        variants: how many records of one operator are taken; None for all.
    """
    folder = pathlib.Path(__file__).resolve().parents[1] / "parity"
    numbers: Counter[str] = Counter()
    counts: Counter[str] = Counter()
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
                counts[operator_of(stem)] += 1
                if variants is None or counts[operator_of(stem)] <= variants:
                    yield stem if numbers[stem] == 1 else f"{stem}_{numbers[stem]}", record


def write(
    name: str, record: Record, consumers: Iterable[str], folder: pathlib.Path
) -> dict[str, dict[str, str] | str]:
    """Capture one record, and write its file for the target of each consumer.

    Returns:
        For each consumer what `run` needs of the file, or the error where opsetta refuses the record; nothing
        where no result of the record is a tensor of floats, or one is not finite.
    """
    inputs = tuple(value.detach().clone() for value in record.inputs)
    names = [f"in{number}" for number in range(len(inputs))]
    model = _Embedded(record.function, inputs[0]).eval()
    with silent():
        with torch.no_grad():
            expected = model(*(value.clone() for value in inputs))
        if all(value.dtype != torch.float32 for value in expected):
            return {}
        if not all(bool(torch.isfinite(value).all()) for value in expected):
            return {}
        try:
            program = opsetta.export(model, inputs, input_names=names)
        except opsetta.OpsettaError as error:
            return dict.fromkeys(consumers, str(error))
    stem = name.replace("/", "-").replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    sides = {side: str(folder / f"{stem}.{side}.npz") for side in ("inputs", "expected")}
    np.savez(sides["inputs"], **{key: value.numpy() for key, value in zip(names, inputs, strict=True)})
    np.savez(sides["expected"], *(value.numpy() for value in expected))
    jobs: dict[str, dict[str, str] | str] = {}
    for consumer in consumers:
        path = folder / consumer / f"{stem}.onnx"
        path.parent.mkdir(exist_ok=True)
        try:
            with silent():
                program.lower(target=TARGETS[consumer]).save(path)
        except opsetta.OpsettaError as error:
            jobs[consumer] = str(error)
            continue
        outputs = [value.name for value in onnx.load(path, load_external_data=False).graph.output]
        jobs[consumer] = {"model": str(path), "outputs": outputs, **sides}
    return jobs


def run_operators(
    root: pathlib.Path, consumers: Sequence[str], only: str = "", variants: int | None = None
) -> None:
    """Run records in each consumer, and write `operators.json`, the verdict about each record.

    Args:
        only: a text that the names of the records have.
        variants: how many records of one operator run; None for all.
    """
    path = root / "operators.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    names = [consumer for consumer in consumers if consumer in TARGETS]
    work: dict[str, dict[tuple[str, str], dict[str, str]]] = {name: {} for name in names}
    for name, record in records(variants):
        if only not in name:
            continue
        try:
            jobs = write(name, record, names, root / "operators")
        except Exception as error:
            jobs = dict.fromkeys(names, f"{type(error).__name__}: {error}")
        for consumer, job in jobs.items():
            if isinstance(job, str):
                outcome = {"verdict": "not written", "reason": report.reason(job)}
                results.setdefault(consumer, {})[name] = outcome
            else:
                work[consumer][name, "opsetta"] = job
    for consumer in names:
        outcomes: dict[str, dict[str, Any]] = results.setdefault(consumer, {})
        for (name, _), outcome in run.run(consumer, work[consumer], root, SECONDS).items():
            verdict = report.verdict(outcome, CONSUMERS[consumer].tolerance)
            outcomes[name] = {"verdict": verdict}
            if "error" in outcome:
                outcomes[name]["reason"] = report.reason(outcome["error"])
        path.write_text(json.dumps(results, indent=1, sort_keys=True), encoding="utf-8")
        counts = Counter(outcome["verdict"] for outcome in outcomes.values())
        print(f"{consumer}: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
