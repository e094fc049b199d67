"""Quantized weights: their numbers against numpy, their forms at each opset, and which weights stay."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opsetta
from opsetta.passes.quantization import QuantizeWeights, Scheme, quantize_weights
from opsetta.registration import GraphError, UsageError

from ..onnxruntime_sessions import run_onnxruntime

OPSETS = (12, 13, 18, 21, 23)
ROWS, COLUMNS, TABLE = 40, 24, 50
DTYPES = {"int8": 8, "int4": 4}


def weight(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def quantized_matrix(matrix, bits, block, symmetric):
    """A matrix `[rows, columns]` after quantization of blocks along its rows, element by element."""
    top = 2**bits - 1
    result = np.empty_like(matrix)
    for row, content in enumerate(matrix):
        for begin in range(0, len(content), block):
            part = content[begin : begin + block]
            if symmetric:
                zero = 2 ** (bits - 1)
                scale = np.float32(np.abs(part).max() / (zero - 1))
            else:
                low, high = min(part.min(), 0), max(part.max(), 0)
                scale = np.float32((high - low) / top)
                zero = round(float(-low / scale))
            codes = np.clip(np.rint(part / scale) + zero, 0, top)
            result[row, begin : begin + block] = (codes - zero) * scale
    return result


def ggml_matrix(matrix):
    """A matrix after GGML's quantize_row_q4_0_ref and dequantize_row_q4_0, element by element."""
    result = np.empty_like(matrix)
    for row, content in enumerate(matrix):
        for begin in range(0, len(content), 32):
            part = content[begin : begin + 32]
            scale = part[np.abs(part).argmax()] / np.float32(-8)
            factor = np.float32(1) / scale if scale else np.float32(0)
            codes = [min(15, int(element * factor + np.float32(8.5))) for element in part]
            result[row, begin : begin + 32] = (np.float32(codes) - 8) * np.float32(np.float16(scale))
    return result


def model_of(nodes, opset, initializers, inputs, outputs=("y",)):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10 if opset >= 21 else 8
    )


def product(opset, w, **attributes):
    """The product of x and a weight; a MatMul without attributes."""
    node = helper.make_node("Gemm" if attributes else "MatMul", ["x", "w"], ["y"], **attributes)
    depth = w.shape[1] if attributes.get("transB") else w.shape[0]
    return model_of([node], opset, {"w": w}, [("x", TensorProto.FLOAT, ["n", depth])])


def run(model, **inputs):
    """The outputs without onnxruntime's rewrites, which quantize activations too."""
    return run_onnxruntime(model.model_proto, inputs, optimized=False)


def operators(model):
    return [node.op_type for node in model.model.graph]


@pytest.mark.parametrize("opset", [9, 18, 21])
def test_blocks_of_q4_0_have_the_numbers_of_ggml(opset):
    w, x = weight(64, COLUMNS), weight(3, 64, seed=1)
    w[32:, 0], w[32:, 1] = 0, 1e-9
    small = opsetta.realize(product(opset, w), ["types=Q4_0-FP32"])
    onnx.checker.check_model(small.model_proto, full_check=True)
    [y] = run(small, x=x)
    np.testing.assert_array_equal(
        y, run_onnxruntime(product(opset, ggml_matrix(w.T).T), {"x": x}, optimized=False)[0]
    )
    weights = [value.const_value for value in small.model.graph.initializers.values()]
    assert {tensor.dtype.name for tensor in weights if tensor.size > 4} >= {"FLOAT16"}
    assert sum(tensor.nbytes for tensor in weights) < 0.2 * w.nbytes


