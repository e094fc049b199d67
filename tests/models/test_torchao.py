"""Models that torchao has quantized: the results of eager PyTorch, and weights of 8 or 4 bits in the file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import opsetta
import opsetta.torch_onnx
from opsetta.registration import DataType, default_registry

from ..symbolics.test_torch_schemas import parameter_problems

pytest.importorskip("torchao", minversion="0.18", reason="torchao quantizes the models of these tests")
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8StaticActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    MappingType,
    PerAxis,
    PerGroup,
    PerTensor,
    quantize_,
)

pytestmark = pytest.mark.filterwarnings("ignore")
GROUPS = PerGroup(32)
CONFIGS: dict[str, Callable[[], Any]] = {
    "int8": Int8WeightOnlyConfig,
    "int8 per tensor": lambda: Int8WeightOnlyConfig(granularity=PerTensor()),
    "int8 groups": lambda: Int8WeightOnlyConfig(granularity=GROUPS),
    "int4 rows": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerAxis(0)),
    "int4 groups": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=GROUPS),
    "int4 asymmetric": lambda: IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=GROUPS, mapping_type=MappingType.ASYMMETRIC
    ),
    "dynamic": Int8DynamicActivationInt8WeightConfig,
    "dynamic asymmetric": lambda: Int8DynamicActivationInt8WeightConfig(
        act_mapping_type=MappingType.ASYMMETRIC
    ),
    "dynamic per tensor": lambda: Int8DynamicActivationInt8WeightConfig(granularity=PerTensor()),
    "dynamic int4": lambda: Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=GROUPS
    ),
    "float8": Float8WeightOnlyConfig,
}
INT4 = ("int4 rows", "int4 groups", "int4 asymmetric", "dynamic int4")
WEIGHT_ONLY = tuple(name for name in CONFIGS if not name.startswith("dynamic"))
OPSETS = (9, 11, 13, 17, 19, 21, 24)
FLOAT8_BEGINS = 19


def network(config: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 32, bias=False)).eval().to(dtype)
    quantize_(model, CONFIGS[config]())
    return model


def example(rows: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(rows, 5, 96, generator=torch.Generator().manual_seed(rows)) * 3).to(dtype)


@functools.lru_cache(maxsize=len(CONFIGS))
def program(config: str) -> opsetta.Program:
    return opsetta.export(
        network(config), (example(),), opset=21, dynamic_shapes=({0: torch.export.Dim("b", min=1, max=64)},)
    )


def weights(model: Any) -> dict[str, DataType]:
    """The element types of the initializers that are matrices of a layer."""
    initializers = model.model.graph.initializers.values()
    return {v.name: v.dtype for v in initializers if v.const_value.size >= 32 * 64}


def assert_agrees(
    lowered: opsetta.Program,
    model: nn.Module,
    dtype: torch.dtype = torch.float32,
    tolerance: float | None = None,
) -> None:
    tolerance = tolerance or {torch.float32: 1e-5, torch.float16: 4e-3}[dtype]
    for rows in (3, 1, 7):
        x = example(rows, dtype)
        torch.testing.assert_close(lowered(x), model(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("config", CONFIGS)
def test_model_agrees_with_eager(config: str, opset: int) -> None:
    if config == "float8" and opset < FLOAT8_BEGINS:
        with pytest.raises(opsetta.UnsupportedOperatorsError, match="FLOAT8E4M3FN.*19 is the lowest"):
            program(config).lower(opset=opset)
        return
    lowered = program(config).lower(opset=opset)
    onnx.checker.check_model(lowered.model_proto, full_check=True)
    # QuantizeLinear divides by the scale, torch multiplies by its inverse: some integers are one apart.
    assert_agrees(lowered, network(config), tolerance=0.02 if config == "dynamic per tensor" else None)


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("config", [name for name in CONFIGS if name != "float8"])
def test_weights_are_stored_in_few_bits(config: str, opset: int, tmp_path: Path) -> None:
    lowered = program(config).lower(opset=opset)
    expected = DataType.INT4 if config in INT4 and opset >= 21 else DataType.INT8
    stored = weights(lowered)
    assert set(stored.values()) == {expected}
    assert all(name.startswith(("0.weight.qdata", "2.weight.qdata")) for name in stored)
    lowered.save(tmp_path / "model.onnx", external_data=True)
    size = sum(path.stat().st_size for path in tmp_path.iterdir() if path.name != "model.onnx")
    elements = 96 * 64 + 64 * 32
    assert 0 < size <= elements * expected.bitwidth / 8


@pytest.mark.parametrize("opset", [19, 21])
def test_float8_weights_are_dequantized(opset: int) -> None:
    lowered = program("float8").lower(opset=opset)
    assert set(weights(lowered).values()) == {DataType.FLOAT8E4M3FN}
    assert "Cast" not in [node.op_type for node in lowered.model.graph]


def test_dynamic_activations_are_multiplied_as_integers() -> None:
    operators = [node.op_type for node in program("dynamic").lower(opset=13).model.graph]
    assert operators.count("MatMulInteger") == 2
    assert "MatMul" not in operators


def test_scales_per_channel_are_read_by_dequantize_linear() -> None:
    operators = [node.op_type for node in program("int8").lower(opset=13).model.graph]
    assert [operators.count(name) for name in ("DequantizeLinear", "MatMul", "Mul", "Cast")] == [2, 2, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("config", ["int8", "int4 groups", "float8", "dynamic"])
def test_half_precision_agrees_with_eager(config: str, dtype: torch.dtype) -> None:
    model = network(config, dtype)
    exported = opsetta.export(model, (example(dtype=dtype),), opset=21, dynamic_shapes=({0: "b"},))
    assert all(stored.bitwidth <= 8 for stored in weights(exported).values())
    if dtype == torch.bfloat16:
        # onnxruntime has no products of this type.
        onnx.checker.check_model(exported.model_proto, full_check=True)
        return
    if config == "dynamic":
        # A difference of one rounding moves some activations to the next integer.
        assert_agrees(exported, model, dtype, tolerance=0.05)
    else:
        assert_agrees(exported, model, dtype)


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("config", [name for name in WEIGHT_ONLY if name != "float8"])
def test_products_are_matmul_n_bits_for_onnxruntime(config: str, opset: int) -> None:
    lowered = program(config).lower(opset=opset, target="onnxruntime")
    products = [node for node in lowered.model.graph if node.op_type == "MatMulNBits"]
    bits = 4 if config in INT4 else 8
    assert [node.attributes["bits"].value for node in products] == [bits, bits]
    assert set(weights(lowered).values()) == {DataType.UINT8} or bits == 4
    assert_agrees(lowered, network(config))


@pytest.mark.parametrize("config", ["int8", "dynamic", "int4 groups"])
def test_an_exported_program_is_the_same_graph(config: str) -> None:
    model = network(config)
    exported = opsetta.export(torch.export.export(model, (example(),)), (example(),), opset=17)
    direct = opsetta.export(model, (example(),), opset=17)
    assert [n.op_type for n in exported.model.graph] == [n.op_type for n in direct.model.graph]
    exported.verify()


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("config", ["int8", "dynamic", "int4 groups"])
def test_torch_onnx_export_writes_the_quantized_weights(config: str, dynamo: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = network(config)
    opsetta.torch_onnx.export(model, (example(),), path, opset_version=13, dynamo=dynamo)
    written = opsetta.load(path).lower(opset=13)
    assert set(weights(written).values()) == {DataType.INT8}
    [name] = written.input_names
    [result] = written.run({name: example().numpy()})
    np.testing.assert_allclose(result, model(example()).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_static_activations_are_quantized_by_one_scale() -> None:
    model = nn.Sequential(nn.Linear(96, 64), nn.ReLU()).eval()
    scale = torch.tensor([[0.05]])
    config = Int8StaticActivationInt8WeightConfig(act_quant_scale=scale, granularity=PerTensor())
    quantize_(model, config)
    x = example()[0]
    exported = opsetta.export(model, (x,), opset=13)
    operators = [node.op_type for node in exported.model.graph]
    assert operators.count("QuantizeLinear") == operators.count("MatMulInteger") == 1
    torch.testing.assert_close(exported(x), model(x), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("opset", [9, 13, 21])
def test_embeddings_agree_with_eager(opset: int) -> None:
    model = nn.Sequential(nn.Embedding(64, 64), nn.Linear(64, 64)).eval()
    quantize_(
        model, CONFIGS["int4 groups"](), lambda module, _: isinstance(module, (nn.Embedding, nn.Linear))
    )
    exported = opsetta.export(
        model, (torch.arange(6).reshape(2, 3),), opset=opset, dynamic_shapes=({1: "s"},)
    )
    tokens = torch.randint(0, 64, (2, 9))
    torch.testing.assert_close(exported(tokens), model(tokens), rtol=1e-5, atol=1e-5)


def test_a_quantized_input_is_refused() -> None:
    class Product(nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, weight)

    with pytest.raises(
        opsetta.CaptureError, match="input 'weight' is a Int8Tensor, which consists of several"
    ):
        opsetta.export(Product(), (example(), network("int8")[0].weight), opset=17)


def test_a_weight_that_an_operator_reads_as_a_whole_is_refused() -> None:
    exported = torch.export.export(network("int8"), (example(),))
    placeholder = next(iter(exported.graph.nodes))
    with exported.graph.inserting_after(placeholder):
        exported.graph.call_function(torch.ops.aten.relu.default, (placeholder,))
    with pytest.raises(opsetta.CaptureError, match=r"'0\.weight' is a Int8Tensor, which aten\.relu"):
        opsetta.export(exported, (example(),), opset=17)


def test_parameters_are_those_of_torchaos_schemas() -> None:
    functions = [function for function in default_registry if function.name.startswith("torchao::")]
    assert len(functions) == 3
    assert [problem for symbolic in functions for problem in parameter_problems(symbolic)] == []


class SidesOfSize(nn.Module):
    """A branch on a size: small batches take a layer less."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(96, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.second(x) if x.shape[0] > 4 else x.relu()


@pytest.mark.parametrize("config", ["int8", "int4 groups", "dynamic"])
def test_a_branch_on_a_size_is_an_if(config: str) -> None:
    torch.manual_seed(0)
    model = SidesOfSize().eval()
    quantize_(model, CONFIGS[config]())
    exported = opsetta.export(model, (example(),), opset=21, dynamic_shapes=({0: "b"},))
    for opset in (13, 21):
        lowered = exported.lower(opset=opset)
        assert [node.op_type for node in lowered.model.graph].count("If") == 1
        assert_agrees(lowered, model)
