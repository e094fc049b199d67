"""onnxruntime's own operators, written as operators of ONNX: the results are those of its kernels."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from opsetta import TargetError, UnsupportedOperatorsError, default_registry, onnx_symbolic
from opsetta.exporter.devices.targets.target import Choice, Target
from opsetta.exporter.onnx_model import OnnxModel

from .test_conversion import model, operators, run, value

RANDOM = np.random.default_rng(0)
DOMAIN = "com.microsoft"


def reals(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def integers(low, high, *shape, dtype=np.int32):
    return RANDOM.integers(low, high, shape).astype(dtype)


def number(amount, dtype=np.float32):
    return np.array(amount, dtype)


X, BYTES = reals(2, 3, 8), integers(0, 255, 2, 3, 8, dtype=np.uint8)
SCALES = [number(0.02), number(100, np.uint8), number(0.03), number(90, np.uint8)]
MASK = number([[1, 1, 0], [1, 0, 0]], np.int32)
IDS = integers(0, 5, 2, 3)
ANGLES = reals(10, 8)
IMAGE, KERNEL = reals(1, 2, 6, 6), reals(3, 2, 3, 3)
PROJECTION = [reals(8, 24), reals(24)]
BLOCKS = [reals(2, 3, 40), integers(0, 255, 5, 3, 8, dtype=np.uint8), np.abs(reals(5, 3))]
BLOCKS_OF_BYTES = [BLOCKS[0], integers(0, 255, 5, 3, 16, dtype=np.uint8), BLOCKS[2]]
TABLE = [integers(0, 255, 6, 16, dtype=np.uint8), number([[1, -2], [5, 0]], np.int64), np.abs(reals(6, 2))]
PACKED_SIZES = {"K": 40, "N": 5, "block_size": 16}


def queries(heads, length, past, lengths=None, **attributes):
    """GroupQueryAttention of two sequences, with the positions of past keys."""
    ends = number(lengths or [past + length] * 2, np.int32)
    tensors = [reals(2, length, heads * 16), reals(2, length, 32), reals(2, length, 32)]
    buffers = [reals(2, 2, past, 16), reals(2, 2, past, 16)]
    inputs = [*tensors, *buffers, ends - 1, number([ends.max()], np.int32), np.cos(ANGLES), np.sin(ANGLES)]
    return "GroupQueryAttention", inputs, {"num_heads": heads, "kv_num_heads": 2, **attributes}, 3


# Weights of int8 have 7 bits: sums of larger ones saturate in the kernels for x86 processors without VNNI.
# Operator, inputs, attributes, number of outputs. Without the outputs for keys and values, the kernel of
# GroupQueryAttention forgets the past.
RECORDS = {
    "Gelu": ("Gelu", [X], {}, 1),
    "BiasGelu": ("BiasGelu", [X, reals(8)], {}, 1),
    "FastGelu": ("FastGelu", [X, reals(8)], {}, 1),
    "QuickGelu": ("QuickGelu", [X], {"alpha": 1.5}, 1),
    "sum and norm": ("SkipLayerNormalization", [X, reals(3, 8), reals(8), reals(8), reals(8)], {}, 4),
    "sum and root": ("SkipSimplifiedLayerNormalization", [X, reals(2, 3, 8), reals(8)], {"epsilon": 1e-5}, 4),
    "embeddings": (
        "EmbedLayerNormalization",
        [IDS, IDS % 2, reals(5, 8), reals(6, 8), reals(2, 8), reals(8), reals(8), MASK],
        {},
        2,
    ),
    "embeddings without segments": (
        "EmbedLayerNormalization",
        [IDS, None, reals(5, 8), reals(6, 8), None, reals(8), reals(8), None, IDS],
        {},
        3,
    ),
    "quantized embeddings": (
        "QEmbedLayerNormalization",
        [
            IDS,
            IDS % 2,
            *(integers(0, 255, rows, 8, dtype=np.uint8) for rows in (5, 6, 2)),
            *(integers(0, 255, 8, dtype=np.uint8) for _ in range(2)),
            MASK,
            *(number(0.01 * position) for position in range(1, 6)),
            *(number(128, np.uint8) for _ in range(5)),
        ],
        {},
        2,
    ),
    "attention": ("Attention", [X, *PROJECTION], {"num_heads": 2, "unidirectional": 1}, 2),
    "attention with a mask": ("Attention", [X, *PROJECTION, MASK], {"num_heads": 2}, 1),
    "attention without keys": (
        "Attention",
        [X, *PROJECTION, 0 * MASK],
        {"num_heads": 2, "unidirectional": 1, "mask_filter_value": -3.0},
        1,
    ),
    "attention to a length": ("Attention", [X, *PROJECTION, number([2, 3], np.int32)], {"num_heads": 2}, 1),
    "attention between": ("Attention", [X, *PROJECTION, number([2, 3, 0, 1], np.int32)], {"num_heads": 2}, 1),
    "attention with a past": (
        "Attention",
        [X, *PROJECTION, integers(0, 2, 2, 3, 5), reals(2, 2, 2, 2, 4)],
        {"num_heads": 2, "scale": 0.3},
        2,
    ),
    "attention of sizes": (
        "Attention",
        [X, reals(8, 20), reals(20)],
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]},
        1,
    ),
    "quantized attention": (
        "QAttention",
        [BYTES, integers(-64, 64, 8, 24, dtype=np.int8), reals(24), SCALES[0], SCALES[2], MASK, SCALES[1]],
        {"num_heads": 2},
        1,
    ),
    "heads": ("MultiHeadAttention", [X, reals(2, 4, 8), reals(2, 4, 6), reals(22)], {"num_heads": 2}, 1),
    "heads with a past": (
        "MultiHeadAttention",
        [X, X, X, None, integers(0, 2, 2, 8), None, reals(2, 2, 5, 4), reals(2, 2, 5, 4)],
        {"num_heads": 2, "unidirectional": 1},
        3,
    ),
    "split heads": ("MultiHeadAttention", [X, reals(2, 2, 5, 4), reals(2, 2, 5, 4)], {"num_heads": 2}, 1),
    "rotation": ("RotaryEmbedding", [reals(2, 3, 32), IDS.astype(np.int64), ANGLES, ANGLES], {}, 1),
    "rotation of pairs": (
        "RotaryEmbedding",
        [reals(2, 3, 40), number([5], np.int64), ANGLES, ANGLES],
        {"num_heads": 2, "rotary_embedding_dim": 16, "interleaved": 1},
        1,
    ),
    "prompt": queries(4, 3, 0, do_rotary=1),
    "one step": queries(4, 1, 4, [5, 3], do_rotary=1, rotary_interleaved=1),
    "window": queries(2, 5, 0, local_window_size=2, softcap=5.0, smooth_softmax=1),
    "FusedMatMul": (
        "FusedMatMul",
        [reals(2, 4, 3), reals(2, 5, 4)],
        {"transA": 1, "transB": 1, "alpha": 0.5},
        1,
    ),
    "moved batch": ("FusedMatMul", [reals(3, 2, 4), reals(2, 3, 5)], {"transBatchA": 1, "transA": 1}, 1),
    "FusedGemm": (
        "FusedGemm",
        [X[0], reals(8, 5), reals(5)],
        {"activation": "LeakyRelu", "activation_alpha": 0.1},
        1,
    ),
    "FusedConv": ("FusedConv", [IMAGE, KERNEL, reals(3)], {"activation": "Relu", "pads": [1] * 4}, 1),
    "FusedConv with a sum": (
        "FusedConv",
        [IMAGE, KERNEL, reals(3), reals(1, 3, 4, 4)],
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
        1,
    ),
    "four bits": ("MatMulNBits", BLOCKS, {**PACKED_SIZES, "bits": 4}, 1),
    "four bits around zeros": (
        "MatMulNBits",
        [*BLOCKS, integers(0, 255, 5, 2, dtype=np.uint8), None, reals(5)],
        {**PACKED_SIZES, "bits": 4},
        1,
    ),
    "eight bits": ("MatMulNBits", BLOCKS_OF_BYTES, {**PACKED_SIZES, "bits": 8}, 1),
    "rows of blocks": ("GatherBlockQuantized", TABLE, {"block_size": 16}, 1),
    "product of integers": (
        "MatMulIntegerToFloat",
        [
            BYTES,
            integers(-64, 64, 8, 5, dtype=np.int8),
            SCALES[0],
            np.abs(reals(5)),
            SCALES[1],
            None,
            reals(5),
        ],
        {},
        1,
    ),
    "dynamic product": (
        "DynamicQuantizeMatMul",
        [X, integers(-64, 64, 8, 5, dtype=np.int8), SCALES[0]],
        {},
        1,
    ),
    "QLinearAdd": ("QLinearAdd", [BYTES, *SCALES[:2], BYTES[0], *SCALES], {}, 1),
    "QLinearMul": ("QLinearMul", [BYTES, *SCALES[:2], BYTES[0], *SCALES], {}, 1),
    "QLinearSigmoid": ("QLinearSigmoid", [BYTES, *SCALES], {}, 1),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", [BYTES, *SCALES], {"alpha": 0.2}, 1),
    "QLinearSoftmax": ("QLinearSoftmax", [BYTES, *SCALES], {"axis": 1, "opset": 11}, 1),
    "QLinearConcat": ("QLinearConcat", [*SCALES[:2], BYTES, *SCALES[:2], BYTES, *SCALES[2:]], {"axis": 1}, 1),
    "QLinearAveragePool": (
        "QLinearAveragePool",
        [BYTES[None], *SCALES],
        {"kernel_shape": [2, 3], "pads": [0, 1, 0, 1], "channels_last": 1},
        1,
    ),
    "QLinearGlobalAveragePool": ("QLinearGlobalAveragePool", [BYTES[None], *SCALES], {}, 1),
    "QLinearWhere": (
        "QLinearWhere",
        [BYTES > 100, BYTES, *SCALES[:2], BYTES[0], *SCALES[:2], *SCALES[2:]],
        {},
        1,
    ),
    "QuantizeLinear": ("QuantizeLinear", [X, *SCALES[:2]], {}, 1),
    "DequantizeLinear": ("DequantizeLinear", [BYTES, *SCALES[:2]], {}, 1),
    "QLinearConv": (
        "QLinearConv",
        [
            integers(0, 255, 1, 6, 6, 2, dtype=np.uint8),
            *SCALES[:2],
            integers(-64, 64, 3, 2, 3, 3, dtype=np.int8),
            np.abs(reals(3)) / 50,
            np.zeros(3, np.int8),
            *SCALES[2:],
            integers(-99, 99, 3),
        ],
        {"channels_last": 1, "pads": [1] * 4},
        1,
    ),
    "QGemm": (
        "QGemm",
        [
            BYTES[0],
            *SCALES[:2],
            integers(-64, 64, 5, 8, dtype=np.int8),
            np.abs(reals(5)) / 50,
            np.zeros(5, np.int8),
            integers(-99, 99, 5),
            *SCALES[2:],
        ],
        {"transB": 1},
        1,
    ),
    "QGemm to floats": (
        "QGemm",
        [BYTES[0], *SCALES[:2], integers(-64, 64, 8, 5, dtype=np.int8), SCALES[0], number(0, np.int8)],
        {"alpha": 0.5},
        1,
    ),
    "NhwcMaxPool": ("NhwcMaxPool", [BYTES[None]], {"kernel_shape": [2, 2], "pads": [0, 1, 0, 1]}, 1),
    "Trilu": ("Trilu", [X, number(1, np.int64)], {"upper": 0}, 1),
    "ExpandDims": ("ExpandDims", [X, number(-1, np.int32)], {}, 1),
    "GatherND": ("GatherND", [X, number([[1, 2], [0, 1]], np.int64)], {}, 1),
    "Range": ("Range", [number(2), number(9)], {}, 1),
    "GridSample": ("GridSample", [IMAGE, np.tanh(reals(1, 4, 5, 2))], {"mode": "bicubic"}, 1),
    "integers of 16 bits": ("MatMulInteger16", [integers(-9, 9, 2, 8, dtype=np.int16)] * 2, {}, 1),
}
RECORDS["integers of 16 bits"][1][1] = RECORDS["integers of 16 bits"][1][0].T.copy()
LOWEST = {"Range": 11}
# Inputs that are computed in models; all others are weights.
COMPUTED = {
    "Attention": (0, 3, 4, 5),
    "QAttention": (0, 5),
    "GroupQueryAttention": range(7),
    "QLinearConcat": (2, 5),
}
COMPUTED |= {"MultiHeadAttention": (0, 1, 2, 4, 6, 7), "EmbedLayerNormalization": (0, 1, 7, 8)}
COMPUTED |= {
    "QEmbedLayerNormalization": (0, 1, 7),
    "RotaryEmbedding": (0, 1),
    "GatherBlockQuantized": (1,),
    "QLinearWhere": (0, 1, 4),
}


def model_of(operator, inputs, attributes, outputs):
    """A model of one node, and its feeds."""
    names = ["" if tensor is None else f"input{position}" for position, tensor in enumerate(inputs)]
    results = [f"output{position}" for position in range(outputs)]
    if operator.startswith("Skip"):
        results[1:3] = "", ""
    computed = [names[position] for position in COMPUTED.get(operator, (0,)) if position < len(names)]
    tensors = {name: tensor for name, tensor in zip(names, inputs, strict=True) if name}
    feeds = {name: tensor for name, tensor in tensors.items() if name in computed}
    node = helper.make_node(operator, names, results, domain=DOMAIN, **attributes)
    declared = [value(n, t.shape, helper.np_dtype_to_tensor_dtype(t.dtype)) for n, t in feeds.items()]
    weights = {name: tensor for name, tensor in tensors.items() if name not in feeds}
    returned = [onnx.ValueInfoProto(name=name) for name in results if name]
    return model(17, [node], declared, returned, weights, imports=[(DOMAIN, 1)]), feeds


@pytest.mark.parametrize("name", RECORDS)
def test_standard_operators_give_what_the_kernel_gives(name):
    operator, inputs, attributes, outputs = RECORDS[name]
    proto, feeds = model_of(operator, inputs, attributes, outputs)
    expected = run(proto, **feeds)
    for output, array in zip(proto.graph.output, expected, strict=True):
        element_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        output.CopyFrom(value(output.name, [None] * array.ndim, element_type))
    for opset in (LOWEST.get(name, 9), 13, 21):
        lowered = OnnxModel(ir.from_proto(proto)).lower(opset, standard=True)
        written = lowered.model_proto
        onnx.checker.check_model(written, full_check=True)
        assert [entry.domain for entry in written.opset_import] == [""]
        for array, kernel_result in zip(lowered.run(feeds), expected, strict=True):
            step = 1 if array.dtype.kind in "iu" else 1e-3
            assert array.dtype == kernel_result.dtype
            np.testing.assert_allclose(array.astype(float), kernel_result.astype(float), rtol=1e-4, atol=step)


def quantized_layer(scales, steps=5, lengths=None, direction="bidirectional", **attributes):
    """An LSTM of quantized weights, and its feeds. Sums of uint8 weights do not saturate in the kernel."""
    count = 2 if direction == "bidirectional" else 1
    weights = [integers(20, 230, count, rows, 16, dtype=np.uint8) for rows in (8, 4)]
    parameters = [np.full((count, *scales), 0.01, np.float32), np.full((count, *scales), 128, np.uint8)] * 2
    states = [reals(count, 3, 4), reals(count, 3, 4)] if lengths is None else [None, None]
    inputs = [reals(steps, 3, 8), *weights, reals(count, 32), lengths, *states, None, *parameters]
    attributes = {"hidden_size": 4, "direction": direction, **attributes}
    return model_of("DynamicQuantizeLSTM", inputs, attributes, 3)


@pytest.mark.parametrize(
    ("layer", "tolerance"),
    [
        (quantized_layer(()), 1e-5),
        (quantized_layer((16,), direction="reverse", activations=["Sigmoid", "Relu", "Tanh"]), 1e-5),
        (quantized_layer((16,), steps=1, direction="forward"), 1e-5),
        # The kernel also quantizes the states of sequences of several lengths.
        (quantized_layer((), lengths=number([5, 2, 4], np.int32)), 0.01),
    ],
    ids=["bidirectional", "reverse", "one step", "lengths"],
)
def test_a_quantized_recurrent_layer_rounds_inputs_and_states_as_the_kernel_does(layer, tolerance):
    proto, feeds = layer
    # With one thread: with several, the kernel quantizes parts of the batch on their own.
    expected = run(proto, **feeds)
    for output, array in zip(proto.graph.output, expected, strict=True):
        output.CopyFrom(value(output.name, array.shape))
    for opset in (9, 17):
        lowered = OnnxModel(ir.from_proto(proto)).lower(opset, standard=True)
        assert [entry.domain for entry in lowered.model_proto.opset_import] == [""]
        for array, kernel_result in zip(lowered.run(feeds), expected, strict=True):
            np.testing.assert_allclose(array, kernel_result, atol=tolerance)


@pytest.mark.parametrize("name", ["attention to a length", "attention between"])
def test_lengths_of_an_unknown_batch(name):
    """What onnxruntime's optimizer writes for models with dynamic sizes."""
    operator, inputs, attributes, outputs = RECORDS[name]
    proto, feeds = model_of(operator, inputs, attributes, outputs)
    expected = run(proto, **feeds)
    for position, sizes in ((0, ["b", "s", 8]), (1, ["m"])):
        declared = proto.graph.input[position]
        declared.CopyFrom(value(declared.name, sizes, declared.type.tensor_type.elem_type))
    proto.graph.output[0].CopyFrom(value("output0", [None] * 3))
    lowered = OnnxModel(ir.from_proto(proto)).lower(13, standard=True)
    np.testing.assert_allclose(lowered.run(feeds)[0], expected[0], atol=1e-4)


