"""Sizes and numbers that the texts of operators exclude are found; those that they allow are not."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from opsetta.registration.validity.node_check import invalid_nodes

from .test_node_check import model_of

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
GRU = {"x": [5, 2, 3], "w": [1, 12, 3], "r": [1, 12, 4]}
ATTENTION = {"q": [2, 4, 12], "k": [2, 6, 6], "v": [2, 6, 10]}
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
CACHES = {"x": [2, 3, 5, 8], "c": [2, 5, 3], "s": [2, 5, 3]}
IMAGE = {"x": [2, 6, 9, 9]}
VALID = {
    "BatchNormalization": (15, "x s s s s", {"x": [2, 6, 9], "s": [6]}, {}),
    "GroupNormalization": (21, "x s s", {"x": [2, 6, 9], "s": [6]}, {"num_groups": 3}),
    "InstanceNormalization": (13, "x s s", {"x": [2, 6, 9], "s": [6]}, {}),
    "LayerNormalization": (17, "x s", {"x": [2, 6, 9], "s": [1, 9]}, {"axis": 1}),
    "RMSNormalization": (23, "x s", {"x": [2, 6, 9], "s": [9]}, {}),
    "Conv": (13, "x w b", {**IMAGE, "w": [4, 3, 2, 2], "b": [4]}, {"group": 2}),
    "ConvTranspose": (13, "x w b", {**IMAGE, "w": [6, 2, 3, 3], "b": [4]}, {"group": 2}),
    "DeformConv": (
        19,
        "x w o",
        {**IMAGE, "w": [4, 3, 2, 2], "o": [2, 16, 8, 8]},
        {"group": 2, "offset_group": 2},
    ),
    "Gemm": (13, "x w c", {"x": [3, 2], "w": [3, 4], "c": [4]}, {"transA": 1}),
    "MatMul": (13, "x w", {"x": [5, 2, 3], "w": [3, 4]}, {}),
    "GRU": (14, "x w r", GRU, {"hidden_size": 4}),
    "LSTM": (14, "x w r", {"x": [5, 2, 3], "w": [2, 16, 3], "r": [2, 16, 4]}, {"direction": "bidirectional"}),
    "Attention": (23, "q k v", ATTENTION, HEADS),
    "RotaryEmbedding": (23, "x c s", CACHES, {"rotary_embedding_dim": 6}),
    "GridSample": (16, "x g", {**IMAGE, "g": [2, 4, 5, 2]}, {}),
    "MaxRoiPool": (13, "x r", {**IMAGE, "r": [7, 5]}, {"pooled_shape": [2, 2]}),
    "ReverseSequence": (13, "x l", {"x": [5, 2, 3], "l": ([2], INT64)}, {}),
    "NonMaxSuppression": (13, "x s", {"x": [1, 9, 4], "s": [1, 3, 9]}, {}),
    "NegativeLogLikelihoodLoss": (13, "x t", {"x": [4, 3, 7], "t": ([4, 7], INT64)}, {}),
    "GatherND": (13, "x i", {"x": [2, 6, 9], "i": ([2, 4, 2], INT64)}, {"batch_dims": 1}),
    "ScatterND": (13, "x i u", {"x": [2, 6, 9], "i": ([4, 2], INT64), "u": [4, 9]}, {}),
    "Split": (18, "x", {"x": [6, 2]}, {"num_outputs": 1}),
    "Pad": (13, "x p", {"x": [2, 6], "p": ([4], INT64)}, {}),
    "Tile": (13, "x r", {"x": [2, 6], "r": ([2], INT64)}, {}),
    "DepthToSpace": (13, "x", {"x": [1, 8, 2, 2]}, {"blocksize": 2}),
    "SpaceToDepth": (13, "x", {"x": [1, 8, 2, 4]}, {"blocksize": 2}),
    "Det": (13, "x", {"x": [4, 3, 3]}, {}),
    "MaxPool": (13, "x", IMAGE, {"kernel_shape": [2, 2], "strides": [1, 2]}),
    "LRN": (13, "x", IMAGE, {"size": 3}),
}
WRONG = [
    ("BatchNormalization", {"s": [5]}, {}, "size 5 at axis 0, not 6"),
    ("GroupNormalization", {"s": [3]}, {}, "size 3 at axis 0, not 6"),
    ("GroupNormalization", {}, {"num_groups": 4}, "no multiple of 4"),
    ("GroupNormalization", {}, {"num_groups": 0}, "1 or more, not 0"),
    ("InstanceNormalization", {"s": [9]}, {}, "not 6"),
    ("LayerNormalization", {"s": [6, 8]}, {}, "size 8"),
    ("LayerNormalization", {"s": [1, 2, 6, 9]}, {}, "rank 4"),
    ("RMSNormalization", {"s": [2]}, {}, "not 9"),
    ("Conv", {"w": [4, 6, 2, 2]}, {}, "size 6 at axis 1, not 3"),
    ("Conv", {}, {"group": 4}, "no multiple of 4"),
    ("Conv", {"b": [6]}, {}, "not 4"),
    ("Conv", {}, {"kernel_shape": [3, 2]}, "not 3"),
    ("Conv", {}, {"strides": [1, 0]}, "strides must be 1 or more"),
    ("ConvTranspose", {"w": [4, 2, 3, 3]}, {}, "size 4 at axis 0, not 6"),
    ("ConvTranspose", {"b": [2]}, {}, "not 4"),
    ("DeformConv", {"o": [2, 8, 8, 8]}, {}, "not 16"),
    ("DeformConv", {}, {"offset_group": 0}, "offset_group must be 1 or more"),
    ("Gemm", {"w": [2, 4]}, {}, "size 2 at axis 0, not 3"),
    ("Gemm", {"c": [3]}, {}, "not 4"),
    ("MatMul", {"w": [5, 2, 4]}, {}, "size 2 at axis 1, not 3"),
    ("GRU", {"w": [1, 16, 3]}, {}, "size 16 at axis 1, not 12"),
    ("GRU", {}, {"direction": "bidirectional"}, "size 1 at axis 0, not 2"),
    ("GRU", {}, {"hidden_size": 3}, "not 9"),
    ("GRU", {}, {"hidden_size": -1}, "hidden_size must be 1 or more"),
    ("LSTM", {"r": [2, 12, 4]}, {}, "size 12"),
    ("Attention", {"v": [2, 5, 10]}, {}, "size 5 at axis 1, not 6"),
    ("Attention", {"k": [1, 6, 6]}, {}, "size 1 at axis 0, not 2"),
    ("Attention", {"k": [2, 6, 8]}, {}, "size 8 at axis 2, not 6"),
    ("Attention", {}, {"kv_num_heads": 3}, "no multiple of 3"),
    ("Attention", {}, {"q_num_heads": None}, "need the attributes"),
    ("RotaryEmbedding", {}, {"rotary_embedding_dim": 7}, "rotates 7"),
    ("RotaryEmbedding", {}, {"rotary_embedding_dim": 10}, "rotates 10"),
    ("RotaryEmbedding", {"c": [2, 5, 4]}, {}, "size 4"),
    ("RotaryEmbedding", {"s": [9, 3]}, {}, "rank 2, not 3"),
    ("GridSample", {"g": [1, 4, 5, 2]}, {}, "not 2"),
    ("GridSample", {"g": [2, 4, 5, 3]}, {}, "size 3 at axis -1, not 2"),
    ("MaxRoiPool", {"r": [7, 4]}, {}, "not 5"),
    ("ReverseSequence", {"l": ([5], INT64)}, {}, "size 5"),
    ("ReverseSequence", {}, {"batch_axis": 0}, "not 0 and 1"),
    ("NonMaxSuppression", {"s": [1, 3, 8]}, {}, "size 8"),
    ("NegativeLogLikelihoodLoss", {"t": ([4, 6], INT64)}, {}, "size 6 at axis 1, not 7"),
    ("GatherND", {}, {"batch_dims": -9}, "batch_dims must be 0 or more"),
    ("GatherND", {}, {"batch_dims": 3}, "rank 3"),
    ("GatherND", {"i": ([2, 4, 3], INT64)}, {}, "3 numbers for 2 axes"),
    ("GatherND", {"i": ([3, 4, 2], INT64)}, {}, "size 3 at axis 0, not 2"),
    ("ScatterND", {"u": [3, 9]}, {}, "size 3 at axis 0, not 4"),
    ("ScatterND", {"u": [9]}, {}, "rank 1, not 2"),
    ("Split", {}, {"num_outputs": 3}, "it has 1 outputs"),
    ("Pad", {"p": ([2], INT64)}, {}, "size 2 at axis 0, not 4"),
    ("Tile", {"r": ([3], INT64)}, {}, "size 3 at axis 0, not 2"),
    ("DepthToSpace", {"x": [1, 6, 2, 2]}, {}, "no multiple of 4"),
    ("SpaceToDepth", {"x": [1, 8, 3, 4]}, {}, "no multiple of 2"),
    ("Det", {"x": [3, 2]}, {}, "not 3"),
    ("MaxPool", {}, {"kernel_shape": [0, 2]}, "kernel_shape must be 1 or more"),
    ("LRN", {}, {"size": 0}, "size must be 1 or more"),
]
COL2IM = [
    ([2, 24, 16], [5, 5], [2, 2], {}, ""),
    ([2, 24, 9], [5, 5], [2, 2], {"strides": [2, 2], "pads": [0, 0, 1, 1]}, ""),
    ([2, 24, 12], [5, 5], [2, 2], {}, "size 12 at axis 2, not 16"),
    ([2, 23, 16], [5, 5], [2, 2], {}, "no multiple of 4"),
    ([2, 24, 16], [5, 5], [2], {}, "size 1 at axis 0, not 2"),
    ([2, 24, 16], [5, 0], [2, 2], {}, "below 1"),
    ([2, 24, 16], [5, 5], [2, 9], {}, "no multiple of 18"),
    ([2, 24, 16], [5, 5], [2, 2], {"dilations": [9, 1]}, "larger than its image"),
    ([2, 24, 16], [5, 5], [2, 2], {"strides": [0, 1]}, "strides must be 1 or more"),
]
MANY = "does not have that many"
RESHAPES = [
    ([2, 3, 4], [4, 6], {}, ""),
    ([2, 3, 4], [0, -1], {}, ""),
    ([None, 3, 4], [0, 12], {}, ""),
    ([None, 3, 4], [6, 10], {}, ""),
    ([None, 3, None], [7, -1], {}, ""),
    ([0, 3], [-1, 5], {}, ""),
    ([0, 3], [3, 0], {"allowzero": 1}, ""),
    ([2, 3, 4], [5, 5], {}, MANY),
    ([2, 3, 4], [5, -1], {}, MANY),
    ([None, 3, 4], [0, 5], {}, MANY),
    ([None, 3, 4], [2, 5], {}, MANY),
    ([2, 3, 4], [-1, -1], {}, "more than one"),
    ([6], [6, 0], {}, "rank 1"),
]
GRIDS = [([2, 2, 3], [2, 3, 4, 5], ""), ([2, 3, 4], [2, 3, 4, 5, 6], ""), ([2, 3, 4], [2, 3, 4, 5], "not 2")]
GRIDS += [
    ([2, 2, 3], [2, 3, -4, 5], "below 1"),
    ([2, 2, 3], [3, 3, 4, 5], "not 3"),
    ([2, 2, 3], [2, 3], "2 numbers"),
]


def reasons(op_type, opset, inputs, shapes, attributes, constants=()):
    stated = {name: item for name, item in attributes.items() if item is not None}
    made = helper.make_node(op_type, inputs.split(), ["y"], **stated)
    return [found.reason for found in invalid_nodes(model_of(made, opset, shapes, constants))]


@pytest.mark.parametrize("op_type", VALID)
def test_sizes_that_fit_are_valid(op_type):
    opset, inputs, shapes, attributes = VALID[op_type]
    assert not reasons(op_type, opset, inputs, shapes, attributes)
    unknown = {
        name: ([None] * len(item[0]), item[1]) if isinstance(item, tuple) else [None] * len(item)
        for name, item in shapes.items()
    }
    assert not reasons(op_type, opset, inputs, unknown, attributes)


@pytest.mark.parametrize(("op_type", "changed", "numbers", "reason"), WRONG)
def test_sizes_and_numbers_that_the_text_excludes_are_found(op_type, changed, numbers, reason):
    opset, inputs, shapes, attributes = VALID[op_type]
    [found] = reasons(op_type, opset, inputs, shapes | changed, attributes | numbers)
    assert reason in found


@pytest.mark.parametrize(("columns", "image", "block", "attributes", "reason"), COL2IM)
def test_columns_fit_the_image(columns, image, block, attributes, reason):
    found = reasons("Col2Im", 18, "x i b", {"x": columns}, attributes, [("i", image), ("b", block)])
    assert [reason in text for text in found] == ([True] if reason else [])


@pytest.mark.parametrize(("data", "shape", "attributes", "reason"), RESHAPES)
def test_constant_shapes_hold_the_elements(data, shape, attributes, reason):
    found = reasons("Reshape", 14, "x s", {"x": data}, attributes, [("s", shape)])
    assert [reason in text for text in found] == ([True] if reason else [])


@pytest.mark.parametrize(("theta", "size", "reason"), GRIDS)
def test_grids_fit_their_transformations(theta, size, reason):
    found = reasons("AffineGrid", 20, "x s", {"x": theta}, {}, [("s", size)])
    assert [reason in text for text in found] == ([True] if reason else [])


def test_numbers_of_heads_are_for_packed_heads():
    shapes = {name: [2, 3, 5, 4] for name in "qkv"}
    assert not reasons("Attention", 24, "q k v", shapes, HEADS)
    assert "rank 3" in reasons("Attention", 25, "q k v", shapes, HEADS)[0]
    assert not reasons("Attention", 25, "q k v", shapes, {})


def test_a_batch_normalization_of_one_axis_or_of_places_is_not_checked():
    assert not reasons("BatchNormalization", 15, "x s s s s", {"x": [6], "s": [1]}, {})
    assert not reasons("BatchNormalization", 7, "x s s s s", {"x": [2, 6, 9], "s": [None]}, {"spatial": 0})


def invalid_results(op_type, opset, inputs, nodes):
    """The results of the invalid nodes of a graph of several nodes of one operator."""
    declared, members = [], []
    for result, (shapes, attributes) in nodes.items():
        declared += [
            helper.make_tensor_value_info(
                f"{result}_{name}", *(reversed(item) if isinstance(item, tuple) else (FLOAT, item))
            )
            for name, item in shapes.items()
        ]
        names = [f"{result}_{name}" for name in inputs.split()]
        stated = {name: item for name, item in attributes.items() if item is not None}
        members.append(helper.make_node(op_type, names, [result], **stated))
    graph = helper.make_graph(members, "graph", declared, [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return [node.result for node in invalid_nodes(ir.from_proto(model))]


@pytest.mark.parametrize(("op_type", "changed", "numbers", "reason"), WRONG)
def test_a_valid_node_before_hides_no_wrong_sizes(op_type, changed, numbers, reason):
    opset, inputs, shapes, attributes = VALID[op_type]
    right, wrong = (shapes, attributes), (shapes | changed, attributes | numbers)
    nodes = {"right": right, "wrong": wrong, "again": wrong, "last": right}
    assert invalid_results(op_type, opset, inputs, nodes) == ["wrong", "again"]


def test_constants_of_equal_sizes_are_read_for_each_node():
    declared = [helper.make_tensor_value_info("c", FLOAT, [1, 12, 16])]
    members = [
        helper.make_node("Col2Im", ["c", image, "block"], [f"of_{image}"]) for image in ("near", "far")
    ]
    constants = {"near": [5, 5], "far": [5, 6], "block": [2, 2]}
    stored = [numpy_helper.from_array(np.array(data), name) for name, data in constants.items()]
    graph = helper.make_graph(members, "graph", declared, [], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    assert [node.result for node in invalid_nodes(ir.from_proto(model))] == ["of_far"]
