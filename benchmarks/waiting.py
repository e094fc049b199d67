"""What a user waits for: commands, imports, dynamic exports, and errors.

Commands and imports are processes of their own; their processor time is given relative to `import onnx`. A
dynamic export (batch, and the sequence or height and width) is given relative to the static one of the same
model, and a refused model, which ends in a decision on its own values, relative to the export of the model
without it. Every figure is the median of the runs, in processor time.

    python benchmarks/waiting.py [--runs 7] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping

import onnx
import torch
import transformers
from rich.console import Console
from rich.table import Table

import opsetta

OPSET = 17
SMALL_FILE = '<ir_version: 8, opset_import: ["": 13]> g (float[N, 3] x) => (float[N, 3] y) {y = Relu(x)}'
REFERENCE = "import onnx"
PROCESSES = {
    REFERENCE: ("-c", "import onnx"),
    "import opsetta; opsetta.load": ("-c", "import opsetta; opsetta.load"),
    "opsetta --help": ("--help",),
    "opsetta info, 70 bytes": ("info", "small.onnx"),
    "opsetta convert, 70 bytes": ("convert", "small.onnx", "--opset", "9", "-o", "written.onnx"),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, its arguments, and the dynamic shapes of the dynamic export."""

    model: torch.nn.Module
    args: tuple[torch.Tensor, ...]
    dynamic_shapes: Mapping[str, Mapping[int, str]]


def bert() -> Case:
    """BERT-base, with 128 tokens."""
    model = transformers.BertModel(transformers.BertConfig()).eval()
    return Case(model, (torch.ones(2, 128, dtype=torch.int64),), {"input_ids": {0: "batch", 1: "sequence"}})


def llama() -> Case:
    """Four layers of Llama, 512 wide, with 64 tokens."""
    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, use_cache=False
    )
    model = transformers.LlamaModel(config).eval()
    return Case(model, (torch.ones(2, 64, dtype=torch.int64),), {"input_ids": {0: "batch", 1: "sequence"}})


def vit() -> Case:
    """ViT-B/16."""
    model = transformers.ViTModel(transformers.ViTConfig()).eval()
    return Case(model, (torch.randn(2, 3, 224, 224),), {"pixel_values": {0: "batch"}})


def resnet() -> Case:
    """ResNet-50, with a dynamic height and width."""
    model = transformers.ResNetModel(transformers.ResNetConfig()).eval()
    shapes = {"pixel_values": {0: "batch", 2: "height", 3: "width"}}
    return Case(model, (torch.randn(2, 3, 224, 224),), shapes)


class DecidesOnValues(torch.nn.Module):
    """A model that ends in a decision on its own values, which cannot be exported."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.model(x)[0]
        return y.relu() if y.sum().item() > 0 else y[:1].flatten()


def main() -> None:
    """Print the figures, as tables or as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    processes = process_times(options.runs)
    exports = {build.__name__: export_times(build(), options.runs) for build in (bert, llama, vit, resnet)}
    if options.json:
        print(json.dumps({"processes": processes, "exports": exports}, indent=2))
        return
    table = Table("process", "seconds", f"relative to {REFERENCE}")
    for name, taken in processes.items():
        table.add_row(name, f"{taken:.2f}", f"{taken / processes[REFERENCE]:.1f}")
    Console().print(table)
    table = Table("model", "static, s", "dynamic / static", "refused / static")
    for name, row in exports.items():
        ratios = (row["dynamic"] / row["static"], row["refused"] / row["static"])
        table.add_row(name, f"{row['static']:.2f}", *(f"{ratio:.1f}" for ratio in ratios))
    Console().print(table)


def process_times(runs: int) -> dict[str, float]:
    """The median processor time of each process, in seconds."""
    command = [sys.executable, "-c", "from opsetta.exporter.command_line.cli import main; main()"]
    # Bytecode is stored, as in an installed package.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    times: dict[str, list[float]] = {name: [] for name in PROCESSES}
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(onnx.parser.parse_model(SMALL_FILE), pathlib.Path(folder) / "small.onnx")
        for number in range(runs + 1):
            for name, arguments in PROCESSES.items():
                line = [sys.executable, *arguments] if arguments[0] == "-c" else [*command, *arguments]
                process = subprocess.Popen(line, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode:
                    raise SystemExit(f"{name} failed with exit code {process.returncode}")
                # The first run fills the caches of files.
                if number:
                    times[name].append(usage.ru_utime + usage.ru_stime)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def export_times(case: Case, runs: int) -> dict[str, float]:
    """The median processor times of the static, the dynamic and the refused export, in seconds."""

    def refuse() -> None:
        with contextlib.suppress(opsetta.CaptureError):
            opsetta.export(DecidesOnValues(case.model), case.args, opset=OPSET)
            raise SystemExit("the model that decides on its values was not refused")

    actions: dict[str, Callable[[], object]] = {
        "static": lambda: opsetta.export(case.model, case.args, opset=OPSET),
        "dynamic": lambda: opsetta.export(
            case.model, case.args, opset=OPSET, dynamic_shapes=case.dynamic_shapes
        ),
        "refused": refuse,
    }
    times: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(runs + 1):
        for name, action in actions.items():
            begin = time.process_time()
            action()
            if number:
                times[name].append(time.process_time() - begin)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


if __name__ == "__main__":
    main()
