"""Casts of stored weights become DequantizeLinear, and products MatMulNBits, where the rules hold."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.products.dequantized_weights import DequantizeWeights
from opsetta.passes.quantization.dequantized_products import WriteMatMulNBits
from opsetta.registration import DataType, GraphContext, Registry

from ..onnxruntime_sessions import run_onnxruntime

RANDOM = np.random.default_rng(0)
INTEGERS = RANDOM.integers(-128, 128, (32, 24)).astype(np.int8)
SMALL = (INTEGERS // 16).astype(np.int8)
CHANNELS = RANDOM.uniform(0.01, 0.1, 24).astype(np.float32)
GROUPS = RANDOM.uniform(0.01, 0.1, (24, 2)).astype(np.float32)
X = RANDOM.standard_normal((3, 32)).astype(np.float32)
Build = Callable[[GraphContext, ir.Value, Callable[[str, np.ndarray], ir.Value]], ir.Value]


def model_of(build: Build, opset: int) -> ir.Model:
    x = ir.Value(name="x", shape=ir.Shape(X.shape), type=ir.TensorType(DataType.FLOAT))
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": opset})
    g = GraphContext(graph, opset, Registry())

    def stored(name: str, array: np.ndarray) -> ir.Value:
        tensor = ir.Tensor(array, name=name)
        value = ir.Value(
            name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
        graph.initializers.add(value)
        return value

    result = build(g, x, stored)
    result.name = "y"
    graph.outputs.append(result)
    return ir.Model(graph, ir_version=10)


def run(model: ir.Model) -> np.ndarray:
    [result] = run_onnxruntime(model, {"x": X})
    return result


def rewritten(build: Build, opset: int, matmul_n_bits: bool = False) -> tuple[list[str], ir.Model]:
    """The operators after the passes, which must keep the results and change nothing in a second run."""
    model = model_of(build, opset)
    expected = run(model)
    DequantizeWeights(Initializers(model))(model)
    assert not DequantizeWeights(Initializers(model))(model).modified
    if matmul_n_bits:
        WriteMatMulNBits()(model)
        assert not WriteMatMulNBits()(model).modified
    np.testing.assert_allclose(run(model), expected, rtol=1e-5, atol=1e-5)
    return [node.op_type for node in model.graph], model


def scaled_product(scale: np.ndarray, stored_shape: str = "columns") -> Build:
    def build(g: GraphContext, x: ir.Value, stored: Callable[[str, np.ndarray], ir.Value]) -> ir.Value:
        if stored_shape == "rows":
            rows = g.op("Cast", stored("w", INTEGERS.T.copy()), to=int(DataType.FLOAT))
            weight = g.op("Transpose", rows, perm=[1, 0])
        else:
            weight = g.op("Cast", stored("w", INTEGERS), to=int(DataType.FLOAT))
        weight.shape = ir.Shape([32, 24])
        product = g.op("MatMul", x, weight)
        product.shape = ir.Shape([3, 24])
        return g.op("Mul", product, stored("s", scale))

    return build


def scaled_weight(scale: np.ndarray) -> Build:
    def build(g: GraphContext, x: ir.Value, stored: Callable[[str, np.ndarray], ir.Value]) -> ir.Value:
        weight = g.op("Cast", stored("w", INTEGERS), to=int(DataType.FLOAT))
        return g.op("MatMul", x, g.op("Mul", weight, stored("s", scale)))

    return build


@pytest.mark.parametrize("stored_shape", ["columns", "rows"])
@pytest.mark.parametrize("scale", [CHANNELS, CHANNELS[None], CHANNELS[:1], CHANNELS[0]], ids=np.shape)
def test_a_scale_behind_the_product_moves_to_the_weight(scale: np.ndarray, stored_shape: str) -> None:
    operators, model = rewritten(scaled_product(np.asarray(scale), stored_shape), 13)
    assert operators == ["DequantizeLinear", "MatMul"]
    assert {v.dtype for v in model.graph.initializers.values() if v.const_value.size > 24} == {DataType.INT8}


@pytest.mark.parametrize(
    "scale", [CHANNELS, GROUPS.reshape(-1)[:32, None], CHANNELS[0]], ids=["columns", "rows", "number"]
)
def test_a_scaled_matrix_is_dequantized(scale: np.ndarray) -> None:
    assert rewritten(scaled_weight(np.asarray(scale)), 13)[0] == ["DequantizeLinear", "MatMul"]


def test_scales_that_vary_over_both_axes_stay() -> None:
    scale = np.outer(GROUPS.reshape(-1)[:32], CHANNELS)
    assert rewritten(scaled_weight(scale), 13)[0] == ["Cast", "Mul", "MatMul"]


def test_a_scale_of_rows_of_the_product_stays() -> None:
    assert rewritten(scaled_product(CHANNELS[:3, None]), 13)[0] == ["Cast", "MatMul", "Mul"]


def test_scales_per_channel_stay_before_dequantize_linear_has_an_axis() -> None:
    assert rewritten(scaled_product(CHANNELS), 12)[0] == ["Cast", "MatMul", "Mul"]
    assert rewritten(scaled_product(CHANNELS[:1]), 12)[0] == ["DequantizeLinear", "MatMul"]


def test_a_product_with_another_reader_stays() -> None:
    def build(g: GraphContext, x: ir.Value, stored: Callable[[str, np.ndarray], ir.Value]) -> ir.Value:
        scaled = scaled_product(CHANNELS)(g, x, stored)
        product = scaled.producer().inputs[0]
        return g.op("Add", scaled, product)

    assert rewritten(build, 13)[0] == ["Cast", "MatMul", "Mul", "Add"]


def blocks(integers: np.ndarray, zero_points: np.ndarray | None = None) -> Build:
    """A product with a weight whose rows have groups of 16."""

    def build(g: GraphContext, x: ir.Value, stored: Callable[[str, np.ndarray], ir.Value]) -> ir.Value:
        codes = stored("w", integers.T.copy())
        if integers is SMALL:
            codes = g.op("Cast", codes, to=int(DataType.INT4))
        zeros = None if zero_points is None else stored("z", zero_points)
        rows = g.op("DequantizeLinear", codes, stored("s", GROUPS), zeros, axis=1, block_size=16)
        weight = g.op("Transpose", rows, perm=[1, 0])
        weight.shape = ir.Shape([32, 24])
        return g.op("MatMul", x, weight)

    return build


def test_the_stored_matrix_is_transposed_instead_of_the_dequantized_one() -> None:
    assert rewritten(blocks(INTEGERS), 21)[0] == ["DequantizeLinear", "MatMul"]
    operators, model = rewritten(blocks(SMALL), 21)
    assert operators == ["DequantizeLinear", "MatMul"]
    assert DataType.INT4 in {v.dtype for v in model.graph.initializers.values()}


def test_integers_beyond_four_bits_are_not_packed() -> None:
    def build(g: GraphContext, x: ir.Value, stored: Callable[[str, np.ndarray], ir.Value]) -> ir.Value:
        codes = g.op("Cast", stored("w", INTEGERS), to=int(DataType.INT4))
        return g.op("MatMul", x, g.op("DequantizeLinear", codes, stored("s", CHANNELS[0])))

    model = model_of(build, 21)
    assert not DequantizeWeights(Initializers(model))(model).modified


@pytest.mark.parametrize(
    ("integers", "zero_points", "bits"),
    [
        (INTEGERS, None, 8),
        (INTEGERS, np.arange(48).reshape(24, 2).astype(np.int8), 8),
        (SMALL, None, 4),
        (SMALL, (np.arange(48).reshape(24, 2) % 5).astype(ml_dtypes.int4), 4),
    ],
    ids=["int8", "int8 zero points", "int4", "int4 zero points"],
)
def test_products_with_blocks_become_matmul_n_bits(
    integers: np.ndarray, zero_points: np.ndarray | None, bits: int
) -> None:
    operators, model = rewritten(blocks(integers, zero_points), 21, matmul_n_bits=True)
    assert operators == ["MatMulNBits"]
    [product] = model.graph
    assert (product.attributes["bits"].value, product.attributes["block_size"].value) == (bits, 16)


def test_channels_become_blocks_of_the_whole_row() -> None:
    operators, model = rewritten(scaled_product(CHANNELS), 13, matmul_n_bits=True)
    assert operators == ["MatMulNBits"]
    [product] = model.graph
    assert product.attributes["block_size"].value == 32
