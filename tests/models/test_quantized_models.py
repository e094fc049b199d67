"""Quantized models in onnxruntime: the results of eager PyTorch, and integer kernels."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch

import opsetta

from ..onnxruntime_sessions import open_session
from .quantized import LAYERS, bert, resnet18

MODELS: dict[str, Callable[[], tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]] = {
    "resnet18": resnet18,
    "bert": bert,
    "bert dynamic": functools.partial(bert, dynamic=True),
}
OPSETS = (9, 10, 13, 18, 21, 25)
WITH_AXIS = 13
LINEAR = 6 * LAYERS + 2

# Integer kernels round each result once where eager rounds the sums of float products, so that ResNet's
# activations come out one quantization step apart here and there; BERT's are not quantized again.
TOLERANCE = {"resnet18": 0.02, "bert": 1e-4, "bert dynamic": 1e-4}


@functools.lru_cache(maxsize=3)
def program(name: str) -> opsetta.Program:
    model, example = MODELS[name]()
    return opsetta.export(model, example, opset=max(OPSETS))


def optimized(lowered: opsetta.Program, folder: Path) -> collections.Counter[str]:
    """How often each operator stands in the graph that onnxruntime runs."""
    path = str(folder / "optimized.onnx")
    open_session(lowered.model_proto, optimized_path=path)
    graph = onnx.load(path).graph
    return collections.Counter(node.op_type for node in graph.node)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", MODELS)
def test_quantized_model_agrees_with_eager(name: str, opset: int) -> None:
    lowered = program(name).lower(opset=opset)
    onnx.checker.check_model(lowered.model_proto, full_check=True)
    lowered.verify(rtol=0.0, atol=TOLERANCE[name])


@pytest.mark.parametrize("opset", [o for o in OPSETS if o >= WITH_AXIS])
def test_resnet_runs_in_integer_kernels(opset: int, tmp_path: Path) -> None:
    found = optimized(program("resnet18").lower(opset=opset), tmp_path)
    assert found["QLinearConv"] == 20
    assert found["QLinearAdd"] == 8
    assert found["QGemm"] == 1
    assert not {"Conv", "FusedConv", "Gemm", "Add", "Relu"} & found.keys()


@pytest.mark.parametrize("opset", [o for o in OPSETS if o >= WITH_AXIS])
@pytest.mark.parametrize("name", ["bert", "bert dynamic"])
def test_bert_runs_in_integer_kernels(name: str, opset: int, tmp_path: Path) -> None:
    found = optimized(program(name).lower(opset=opset), tmp_path)
    assert found["MatMulIntegerToFloat"] + found["QGemm"] == LINEAR
    assert "Gemm" not in found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("opset", [10, 13, 25])
def test_weights_stay_integers(name: str, opset: int) -> None:
    """No matrix or kernel is kept as floats, but for BERT's embeddings, which are not quantized."""
    initializers = program(name).lower(opset=opset).model.graph.initializers.values()
    large = [
        v for v in initializers if v.shape is not None and len(v.shape) > 1 and "embeddings" not in v.name
    ]
    large = [v for v in large if v.const_value is not None and v.const_value.size > 256]
    assert large
    assert {v.dtype for v in large} == {opsetta.registration.DataType.INT8}