def test_what_q4_0_refuses():
    w = weight(64, COLUMNS)
    for options in ({"block_size": 64}, {"symmetric": False}):
        with pytest.raises(UsageError, match="32 symmetric elements of 4 bits"):
            opsetta.quantize_weights(product(21, w), "q4_0", **options)
    with pytest.raises(GraphError, match="'w' cannot be quantized: a scale is beyond the range of FLOAT16"):
        opsetta.quantize_weights(product(21, w * 1e6), "q4_0")


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_those_of_the_dequantized_weight(dtype, symmetric, opset):
    w, x = weight(ROWS, COLUMNS), weight(3, ROWS, seed=1)
    found = opsetta.quantize_weights(product(opset, w), dtype, block_size=16, symmetric=symmetric)
    onnx.checker.check_model(found.model_proto, full_check=True)
    assert found.opset == opset
    by_channel = dtype == "int8" and opset in (13, 18)
    assert ("DequantizeLinear" in operators(found)) == (opset >= 21 or by_channel)
    block = ROWS if by_channel else 16
    expected = x @ quantized_matrix(w.T, DTYPES[dtype], block, symmetric).T
    np.testing.assert_allclose(run(found, x=x)[0], expected, rtol=1e-5, atol=1e-5)
    assert found.quantization.bytes_after < found.quantization.bytes_before == w.nbytes


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_onnxruntime_gets_its_own_product(dtype, symmetric):
    w, x = weight(ROWS, COLUMNS), weight(3, ROWS, seed=1)
    for opset in (12, 21):
        found = opsetta.quantize_weights(
            product(opset, w), dtype, block_size=16, symmetric=symmetric, target="onnxruntime"
        )
        assert operators(found) == ["MatMulNBits"]
        expected = x @ quantized_matrix(w.T, DTYPES[dtype], 16, symmetric).T
        np.testing.assert_allclose(run(found, x=x)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", [None, "onnxruntime"])
@pytest.mark.parametrize("opset", [9, 21])
def test_a_gemm_keeps_its_factors_and_bias(opset, target):
    w, x, b = weight(COLUMNS, 48), weight(3, 48, seed=1), weight(COLUMNS, seed=2)
    quantized = quantized_matrix(w, 8, 32, True)
    for alpha in (1.0, 0.5):
        node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=alpha)
        model = model_of([node], opset, {"w": w, "b": b}, [("x", TensorProto.FLOAT, ["n", 48])])
        found = opsetta.quantize_weights(model, "int8", target=target)
        assert ("Gemm" in operators(found)) == (target is None or alpha != 1)
        np.testing.assert_allclose(run(found, x=x)[0], alpha * (x @ quantized.T) + b, rtol=1e-4, atol=1e-4)


def tied(opset):
    """A table whose rows are multiplied with the table itself."""
    nodes = [
        helper.make_node("Gather", ["w", "ids"], ["rows"], axis=0),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["rows", "t"], ["y"]),
    ]
    inputs = [("ids", TensorProto.INT64, ["batch", "length"])]
    return model_of(nodes, opset, {"w": weight(TABLE, COLUMNS)}, inputs)


@pytest.mark.parametrize("target", [None, "onnxruntime"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("opset", [9, 13, 21])
def test_a_table_that_is_also_a_weight_is_stored_once(opset, dtype, target):
    ids = np.array([[3, 49, 0]], dtype=np.int64)
    found = opsetta.quantize_weights(tied(opset), dtype, embeddings=True, target=target)
    large = [v for v in found.model.graph.initializers.values() if v.const_value.size >= TABLE * COLUMNS // 2]
    assert len(large) == 1
    table = quantized_matrix(weight(TABLE, COLUMNS), DTYPES[dtype], 32, True)
    np.testing.assert_allclose(run(found, ids=ids)[0], table[ids] @ table.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"embeddings": True, "lm_head": False}], ids=["table", "head"])
def test_a_weight_stays_unless_all_of_its_readers_are_wanted(options):
    with pytest.raises(UsageError, match="no weight to quantize"):
        opsetta.quantize_weights(tied(21), "int8", **options)


def test_the_last_product_may_stay():
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("MatMul", ["t", "last"], ["z"]),
        helper.make_node("Add", ["z", "b"], ["y"]),
    ]
    weights = {"first": weight(32, 32), "last": weight(32, 64), "b": weight(64)}
    model = model_of(nodes, 21, weights, [("x", TensorProto.FLOAT, ["n", 32])])
    found = opsetta.quantize_weights(model, "int4", lm_head=False).quantization
    assert [each.name for each in found.weights] == ["first"]


def test_other_readers_and_small_weights_stay():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("ReduceMean", ["w"], ["mean"], keepdims=0),
        helper.make_node("Add", ["h", "mean"], ["g"]),
        helper.make_node("MatMul", ["g", "small"], ["y"]),
    ]
    weights = {"w": weight(32, 32), "small": weight(32, 1)}
    model = model_of(nodes, 13, weights, [("x", TensorProto.FLOAT, ["n", 32])])
    found = opsetta.quantize_weights(model, "int8")
    assert [each.name for each in found.quantization.weights] == ["small"]
    model = model_of(nodes[:3], 13, weights | {"small": weight(1, 1)}, [("x", TensorProto.FLOAT, ["n", 32])])
    with pytest.raises(UsageError, match="no weight to quantize"):
        opsetta.quantize_weights(model, "int8")


