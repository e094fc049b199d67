"""Seconds and memory of each stage of an export, from 1,000 to 50,000 nodes.

The models are chains of blocks of twelve ATen calls with weights, views, an in-place write and a promotion.
torch.export captures chains of up to 2,000 nodes; longer ones are made by repeating a captured graph, each
time with weights of its own, because torch.export takes milliseconds per node. The stages after it are those
of opsetta. Prints, per stage, seconds of processor time, microseconds per captured node, and the growth of
the memory that is resident at most. The slope of two sizes is the ratio of their seconds divided by the ratio
of their nodes: 1 is linear time. Linux only (reads /proc/self/status).

    python benchmarks/scaling.py [--nodes 1000 2000 ... 50000] [--capture-up-to 2000] [--runs 1] [--json]
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
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from resident_memory import Peak

STAGES = ("capture", "import", "source passes", "lowering", "target passes", "save")
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


def repeated(program: torch.export.ExportedProgram, times: int) -> Any:
    """The parts of an exported program that are imported, with its calls repeated one after the other."""
    graph = torch.fx.Graph()
    specifications = list(program.graph_signature.input_specs)
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    [output] = (node for node in program.graph.nodes if node.op == "output")
    state: dict[str, torch.Tensor] = {}
    environments: list[dict[torch.fx.Node, torch.fx.Node]] = [{} for _ in range(times)]
    found = []
    for number, environment in enumerate(environments):
        for node, specification in zip(placeholders[:-1], specifications, strict=False):
            environment[node] = graph.placeholder(f"{node.name}_{number}")
            environment[node].meta = dict(node.meta)
            name = f"repeat{number}.{specification.target}"
            state[name] = program.state_dict[specification.target].detach().clone()
            found.append(
                types.SimpleNamespace(
                    kind=specification.kind, target=name, persistent=specification.persistent
                )
            )
    flowing = graph.placeholder(placeholders[-1].name)
    flowing.meta = dict(placeholders[-1].meta)
    for environment in environments:
        environment[placeholders[-1]] = flowing
        for node in program.graph.nodes:
            if node.op == "call_function":
                environment[node] = graph.node_copy(node, environment.__getitem__)
        flowing = environment[output.args[0][0]]
    graph.output((flowing,))
    signature = types.SimpleNamespace(
        input_specs=[*found, specifications[-1]], output_specs=program.graph_signature.output_specs
    )
    return types.SimpleNamespace(
        graph=graph,
        graph_module=program.graph_module,
        graph_signature=signature,
        state_dict=state,
        constants={},
        call_spec=program.call_spec,
        range_constraints={},
    )


class Stages:
    """Seconds and memory by stage. A stage inside another one is taken off that one."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.peaks = dict.fromkeys(STAGES, 0)
        self._inner = [0.0]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        # What an earlier stage left is not to be looked at in this one.
        gc.collect()
        self._inner.append(0.0)
        with Peak(0.02) as peak:
            start = time.process_time()
            try:
                yield
            finally:
                whole = time.process_time() - start
                self.seconds[name] += whole - self._inner.pop()
                self._inner[-1] += whole
        self.peaks[name] = max(self.peaks[name], peak.highest - peak.before)

    def timed(self, name: str, function: Callable) -> Callable:
        def call(*args: object, **kwargs: object) -> object:
            with self.stage(name):
                return function(*args, **kwargs)

        return call


def measured(nodes: int, capture_up_to: int) -> dict[str, object]:
    """One export of about so many nodes."""
    import opsetta
    from opsetta.exporter.capture.torch_export.exported_program import import_exported_program
    from opsetta.exporter.lowering import driver, source_passes

    opsetta.export(Chain(2).eval(), torch.randn(4, WIDTH), opset=18).save(io.BytesIO())
    times = -(-nodes // capture_up_to)
    model, x = Chain(max(1, round(nodes / times / PER_BLOCK))).eval(), torch.randn(4, WIDTH)
    stages = Stages()
    with stages.stage("capture"):
        program: Any = torch.export.export(model, (x,), strict=False)
    if times > 1:
        program = repeated(program, times)
        stages.seconds["capture"] = float("nan")
    captured = sum(node.op == "call_function" for node in program.graph.nodes)
    with stages.stage("import"):
        found = import_exported_program(program)
    with stages.stage("source passes"):
        source_passes.prepare(found, "error")
    optimize = driver.optimize
    driver.optimize = stages.timed("target passes", optimize)
    try:
        with stages.stage("lowering"):
            lowered = opsetta.SourceModel(found).lower(18)
    finally:
        driver.optimize = optimize
    with stages.stage("save"):
        lowered.save(io.BytesIO())
    return {"nodes": captured, "seconds": stages.seconds, "peak_bytes": stages.peaks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 2000, 5000, 10000, 25000, 50000])
    parser.add_argument("--capture-up-to", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=1, help="of which medians are taken")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.child:
        print(json.dumps(measured(options.nodes[0], options.capture_up_to)))
        return
    rows = []
    for nodes in options.nodes:
        command = [sys.executable, os.path.abspath(__file__), "--child", "--nodes", str(nodes)]
        command += ["--capture-up-to", str(options.capture_up_to)]
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