def test_sizes_reach_quantized_attention_through_operators_that_onnx_does_not_know():
    """The mask has a length for each entry of the batch, whose size no shape in the file states."""
    weights = {"w": integers(-60, 60, 8, 24, dtype=np.int8), "b": reals(24), "ws": number(0.01)}
    weights["wz"] = number(0, np.int8)
    nodes = [
        helper.make_node("Gelu", ["x"], ["h"], domain=DOMAIN),
        helper.make_node("DynamicQuantizeLinear", ["h"], ["q", "s", "z"]),
        helper.make_node(
            "QAttention", ["q", "w", "b", "s", "ws", "lengths", "z", "wz"], ["y"], domain=DOMAIN, num_heads=2
        ),
    ]
    declared = [value("x", (2, 3, 8)), value("lengths", (2,), TensorProto.INT32)]
    proto = model(13, nodes, declared, [value("y", (2, 3, 8))], weights, imports=[(DOMAIN, 1)])
    feeds = {"x": X, "lengths": number([3, 2], np.int32)}
    for opset in (9, 13):
        lowered = OnnxModel(ir.from_proto(proto)).lower(opset, standard=True)
        np.testing.assert_allclose(lowered.run(feeds)[0], run(proto, **feeds)[0], atol=1e-3)


def test_a_quantized_recurrent_layer_for_a_target_without_scan_keeps_its_states_in_float():
    proto, feeds = quantized_layer((16,))
    expected = run(proto, **feeds)
    for output, array in zip(proto.graph.output, expected, strict=True):
        output.CopyFrom(value(output.name, array.shape))
    target = Target("steps", "", (), operators=Choice(refused=frozenset({"Scan", "Loop"})))
    with pytest.warns(UserWarning, match="states of DynamicQuantizeLSTM are not rounded"):
        lowered = OnnxModel(ir.from_proto(proto)).lower(13, target=target)
    assert "LSTM" in {node.op_type for node in lowered.model.graph}
    for array, kernel_result in zip(lowered.run(feeds), expected, strict=True):
        np.testing.assert_allclose(array, kernel_result, atol=0.01)


