"""nn.Transformer and its encoder: masks of every kind, in both ways of capture."""

import pytest
import torch
from torch import nn

import opsetta

LENGTH = 5
CAUSAL = nn.Transformer.generate_square_subsequent_mask(LENGTH)
PADDED = torch.tensor([[False] * LENGTH, [False] * 3 + [True] * 2])
X = torch.randn(2, LENGTH, 8, generator=torch.Generator().manual_seed(0))


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"mask": CAUSAL},
        {"src_key_padding_mask": PADDED},
        {"mask": CAUSAL, "src_key_padding_mask": PADDED},
    ],
    ids=lambda masks: "-".join(masks) or "none",
)
def test_encoder(masks, strict):
    program = opsetta.export(encoder(), (X,), masks, opset=9, strict=strict)
    program.verify()
    program.lower(opset=28).verify()


def test_transformer():
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    masks = {"src_mask": CAUSAL, "tgt_mask": CAUSAL, "src_key_padding_mask": PADDED}
    opsetta.export(model, (X, X), masks, opset=13).verify()


def test_torch_is_left_as_it_was():
    before = torch.nn.modules.transformer._detect_is_causal_mask
    opsetta.export(encoder(), (X,), {"mask": CAUSAL}, opset=13).verify()
    assert torch.nn.modules.transformer._detect_is_causal_mask is before
    assert torch.backends.mha.get_fastpath_enabled()
