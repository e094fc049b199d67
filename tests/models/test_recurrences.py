"""Linear attention, state spaces and other recurrences of language models, at any length."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

import opsetta

pytest.importorskip("transformers", minversion="5.20")
from ..opsets import HIGHEST
from .recurrences import FAMILIES, make_family

# Lengths below one chunk, of one token, and beyond two chunks of 64.
LENGTHS = (1, 21, 150)


# Chunks with a decay by head, those of Mamba 2, and a loop over the tokens.
QUICK = ("qwen3_next", "mamba2", "rwkv")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.sweep) for name in FAMILIES],
)
def test_any_length_agrees(name: str) -> None:
    model = make_family(name)
    # xLSTM splits sequences of more than 16,384 tokens.
    program = opsetta.export(
        model,
        (torch.randint(64, (1, 70)),),
        opset=13,
        dynamic_shapes=({1: "length"},),
        narrow=name == "xlstm",
        capture="direct",
    )
    # Two layers each.
    assert sum(1 for _ in ir.traversal.RecursiveGraphIterator(program.model.graph)) <= 250
    for length in LENGTHS:
        program.verify((torch.randint(64, (1, length)),))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("opset", [9, HIGHEST])
def test_lowest_and_highest_opset(opset: int) -> None:
    model = make_family("qwen3_5")
    dynamic = ({0: "batch", 1: "length"},)
    program = opsetta.export(model, (torch.randint(64, (2, 70)),), opset=opset, dynamic_shapes=dynamic)
    for length in LENGTHS:
        program.verify((torch.randint(64, (3, length)),))


def test_a_fixed_length_keeps_the_model_as_it_is() -> None:
    """Only a dynamic length makes a loop over the tokens."""
    program = opsetta.export(make_family("qwen3_5").eval(), (torch.randint(64, (1, 24)),), opset=13)
    assert "Loop" not in {node.op_type for node in program.model.graph}
    program.verify()