def normalise(image, groups, gamma, beta):
    """GroupNorm with SiLU of an image with channels last."""
    batch, *sizes, channels = image.shape
    grouped = image.reshape(batch, *sizes, groups, channels // groups)
    axes = (*range(1, len(sizes) + 1), -1)
    centred = grouped - grouped.mean(axes, keepdims=True)
    result = (centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)).reshape(image.shape)
    result = result * gamma + beta
    return result / (1 + np.exp(-result))


def tanh_gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


PHOTO, GAMMA, BETA = reals(2, 4, 4, 6), reals(6), reals(6)
ROWS = reals(2, 6)
NORM = {"groups": 3, "activation": 1}
# These have no kernel for CPUs. Operator, inputs, attributes, results.
WITHOUT_KERNEL = {
    "GroupNorm": ([PHOTO, GAMMA, BETA], NORM, [normalise(PHOTO, 3, GAMMA, BETA)]),
    "SkipGroupNorm": (
        [PHOTO, GAMMA, BETA, ROWS, GAMMA],
        NORM,
        [normalise(PHOTO + ROWS[:, None, None] + GAMMA, 3, GAMMA, BETA), PHOTO + ROWS[:, None, None] + GAMMA],
    ),
    "BiasAdd": ([X, GAMMA[:1], X], {}, [2 * X + GAMMA[:1]]),
    "GemmFastGelu": ([X, reals(8, 8) * 0 + np.eye(8, dtype=np.float32)], {}, [tanh_gelu(X)]),
}


