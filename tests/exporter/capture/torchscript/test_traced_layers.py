"""`capture="trace"` records each kind of layer, and what it returns depends on the input."""

import numpy as np
import pytest
import torch
from torch import nn

import opsetta

IMAGE, SEQUENCE = (2, 4, 9, 8), (2, 9, 4)


class Cell(nn.Module):
    def __init__(self, cell: nn.Module):
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self.cell(x[:, 0])
        return state[0] if isinstance(state, tuple) else state


class First(nn.Module):
    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


class Products(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bic,bjc->bij", x, x) @ torch.matmul(x, x.transpose(1, 2))


class Attended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x)[0]


LAYERS = {
    "Conv1d": (nn.Conv1d(9, 3, 3), SEQUENCE),
    "Conv2d": (nn.Conv2d(4, 6, 3, padding=1, stride=2), IMAGE),
    "Conv2d of each channel": (nn.Conv2d(4, 4, 3, groups=4, bias=False), IMAGE),
    "Conv2d with the same size": (nn.Conv2d(4, 4, 3, padding="same", dilation=2), IMAGE),
    "Conv3d": (nn.Conv3d(2, 3, 2), (1, 2, 4, 5, 6)),
    "ConvTranspose1d": (nn.ConvTranspose1d(9, 3, 3), SEQUENCE),
    "ConvTranspose2d": (nn.ConvTranspose2d(4, 6, 3, stride=2), IMAGE),
    "BatchNorm2d": (nn.BatchNorm2d(4), IMAGE),
    "GroupNorm": (nn.GroupNorm(2, 4), IMAGE),
    "LayerNorm": (nn.LayerNorm(4), SEQUENCE),
    "Linear": (nn.Linear(4, 5), SEQUENCE),
    "Flatten": (nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.PReLU()), SEQUENCE),
    "pooling": (nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2)), IMAGE),
    "LSTM": (First(nn.LSTM(4, 3, batch_first=True)), SEQUENCE),
    "GRU": (First(nn.GRU(4, 3, bidirectional=True)), SEQUENCE),
    "RNN": (First(nn.RNN(4, 3)), SEQUENCE),
    "LSTMCell": (Cell(nn.LSTMCell(4, 3)), SEQUENCE),
    "GRUCell": (Cell(nn.GRUCell(4, 3)), SEQUENCE),
    "RNNCell": (Cell(nn.RNNCell(4, 3)), SEQUENCE),
    "MultiheadAttention": (Attended(), SEQUENCE),
    "TransformerEncoderLayer": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), SEQUENCE),
    "products": (Products(), SEQUENCE),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_traced_layer_agrees_for_another_input(name: str) -> None:
    layer, shape = LAYERS[name]
    model = layer.eval()
    program = opsetta.export(model, (torch.randn(shape),), opset=17, capture="trace")
    x = torch.randn(shape)
    with torch.no_grad():
        np.testing.assert_allclose(program(x), model(x), rtol=1e-4, atol=1e-5)
