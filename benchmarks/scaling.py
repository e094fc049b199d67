"""Seconds and memory of each stage of an export, from 1,000 to 50,000 nodes.

The models are chains of blocks of twelve ATen calls with weights, views, an in-place write and a promotion.
Prints, per stage, seconds of processor time, microseconds per captured node, and the growth of the memory
that is resident at most. The slope of two sizes is the ratio of their seconds divided by the ratio of their
nodes: 1 is linear time. Linux only (reads /proc/self/status).

    python benchmarks/scaling.py [--nodes 1000 2000 ... 50000] [--runs 1] [--json] [--plot FILE.svg]
"""

import argparse
import gc
import io
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from plots import lines
from resident_memory import Peak

STAGES = ("capture", "source passes", "lowering", "ONNX passes", "save")
PER_BLOCK = 12
WIDTH = 8


class Block(torch.nn.Module):
    """Twelve ATen calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.norm(x))
        y = torch.nn.functional.gelu(y).reshape(2, 2, WIDTH).transpose(0, 1)
        y = y.softmax(-1).transpose(0, 1).reshape(4, WIDTH)
        y = y.mul_(0.5)
        return x + y * torch.sigmoid(y) + 1


class Chain(torch.nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Stages:
    """Seconds and memory by stage. A stage inside another one is taken off that one."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.peaks = dict.fromkeys(STAGES, 0)
        self._inner = [0.0]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        entered = time.process_time()
        # What an earlier stage left is not to be looked at in this one.
        gc.collect()
        self._inner.append(0.0)
        with Peak(0.02) as peak:
            start = time.process_time()
            try:
                yield
            finally:
                end = time.process_time()
                self.seconds[name] += end - start - self._inner.pop()
                self._inner[-1] += end - entered
        self.peaks[name] = max(self.peaks[name], peak.highest - peak.before)

    def timed(self, name: str, function: Callable) -> Callable:
        def call(*args: object, **kwargs: object) -> object:
            with self.stage(name):
                return function(*args, **kwargs)

        return call


def measured(nodes: int) -> dict[str, object]:
    """One export of about so many nodes."""
    import opsetta
    from opsetta.exporter.capture.capture_options import CaptureOptions
    from opsetta.exporter.export_model import capture_model
    from opsetta.exporter.lowering import driver, source_passes

    opsetta.export(Chain(2).eval(), torch.randn(4, WIDTH), opset=18).save(io.BytesIO())
    model, x = Chain(max(1, round(nodes / PER_BLOCK))).eval(), torch.randn(4, WIDTH)
    stages, calls = Stages(), 0
    prepare = source_passes.prepare

    def counted(capture: Any, mutations: str) -> None:
        nonlocal calls
        calls = len(capture.source.graph)
        prepare(capture, mutations)

    source_passes.prepare = stages.timed("source passes", counted)
    driver.optimize = stages.timed("ONNX passes", driver.optimize)
    with stages.stage("capture"):
        found = capture_model(model, (x,), {}, CaptureOptions(capture="direct"))
    with stages.stage("lowering"):
        lowered = opsetta.SourceModel(found).lower(18)
    with stages.stage("save"):
        lowered.save(io.BytesIO())
    return {"nodes": calls, "seconds": stages.seconds, "peak_bytes": stages.peaks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 2000, 5000, 10000, 25000, 50000])
    parser.add_argument("--runs", type=int, default=1, help="of which medians are taken")
    parser.add_argument("--plot", metavar="FILE.svg", help="write the seconds of each stage as a plot")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.child:
        print(json.dumps(measured(options.nodes[0])))
        return
    rows = []
    for nodes in options.nodes:
        command = [sys.executable, os.path.abspath(__file__), "--child", "--nodes", str(nodes)]
        runs = [
            json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            )
            for _ in range(options.runs)
        ]
        row = runs[0]
        for key in ("seconds", "peak_bytes"):
            row[key] = {stage: statistics.median(run[key][stage] for run in runs) for stage in STAGES}
        rows.append(row)
        if not options.json:
            show(row)
    if options.plot:
        points = {stage: [(row["nodes"], row["seconds"][stage]) for row in rows] for stage in STAGES}
        with open(options.plot, "w", encoding="utf-8") as file:
            file.write(lines(points, "seconds of processor time by captured nodes"))
    slopes = {stage: slope(rows, stage) for stage in STAGES} if len(rows) > 1 else {}
    if options.json:
        print(json.dumps({"rows": rows, "slopes": slopes}))
        return
    for stage, each in slopes.items():
        print(f"{stage}: slopes {', '.join(f'{item:.2f}' for item in each)}")


def slope(rows: list[dict], stage: str) -> list[float]:
    """From each size to the next: the growth of a stage's seconds, divided by the growth of the nodes."""
    pairs = itertools.pairwise(rows)
    return [(b["seconds"][stage] / a["seconds"][stage]) / (b["nodes"] / a["nodes"]) for a, b in pairs]


def show(row: dict) -> None:
    print(f"{row['nodes']} captured nodes")
    for stage in STAGES:
        seconds, peak = row["seconds"][stage], row["peak_bytes"][stage]
        print(
            f"  {stage:<14} {seconds:8.2f} s {seconds / row['nodes'] * 1e6:8.0f} us per node "
            f"{peak / 1e6:8.0f} MB"
        )


if __name__ == "__main__":
    main()