@pytest.mark.parametrize("operator", WITHOUT_KERNEL)
def test_operators_without_a_kernel_follow_their_definition(operator):
    inputs, attributes, expected = WITHOUT_KERNEL[operator]
    proto, feeds = model_of(operator, inputs, attributes, len(expected))
    del proto.graph.output[:]
    proto.graph.output.extend(value(f"output{i}", array.shape) for i, array in enumerate(expected))
    if operator.startswith("Skip"):
        proto.graph.node[0].output[1] = "output1"
    for opset in (9, 18, 21):
        lowered = OnnxModel(ir.from_proto(proto)).lower(opset, standard=True)
        for array, reference in zip(lowered.run(feeds), expected, strict=True):
            np.testing.assert_allclose(array, reference, atol=1e-3)


def test_a_convolution_with_channels_last_is_that_with_channels_first():
    inputs = [IMAGE.transpose(0, 2, 3, 1).copy(), KERNEL.transpose(0, 2, 3, 1).copy(), reals(3)]
    proto, feeds = model_of("NhwcConv", inputs, {"pads": [1] * 4, "strides": [2, 2]}, 1)
    proto.graph.output[0].CopyFrom(value("output0", (1, 3, 3, 3)))
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4, strides=[2, 2])
    weights = {"w": KERNEL, "b": inputs[2]}
    reference = model(17, [node], [value("x", IMAGE.shape)], [value("y", (1, 3, 3, 3))], weights)
    [expected] = run(reference, x=IMAGE)
    [result] = OnnxModel(ir.from_proto(proto)).lower(13, standard=True).run(feeds)
    np.testing.assert_allclose(result, expected.transpose(0, 2, 3, 1), atol=1e-4)


