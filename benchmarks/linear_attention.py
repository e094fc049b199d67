"""Language models with linear attention or state spaces: time of the export, size and speed of the file.

The models are the small ones of the tests, exported at a length of 70 with a dynamic batch and length. Each
file is compared with eager PyTorch at the lengths 1, 21, 70, 150 and 600. The last two columns are processor
times of one run at 600 tokens, of onnxruntime at the last opset, its waiting threads included, and of eager
PyTorch with one thread: the smallest of three runs.

    python -m opsetta.benchmarks.linear_attention [NAME ...] [--opsets 13 18 27 28] [--page FILE]

`--page` writes each row into the table of a page of the documentation as soon as it is measured. The rows of
other models stay.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import re
import time
import warnings
from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch

import opsetta
from opsetta.tests.models.recurrences import FAMILIES, make_family

LENGTHS = (1, 21, 70, 150, 600)
BATCHES = (1, 3, 2, 1, 1)
_TABLE = re.compile(r"\| model \|.*?\n\n", re.DOTALL)


def main() -> None:
    """Print the table, and write its rows into a page on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(FAMILIES))
    parser.add_argument("--opsets", type=int, nargs="+", default=[13, 18, 27, 28])
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    nodes = [f"nodes at {opset}" for opset in options.opsets]
    rows = [["model", "export, s", *nodes, "largest error", "onnxruntime, ms", "eager, ms"]]
    print_row(rows[0])
    for name in options.names:
        rows.append(measure(name, options.opsets))
        print_row(rows[-1])
        if options.page:
            write_row(options.page, rows[0], rows[-1])


def write_row(page: pathlib.Path, title: list[str], row: list[str]) -> None:
    """Write a row into the table of a page, in the order of the models."""
    text = page.read_text(encoding="utf-8")
    match = _TABLE.search(text)
    assert match is not None, f"{page} has no table of models"
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in match[0].strip().splitlines()[2:]
    ]
    by_name = {line[0]: line for line in lines} | {row[0]: row}
    ordered = [title, ["---"] * len(title), *(by_name[name] for name in FAMILIES if name in by_name)]
    table = "".join(f"| {' | '.join(line)} |\n" for line in ordered) + "\n"
    page.write_text(text.replace(match[0], table), encoding="utf-8")


def print_row(cells: Sequence[str]) -> None:
    """Print a row as soon as it is measured."""
    print(*(cell.ljust(15) for cell in cells), flush=True)


def measure(name: str, opsets: Sequence[int]) -> list[str]:
    """The cells of a model's row; the model is captured for the first opset, and lowered to the others.

    Raises:
        VerificationError: a file does not agree with eager PyTorch at a length.
    """
    model = make_family(name)
    examples = [torch.randint(64, (batch, length)) for batch, length in zip(BATCHES, LENGTHS, strict=True)]
    error, nodes = 0.0, []
    start = time.process_time()
    exported = opsetta.export(
        model,
        (torch.randint(64, (2, 70)),),
        opset=opsets[0],
        dynamic_shapes=({0: "batch", 1: "length"},),
        # xLSTM splits sequences of more than 16,384 tokens.
        narrow=name == "xlstm",
    )
    seconds = time.process_time() - start
    for opset in opsets:
        program = exported.lower(opset)
        nodes.append(sum(1 for _ in ir.traversal.RecursiveGraphIterator(program.model.graph)))
        for tokens in examples:
            program.verify((tokens,))
            with torch.no_grad():
                difference = torch.as_tensor(program(tokens)) - model(tokens)
            error = max(error, difference.abs().max().item())
    tokens = examples[-1]
    with torch.no_grad():
        times = [shortest_time(functools.partial(call, tokens)) for call in (program, model)]
    milliseconds = [f"{1000 * duration:.0f}" for duration in times]
    return [name, f"{seconds:.1f}", *map(str, nodes), f"{error:.0e}", *milliseconds]


def shortest_time(call: Callable[[], object]) -> float:
    """The shortest processor time of three runs, in seconds."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    main()
