"""Buffers that repeat a part of their memory, as `expand` makes them."""

from typing import Any

import pytest
import torch
from torch import nn

import opsetta


class Repeats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ones", torch.ones(1).expand(256, 300))
        self.register_buffer("rows", torch.arange(300.0).expand(256, 300))
        self.register_buffer("small", torch.ones(1).expand(2, 3))
        self.register_buffer("full", torch.randn(256, 300))

    def forward(self, x: torch.Tensor) -> Any:
        rows = self.rows[: x.shape[0]]
        return x * self.ones[: x.shape[0]] + rows, self.full + self.rows, self.small + 1


@pytest.mark.parametrize("optimize", ["none", "full"])
@pytest.mark.parametrize("opset", [8, 9, 17])
def test_what_repeats_is_written_once(opset: int, optimize: str) -> None:
    program = opsetta.export(
        Repeats(), torch.randn(3, 300), opset=opset, dynamic_shapes=({0: "n"},), optimize=optimize
    )
    program.verify((torch.randn(7, 300),))
    elements = sum(
        tensor.size for value in program.model.graph.initializers.values() if (tensor := value.const_value)
    )
    assert 256 * 300 <= elements < 256 * 300 + 1000


def test_a_source_graph_keeps_it(tmp_path: Any) -> None:
    program = opsetta.export(Repeats(), torch.randn(3, 300), opset=17)
    path = tmp_path / "source.onnx"
    program.save_source(path)
    assert path.stat().st_size < 256 * 300 * 4 + 40_000


def test_a_parameter_stays_whole() -> None:
    module = nn.Module()
    module.weight = nn.Parameter(torch.ones(1).expand(100, 100), requires_grad=False)
    module.forward = lambda x: x @ module.weight
    program = opsetta.export(module, torch.randn(2, 100), opset=17)
    assert [value.shape for value in program.model.graph.initializers.values()] == [[100, 100]]