def test_a_split_gelu_multiplies_halves():
    both = reals(2, 3, 8)
    proto, feeds = model_of("BiasSplitGelu", [both, np.zeros(8, np.float32)], {}, 1)
    proto.graph.output[0].CopyFrom(value("output0", (2, 3, 4)))
    plain, plain_feeds = model_of("Gelu", [both[..., 4:].copy()], {}, 1)
    [expected] = run(plain, **plain_feeds)
    for opset in (9, 13, 20):
        [result] = OnnxModel(ir.from_proto(proto)).lower(opset, standard=True).run(feeds)
        np.testing.assert_allclose(result, both[..., :4] * expected, atol=1e-5)


def gelu():
    node = helper.make_node("Gelu", ["x"], ["h"], domain=DOMAIN)
    nodes = [node, helper.make_node("Identity", ["h"], ["y"])]
    return model(17, nodes, [value("x", X.shape)], [value("y", X.shape)], imports=[(DOMAIN, 1)])


def test_targets_without_the_domain_get_standard_operators():
    source = OnnxModel(ir.from_proto(gelu()))
    assert DOMAIN not in source.lower(target="openvino").model.graph.opset_imports
    assert operators(source.lower(13, target="onnxruntime").model_proto) == ["Gelu"]
    assert operators(source.lower(13).model_proto) == ["Gelu"]


