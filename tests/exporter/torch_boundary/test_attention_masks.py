"""Masks that models of transformers make by its functions: as in PyTorch, and at all lengths."""

import pytest
import torch
from torch import nn

import opsetta

from ...opsets import HIGHEST

transformers = pytest.importorskip("transformers")
masking_utils = pytest.importorskip("transformers.masking_utils")


class Masked(nn.Module):
    def __init__(self, window: int | None = None):
        super().__init__()
        self.config = transformers.BertConfig(hidden_size=4, num_attention_heads=2)
        self.config._attn_implementation = "eager"
        self.window = window

    def forward(self, x: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        if x.shape[1] > 20:
            raise ValueError("the sequence is too long")
        window = self.window
        options = {}
        if window is not None:
            options["and_mask_function"] = lambda batch, head, query, key: (query - key).abs() < window
        mask = masking_utils.create_bidirectional_mask(
            self.config, inputs_embeds=x, attention_mask=padding, **options
        )
        # The sum of a mask that allows everything is 0, so that only its absence is visible.
        return x.sin() if mask is None else x + (mask == 0).sum(-1).transpose(1, 2)


def test_a_mask_that_allows_everything_is_left_out() -> None:
    program = opsetta.export(Masked().eval(), torch.randn(2, 3, 4), dynamic_shapes=({0: "b", 1: "n"},))
    assert [node.op_type for node in program.model.graph] == ["Sin"]
    program.verify((torch.randn(1, 7, 4),))


@pytest.mark.parametrize("opset", [9, HIGHEST])
def test_the_models_own_limit_of_a_length_is_no_narrowing(opset: int) -> None:
    x, padding = torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)
    shapes = ({0: "b", 1: "n"}, {0: "b", 1: "n"})
    program = opsetta.export(Masked(window=3).eval(), (x, padding), opset=opset, dynamic_shapes=shapes)
    assert program.dimensions["n"].maximum == 20
    for batch, length in ((1, 20), (3, 2)):
        padding = torch.ones(batch, length, dtype=torch.bool)
        padding[-1, -1] = False
        program.verify((torch.randn(batch, length, 4), padding))
    with pytest.raises(opsetta.OpsettaError, match="the sequence is too long"):
        program(torch.randn(1, 21, 4), torch.ones(1, 21, dtype=torch.bool))
