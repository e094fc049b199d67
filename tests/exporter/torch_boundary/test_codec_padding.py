"""Convolutions of audio codecs, which reflect the edges of inputs of any length."""

from __future__ import annotations

import pytest
import torch
from transformers import EncodecConfig
from transformers.models.encodec.modeling_encodec import EncodecConv1d

import opsetta


@pytest.mark.parametrize("causal", [True, False])
def test_inputs_shorter_and_longer_than_the_reflected_edge(causal: bool) -> None:
    config = EncodecConfig(use_causal_conv=causal)
    torch.manual_seed(0)
    layers = [(1, 4, 7, 1), (4, 4, 8, 4), (4, 2, 7, 1)]
    model = torch.nn.Sequential(*(EncodecConv1d(config, *sizes) for sizes in layers)).eval()
    pad = vars(EncodecConv1d)["_pad1d"]
    # The input of the last layer is shorter than its edge of 6.
    program = opsetta.export(model, (torch.randn(2, 1, 20),), opset=11, dynamic_shapes=({0: "b", 2: "n"},))
    # Also as a static method.
    assert vars(EncodecConv1d)["_pad1d"] is pad
    for length in (2, 7, 20, 101):
        program.verify((torch.randn(3, 1, length),))
