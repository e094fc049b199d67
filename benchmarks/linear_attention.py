"""Language models with linear attention or state spaces: time of the export, size and speed of the file.

The models are the small ones of the tests, exported at a length of 70 with a dynamic length. Each file is
compared with eager PyTorch at the lengths 1, 21, 70, 150 and 600. The last two columns are the times of one
run at 600 tokens, of onnxruntime and of eager PyTorch with one thread each: the smaller of three runs.

    python -m opsetta.benchmarks.linear_attention [NAME ...] [--opset 13]
"""

import argparse
import time
import warnings

import onnx_ir as ir
import torch
from rich.console import Console
from rich.table import Table

import opsetta
from opsetta.tests.models.recurrences import FAMILIES, make_family

LENGTHS = (1, 21, 70, 150, 600)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(FAMILIES))
    parser.add_argument("--opset", type=int, default=13)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table = Table("model", "export, s", "nodes", "lengths", "onnxruntime, ms", "eager, ms")
    for name in options.names:
        table.add_row(name, *measure(name, options.opset))
    Console(width=120).print(table)


def measure(name: str, opset: int) -> list[str]:
    """The cells of a model's row."""
    model = make_family(name)
    start = time.process_time()
    program = opsetta.export(
        model, (torch.randint(64, (1, 70)),), opset=opset, dynamic_shapes=({1: "length"},)
    )
    seconds = time.process_time() - start
    for length in LENGTHS:
        program.verify((torch.randint(64, (1, length)),))
    nodes = sum(1 for _ in ir.traversal.RecursiveGraphIterator(program.model.graph))
    tokens = torch.randint(64, (1, LENGTHS[-1]))
    with torch.no_grad():
        times = [min(_time(function, tokens) for _ in range(3)) for function in (program, model)]
    lengths = ", ".join(map(str, LENGTHS))
    return [f"{seconds:.1f}", str(nodes), lengths, *(f"{1000 * duration:.0f}" for duration in times)]


def _time(function: object, tokens: torch.Tensor) -> float:
    assert callable(function)
    start = time.perf_counter()
    function(tokens)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
