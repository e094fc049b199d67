"""Operators that onnxruntime has no kernel of are written for targets that have one."""

import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

import opsetta
from opsetta.exporter.devices.targets.load_target import parse_target
from opsetta.registration import UsageError

from ....models.recurrences import make_family

KERNELS = '["Attention", "LinearAttention", "CausalConvWithState", "Swish", "SwiGLU"]'


def _target(kernels: str):
    return parse_target(
        "device", f'title = "A device"\nsources = ["a test"]\n[conventions]\nkernels = {kernels}'
    )


class _Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x):
        x = nn.functional.scaled_dot_product_attention(x, x, x)
        x = x * torch.sigmoid(1.75 * x)
        return nn.functional.silu(self.gate(x)) * self.up(x)


@pytest.mark.parametrize(
    ("opset", "kernels", "operators"),
    [
        (28, KERNELS, {"Attention", "Swish", "SwiGLU"}),
        (28, '["SwiGLU"]', {"SwiGLU"}),
        (26, KERNELS, {"Attention", "Swish"}),
        (18, KERNELS, set()),
        (28, "[]", set()),
    ],
)
def test_a_target_gets_the_operators_that_it_has_kernels_of(opset, kernels, operators):
    x = torch.randn(1, 2, 5, 8)
    model = _Layer().eval()
    program = opsetta.export(model, (x,), opset=opset, target=_target(kernels))
    written = {node.op_type for node in program.model.graph}
    assert written & {"Attention", "Swish", "SwiGLU"} == operators
    (result,) = ReferenceEvaluator(program.model_proto).run(None, {program.input_names[0]: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(result), model(x))


def test_a_hybrid_model_gets_linear_attention_and_causal_convolutions(tmp_path):
    tokens = torch.randint(64, (1, 7))
    model = make_family("qwen3_5")
    program = opsetta.export(
        model, (tokens,), opset=28, dynamic_shapes=({1: "length"},), target=_target(KERNELS)
    )
    written = {node.op_type for node in program.model.graph}
    assert {"Attention", "LinearAttention", "CausalConvWithState", "SwiGLU"} <= written
    program.lower(27).save(tmp_path / "model.onnx")
    converted = opsetta.load(tmp_path / "model.onnx").lower(28, target=_target(KERNELS))
    assert "SwiGLU" in {node.op_type for node in converted.model.graph}
    longer = torch.randint(64, (1, 11))
    (result,) = ReferenceEvaluator(program.model_proto).run(None, {program.input_names[0]: longer.numpy()})
    torch.testing.assert_close(torch.from_numpy(result), model(longer))


def test_an_unknown_kernel_is_an_error():
    with pytest.raises(UsageError, match="did you mean 'Attention'"):
        _target('["Attentions"]')
