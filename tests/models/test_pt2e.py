"""Models that torchao's PT2E quantization has converted, with a dynamic batch."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import opsetta
from opsetta.registration import DataType

pytest.importorskip("torchao", minversion="0.18", reason="torchao quantizes the models of these tests")
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

pytestmark = pytest.mark.filterwarnings("ignore")
BATCH = {0: torch.export.Dim("batch", min=1, max=64)}
# onnxruntime's integer kernels round a result once, eager PyTorch the sum of float products: some values are
# a quantization step apart.
STEP = 0.01


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.normalization = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, stride=2, groups=2)
        self.classifier = nn.Linear(16, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.normalization(self.first(x)))
        return self.classifier(torch.relu(self.second(x)).mean((2, 3)))


def images(count: int) -> torch.Tensor:
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(count))


@functools.lru_cache(maxsize=4)
def converted(quantizer_name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    library, _, is_dynamic = quantizer_name.partition(" ")
    if library == "xnnpack":
        config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=bool(is_dynamic))
        quantizer = XNNPACKQuantizer().set_global(config)
    else:
        x86_config = get_default_x86_inductor_quantization_config(
            is_dynamic=bool(is_dynamic),
            # Activations of 7 bits: without VNNI, onnxruntime's sums of products of 8 bits overflow.
            reduce_range=True,
        )
        quantizer = X86InductorQuantizer().set_global(x86_config)
    exported = torch.export.export(Network().eval(), (images(2),), dynamic_shapes={"x": BATCH})
    prepared = prepare_pt2e(exported.module(), quantizer)
    prepared(images(4))
    return convert_pt2e(prepared)


@functools.lru_cache(maxsize=8)
def program(quantizer_name: str, form: str) -> opsetta.Program:
    model = converted(quantizer_name)
    if form == "module":
        return opsetta.export(model, (images(2),), opset=21, dynamic_shapes=(BATCH,))
    exported = torch.export.export(model, (images(2),), dynamic_shapes=(BATCH,))
    return opsetta.export(exported, (images(2),), opset=21)


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("form", ["module", "exported program"])
@pytest.mark.parametrize("quantizer_name", ["xnnpack", "xnnpack dynamic", "x86", "x86 dynamic"])
def test_model_agrees_with_eager(quantizer_name: str, form: str, opset: int) -> None:
    lowered = program(quantizer_name, form).lower(opset=opset)
    for count in (2, 1, 5):
        actual, expected = lowered(images(count)), converted(quantizer_name)(images(count))
        torch.testing.assert_close(actual, expected, rtol=0.0, atol=STEP)


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("quantizer_name", ["xnnpack", "x86"])
def test_weights_are_stored_in_8_bits(quantizer_name: str, opset: int) -> None:
    initializers = program(quantizer_name, "module").lower(opset=opset).model.graph.initializers.values()
    assert {v.dtype for v in initializers if v.const_value.size > 20} == {DataType.INT8}
