"""Wall time of opsetta.export against torch.onnx.export(dynamo=True), side by side in one run.

Both write a file at opset 18, from warm imports (each exports a small model first). Prints, per model,
the median of the paired ratios and the share of our time that is capture. Needs onnxscript for torch.onnx.

    python benchmarks/export_time.py [--runs 3] [--json]
"""

import argparse
import json
import logging
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable

import torch
import transformers
from rich.console import Console
from rich.table import Table

import opsetta

OPSET = 18
Case = tuple[torch.nn.Module, tuple, dict[str, torch.Tensor]]


def resnet50() -> Case:
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig())
    return model.eval(), (torch.randn(1, 3, 224, 224),), {}


def vit_base() -> Case:
    model = transformers.ViTForImageClassification(transformers.ViTConfig())
    return model.eval(), (torch.randn(1, 3, 224, 224),), {}


def bert_base() -> Case:
    model = transformers.BertForSequenceClassification(transformers.BertConfig())
    mask = torch.ones(1, 128, dtype=torch.int64)
    return model.eval(), (torch.randint(0, 1000, (1, 128)),), {"attention_mask": mask}


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(name: str, case: Case, runs: int, folder: str) -> dict[str, float | str]:
    model, args, kwargs = case
    path = os.path.join(folder, "model.onnx")
    ratios, ours, theirs, captures = [], [], [], []
    for _ in range(runs):
        capture = seconds(lambda: torch.export.export(model, args, kwargs, strict=False))
        own = seconds(lambda: opsetta.export(model, args, kwargs, opset=OPSET).save(path))
        other = seconds(
            lambda: torch.onnx.export(
                model, args, path, kwargs=kwargs, dynamo=True, opset_version=OPSET, verbose=False
            )
        )
        ratios.append(own / other)
        ours.append(own)
        theirs.append(other)
        captures.append(capture)
    return {
        "model": name,
        "ratio": statistics.median(ratios),
        "opsetta_seconds": statistics.median(ours),
        "torch_onnx_seconds": statistics.median(theirs),
        "torch_export_seconds": statistics.median(captures),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    warm = (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval(), (torch.ones(1, 4),), {})
    results = []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        measure("warm-up", warm, 1, folder)
        for build in (resnet50, vit_base, bert_base):
            results.append(measure(build.__name__, build(), options.runs, folder))
    if options.json:
        print(json.dumps(results, indent=2))
        return
    table = Table(
        "model", "ratio", "opsetta s", "torch.onnx s", "of which torch.export s", title=f"opset {OPSET}"
    )
    for row in results:
        figures = (row["opsetta_seconds"], row["torch_onnx_seconds"], row["torch_export_seconds"])
        table.add_row(row["model"], f"{row['ratio']:.2f}", *(f"{figure:.2f}" for figure in figures))
    Console().print(table)


if __name__ == "__main__":
    main()
