"""Tries every attribute that equals its default: left out, as opsetta writes it, and written.

The trial takes the files of `operator_files`. For each operator and attribute it writes the default into all
nodes of the operator, in a few small files that have such nodes, and runs both.
"""

from __future__ import annotations

import json
import pathlib
from collections import Counter, defaultdict
from typing import Any

import onnx

from . import report, run
from .consumers import CONSUMERS
from .operator_files import SECONDS

FILES = 6
"""In how many files an attribute is tried."""


def missing_defaults(model: onnx.ModelProto) -> set[str]:
    """The attributes with a default that nodes of the main graph leave out, `Resize.mode`."""
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    missing = set()
    for node in model.graph.node:
        if node.domain:
            continue
        written = {attribute.name for attribute in node.attribute}
        schema = onnx.defs.get_schema(node.op_type, opset)
        for name, formal in schema.attributes.items():
            if name not in written and formal.default_value.name:
                missing.add(f"{node.op_type}.{name}")
    return missing


def write_default(model: onnx.ModelProto, attribute: str) -> onnx.ModelProto:
    """A copy of the model in which an attribute is written in all nodes of its operator."""
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    operator, _, name = attribute.partition(".")
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if node.op_type == operator and all(entry.name != name for entry in node.attribute):
            node.attribute.append(onnx.defs.get_schema(operator, opset).attributes[name].default_value)
    return copy


def try_attributes(root: pathlib.Path, consumers: list[str]) -> None:
    """Run the trial in each consumer, and write `attributes.json`: verdicts, left out and written."""
    path = root / "attributes.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for consumer in consumers:
        folder, work = root / "operators" / consumer, {}
        files: dict[str, list[pathlib.Path]] = defaultdict(list)
        for file in sorted(folder.glob("*.onnx"), key=lambda file: (file.stat().st_size, file.name)):
            model = onnx.load(file)
            for attribute in missing_defaults(model):
                if len(files[attribute]) < FILES:
                    files[attribute].append(file)
        trial = root / "attributes" / consumer
        trial.mkdir(parents=True, exist_ok=True)
        for attribute, paths in files.items():
            for file in paths:
                model = onnx.load(file)
                changed = trial / f"{attribute}-{file.name}"
                onnx.save(write_default(model, attribute), changed)
                stem = str(file)[: -len(".onnx")]
                job: dict[str, Any] = {"outputs": [value.name for value in model.graph.output]}
                job |= {side: f"{stem}.{side}.npz" for side in ("inputs", "expected")}
                work[file.name, "left out"] = {"model": str(file), **job}
                work[file.name, attribute] = {"model": str(changed), **job}
        outcomes = run.run(consumer, work, root, SECONDS)
        verdicts = {
            key: report.verdict(value, CONSUMERS[consumer].tolerance) for key, value in outcomes.items()
        }
        results[consumer] = {}
        for attribute, paths in sorted(files.items()):
            pairs = [(verdicts[p.name, "left out"], verdicts[p.name, attribute]) for p in paths]
            counts = Counter(f"{before} -> {after}" for before, after in pairs)
            results[consumer][attribute] = dict(sorted(counts.items()))
        path.write_text(json.dumps(results, indent=1, sort_keys=True), encoding="utf-8")
        for attribute, transitions in results[consumer].items():
            changed_verdicts = {key: n for key, n in transitions.items() if len(set(key.split(" -> "))) > 1}
            if changed_verdicts:
                print(f"{consumer}: {attribute}: {changed_verdicts}", flush=True)
