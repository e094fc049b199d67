"""Compares the memory of plans with that of ExecuTorch: `python benchmarks/executorch_plans.py [names]`.

Needs `pip install executorch`. Prints a table in Markdown, in MiB: what ExecuTorch's own memory planning asks
for the same model and inputs, inputs and outputs included, from its portable graph; and the block of the
plan, with whole nodes, with nodes in parts, and with tiles. The models are those of `plans.py`. A delegate
such as XNNPACK plans the memory of its part at run time, which no file states, so none is used.
"""

import math
import sys

import plans
import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass

import opsetta


def executorch_bytes(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    """Bytes of the buffers that ExecuTorch plans for a model."""
    edge = to_edge(
        torch.export.export(model, inputs, strict=False),
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass()))
    # The first buffer is that of constants, which is empty.
    return sum(program.executorch_program.execution_plan[0].non_const_buffer_sizes)


def main(names: list[str]) -> None:
    """Print the table."""
    print("| model | ExecuTorch | plan | parts | tiles | plan / ExecuTorch | parts / ExecuTorch |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for name in names or plans.INFERENCE:
        torch.manual_seed(0)
        model, inputs = plans.INFERENCE[name]()
        program = opsetta.export(model.eval(), inputs, opset=17)
        peaks = [program.plan(**options).peak for options in ({"split": False}, {}, {"tile": True})]
        theirs = executorch_bytes(model, inputs)
        ratios.append([peak / theirs for peak in peaks[:2]])
        sizes = " | ".join(f"{size / plans.MEBIBYTE:.2f}" for size in (theirs, *peaks))
        print(f"| {name} | {sizes} | {ratios[-1][0]:.2f} | {ratios[-1][1]:.2f} |", flush=True)
    means = [math.exp(sum(map(math.log, column)) / len(ratios)) for column in zip(*ratios, strict=True)]
    print(f"\nGeometric means: {means[0]:.2f} with whole nodes, {means[1]:.2f} with parts")


if __name__ == "__main__":
    main(sys.argv[1:])
