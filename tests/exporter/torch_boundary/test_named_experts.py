"""Experts of transformers that the forward picks by a number from a tensor."""

from __future__ import annotations

import pytest
import torch
from transformers.models.longcat_flash.configuration_longcat_flash import LongcatFlashConfig
from transformers.models.longcat_flash.modeling_longcat_flash import LongcatFlashMoE
from transformers.models.nllb_moe.configuration_nllb_moe import NllbMoeConfig
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeSparseMLP
from transformers.models.switch_transformers.configuration_switch_transformers import (
    SwitchTransformersConfig,
)
from transformers.models.switch_transformers.modeling_switch_transformers import SwitchTransformersSparseMLP

import opsetta

SIZES = {"d_model": 8, "num_experts": 4, "expert_capacity": 3}
LONGCAT_SIZES = {"hidden_size": 8, "expert_ffn_hidden_size": 6, "n_routed_experts": 3, "zero_expert_num": 2}
LAYERS = {
    "switch": lambda: SwitchTransformersSparseMLP(SwitchTransformersConfig(d_ff=6, **SIZES)),
    "nllb": lambda: NllbMoeSparseMLP(NllbMoeConfig(moe_token_dropout=0.2, **SIZES), 6),
    "longcat": lambda: LongcatFlashMoE(LongcatFlashConfig(moe_topk=2, **LONGCAT_SIZES)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_other_tokens_go_to_other_experts(name: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    forward = type(layer.experts).forward
    shapes = ({0: "batch", 1: "length"},)
    # All tokens of the example go to one expert.
    program = opsetta.export(layer, (torch.ones(2, 5, 8),), opset=11, dynamic_shapes=shapes)
    assert type(layer.experts).forward is forward
    for size in ((2, 5), (1, 3), (3, 9)):
        program.verify((torch.randn(*size, 8),))