def test_a_weight_stays_where_padding_to_blocks_makes_it_larger():
    """Rows of 4 elements take 16 bytes, as they do in int4 with padding; DequantizeLinear needs none."""
    weights = {"w": weight(4, 64)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    for opset, count in ((18, 0), (21, 1)):
        model = model_of([node], opset, weights, [("x", TensorProto.FLOAT, ["n", 4])])
        if count:
            assert len(opsetta.quantize_weights(model, "int4").quantization.weights) == count
        else:
            with pytest.raises(UsageError, match="no weight to quantize"):
                opsetta.quantize_weights(model, "int4")


@pytest.mark.parametrize(("kind", "opset"), [(np.float16, 13), (np.float16, 21), (ml_dtypes.bfloat16, 21)])
def test_narrow_weights_keep_their_type(kind, opset):
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    w = weight(64, 32).astype(kind)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = model_of([node], opset, {"w": w}, [("x", dtype, ["n", 64])])
    model.graph.output[0].type.tensor_type.elem_type = dtype
    found = opsetta.quantize_weights(model, "int8")
    onnx.checker.check_model(found.model_proto, full_check=True)
    assert found.quantization.error.maximum < 0.006


def test_errors_are_those_of_the_weights():
    w = weight(64, 32)
    found = opsetta.quantize_weights(product(21, w), "int4").quantization.error
    difference = np.abs(quantized_matrix(w.T, 4, 32, True).T - w)
    assert found.maximum == pytest.approx(difference.max() / np.abs(w).max(), rel=1e-5)
    assert found.mean == pytest.approx(difference.mean() / np.abs(w).mean(), rel=1e-5)


def test_blocks_of_zeros_stay_zeros():
    w = np.zeros((64, 32), dtype=np.float32)
    for symmetric in (True, False):
        found = opsetta.quantize_weights(product(21, w), "int4", symmetric=symmetric)
        assert not run(found, x=weight(2, 64))[0].any()


def test_an_infinite_weight_is_refused_by_name(tmp_path, monkeypatch):
    w = weight(256, 256)
    w[3, 4] = np.inf
    with pytest.raises(GraphError, match=r"'w' cannot be quantized.*infinity"):
        opsetta.quantize_weights(product(21, w), "int8")
    monkeypatch.setattr(quantize_weights, "_CHECKED_AT_ONCE", 0)
    found = opsetta.quantize_weights(product(21, w), "int8")
    with pytest.raises(GraphError, match=r"'w' cannot be quantized.*infinity"):
        found.save(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_second_run_changes_nothing():
    scheme = Scheme(8)
    found = opsetta.quantize_weights(product(21, weight(64, 32)), "int8").model
    assert not QuantizeWeights(scheme)(found).modified


def test_wrong_arguments_are_refused():
    model = product(21, weight(64, 32))
    with pytest.raises(UsageError, match="'int8', 'int4' or 'q4_0', not 'int2'"):
        opsetta.quantize_weights(model, "int2")
    for size in (8, 48, "32"):
        with pytest.raises(UsageError, match="power of two"):
            opsetta.quantize_weights(model, "int8", block_size=size)


def test_one_weight_is_in_memory_at_a_time(tmp_path):
    """Contents are computed as they are written, and only those of the latest weight are kept."""
    nodes = [helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}"]) for i in range(4)]
    nodes[-1].output[0] = "y"
    weights = {f"w{i}": weight(256, 256, seed=i) for i in range(4)}
    model = model_of(nodes, 21, weights, [("x", TensorProto.FLOAT, ["n", 256])])
    computed = []
    found = opsetta.quantize_weights(model, "int8", symmetric=False)
    for each in found.quantization.weights:
        compute = each._compute
        each._compute = lambda each=each, compute=compute: computed.append(each.name) or compute()
    found.save(tmp_path / "m.onnx")
    assert computed == ["w0", "w1", "w2", "w3"]