def test_a_users_function_comes_first():
    registry = default_registry.fork()

    @onnx_symbolic("com.microsoft::Gelu", registry=registry)
    def negated(g, X):
        return g.op("Neg", X)

    lowered = OnnxModel(ir.from_proto(gelu())).lower(13, standard=True, registry=registry)
    assert operators(lowered.model_proto) == ["Neg"]


def test_what_has_no_standard_form_is_named():
    attention = model_of("Attention", [X, *PROJECTION], {"num_heads": 2, "do_rotary": 1}, 1)[0]
    with pytest.raises(UnsupportedOperatorsError, match="'do_rotary' is not supported"):
        OnnxModel(ir.from_proto(attention)).lower(13, standard=True)
    unknown = helper.make_node("Inverse", ["x"], ["y"], domain=DOMAIN)
    tensors = [value("x", (2, 2))], [value("y", (2, 2), TensorProto.FLOAT)]
    source = OnnxModel(ir.from_proto(model(17, [unknown], *tensors, imports=[(DOMAIN, 1)])))
    with pytest.warns(
        UserWarning, match="no function for these operators of com.microsoft, which stay: Inverse"
    ):
        assert operators(source.lower(13, standard=True).model_proto) == ["Inverse"]
    with pytest.raises(TargetError, match="its domain is not supported"):
        source.lower(target="openvino")


def test_weights_in_the_layout_of_one_machine_are_refused_with_the_remedy():
    domain = "com.microsoft.nchwc"
    reorder = helper.make_node("ReorderInput", ["x"], ["h"], domain=domain)
    back = helper.make_node("ReorderOutput", ["h"], ["y"], domain=domain, channels=16)
    image = (1, 16, 4, 4)
    proto = model(17, [reorder, back], [value("x", image)], [value("y", image)], imports=[(domain, 1)])
    source = OnnxModel(ir.from_proto(proto))
    with pytest.warns(UserWarning, match="nchwc stay: .* ORT_ENABLE_EXTENDED"):
        source.lower(13, standard=True)
    with pytest.raises(TargetError, match="its domain is not supported; .* ORT_ENABLE_EXTENDED"):
        source.lower(target="openvino")
