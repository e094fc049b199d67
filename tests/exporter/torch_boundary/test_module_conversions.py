"""Models that convert their own modules while they run, as the routers of mixtures of experts do."""

import pytest
import torch
from torch import Tensor, nn

import opsetta


class Router(nn.Module):
    def __init__(self, dtype: torch.dtype):
        super().__init__()
        torch.manual_seed(0)
        self.classifier = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        self.classifier = self.classifier.to(self.dtype)
        return self.classifier(x.to(self.dtype)).softmax(-1)


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
@pytest.mark.parametrize("before", [torch.float32, torch.float16])
def test_a_module_is_converted_in_the_file_and_not_in_the_model(before, capture):
    model = Router(torch.float32).eval().to(before)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x = torch.randn(2, 4)
    program = opsetta.export(model, x, opset=13, dynamic_shapes=({0: "n"},), capture=capture)
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == before
        assert torch.equal(tensor, weights[name])
    program.verify(torch.randn(5, 4))
