"""The weights of graphs: their names, and the meaning of their dimensions."""

import pathlib

import numpy as np
import pytest
from google.protobuf import text_format

from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.capture.tensorflow.weights import weights_of_checkpoint, weights_of_graph

DATA = pathlib.Path(__file__).parents[3] / "data" / "tensorflow"
ADAM = DATA / "freezing" / "adam"


def node(name, op, *inputs, **attributes):
    read = " ".join(f'input: "{text}"' for text in inputs)
    held = " ".join(f'attr {{ key: "{key}" value {{ {value} }} }}' for key, value in attributes.items())
    return f'node {{ name: "{name}" op: "{op}" {read} {held} }}\n'


def weight(*shape, kind="DT_FLOAT"):
    sizes = " ".join(f"dim {{ size: {size} }}" for size in shape)
    return node("w", "Const", value=f"tensor {{ dtype: {kind} tensor_shape {{ {sizes} }} }}")


def weights_of(text):
    return {w.name: w for w in weights_of_graph(text_format.Parse(text, message_type("GraphDef")()))}


READERS = [
    ("Conv2D", 1, (3, 5, 2, 4), "h w in out", "out in h w", (4, 2, 3, 5)),
    ("Conv3D", 1, (1, 3, 5, 2, 4), "d h w in out", "out in d h w", (4, 2, 1, 3, 5)),
    ("DepthwiseConv2dNative", 1, (3, 5, 2, 4), "h w in mult", "in*mult 1 h w", (8, 1, 3, 5)),
    ("Conv2DBackpropInput", 1, (3, 5, 4, 2), "h w out in", "in out h w", (2, 4, 3, 5)),
    ("Conv3DBackpropInputV2", 1, (1, 3, 5, 4, 2), "d h w out in", "in out d h w", (2, 4, 1, 3, 5)),
    ("MatMul", 1, (2, 4), "in out", "in out", (2, 4)),
    ("MatMul", 0, (2, 4), "out in", "out in", (2, 4)),
    ("BatchMatMulV2", 1, (3, 2, 4), "batch in out", "batch in out", (3, 2, 4)),
    ("GatherV2", 0, (7, 3), "index features", "index features", (7, 3)),
    ("BiasAdd", 1, (4,), "out", "out", (4,)),
    ("FusedBatchNormV3", 3, (4,), "channels", "channels", (4,)),
    ("BlockLSTM", 4, (5, 12), "in+hidden 4*hidden", "in+hidden 4*hidden", (5, 12)),
]


@pytest.mark.parametrize(("op", "index", "shape", "names", "in_onnx", "onnx_shape"), READERS)
def test_the_operator_tells_the_dimensions(op, index, shape, names, in_onnx, onnx_shape):
    inputs = ["x"] * 5
    inputs[index] = "same"
    text = node("x", "Placeholder") + weight(*shape) + node("same", "Identity", "w") + node("y", op, *inputs)
    layout = weights_of(text)["w"].layout
    assert layout.operator == op
    assert [name.replace(" ", "") for name in layout.dimensions] == names.split()
    assert [name.replace(" ", "") for name in layout.in_onnx()] == in_onnx.split()
    assert layout.onnx_shape(shape) == onnx_shape
    array = np.arange(np.prod(shape)).reshape(shape)
    assert layout.to_onnx(array).shape == onnx_shape
    assert layout.onnx_shape([-1] * len(shape)).count(1) == onnx_shape.count(1) - shape.count(1)


def test_the_order_of_onnx_is_that_of_the_elements():
    text = weight(3, 5, 2, 4) + node("y", "DepthwiseConv2dNative", "x", "w")
    layout = weights_of(text)["w"].layout
    array = np.arange(120).reshape(3, 5, 2, 4)
    for channel in range(2):
        for multiple in range(4):
            moved = layout.to_onnx(array)[channel * 4 + multiple, 0]
            assert (moved == array[:, :, channel, multiple]).all()


def test_transposed_products_exchange_the_dimensions():
    transposed = node("y", "MatMul", "x", "w", transpose_b="b: true")
    assert weights_of(weight(4, 2) + transposed)["w"].layout.dimensions == ("out", "in")


def test_what_stands_between_is_looked_through():
    axis = "tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 }"
    text = (
        weight(3, 2, 4)
        + node("a", "Const", value=axis)
        + node("c", "Cast", "w")
        + node("e", "ExpandDims", "c", "a")
    )
    layout = weights_of(text + node("y", "Conv2D", "x", "e"))["w"].layout
    assert layout.dimensions == ("w", "in", "out")
    assert layout.onnx_shape((3, 2, 4)) == (4, 2, 3)
    shape = "tensor { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 2 int_val: -1 }"
    same = node("s", "Const", value=shape) + node("r", "Reshape", "w", "s") + node("y", "MatMul", "x", "r")
    assert weights_of(weight(2, 4) + same)["w"].layout.dimensions == ("in", "out")
    assert weights_of(weight(4, 2) + same)["w"].layout is None
    einsum = node("y", "Einsum", "x", "w", equation='s: "abc,cde->abde"')
    assert weights_of(weight(4, 2, 3) + einsum)["w"].layout.dimensions == ("c", "d", "e")


def test_numbers_of_shapes_are_no_weights_unless_they_are_read_as_ones():
    assert weights_of(weight(2, 4, kind="DT_INT32") + node("y", "Reshape", "x", "w")) == {}
    assert weights_of(weight()) == {}
    assert weights_of(weight(2, 4, kind="DT_QINT8") + node("y", "MatMul", "x", "w"))["w"].dtype == "int8"
    assert weights_of(weight(2, 4))["w"].layout is None


def test_weights_of_a_graph_with_its_checkpoint():
    found = {w.name: w for w in weights_of_graph(ADAM / "graph.pb", ADAM, "prob")}
    variables = np.load(ADAM / "vars.npz")
    assert {name: w.layout.dimensions for name, w in found.items()} == {
        "conv/w": ("h", "w", "in", "out"),
        "conv/b": ("out",),
        **dict.fromkeys(["conv/gamma", "conv/beta", "conv/mean", "conv/var"], ("channels",)),
        **dict.fromkeys(["fc/w/part_0", "fc/w/part_1"], ("in", "out")),
    }
    for name, w in found.items():
        assert w.read().tobytes() == variables[name].tobytes()
    everything = {w.name: w for w in weights_of_graph(ADAM / "graph.pb", ADAM)}
    assert set(everything) == set(variables.files)
    without = {w.name: w for w in weights_of_graph(ADAM / "graph.pb")}
    assert {w.read for w in without.values()} == {None}
    assert [w.shape for w in without.values()] == [w.shape for w in everything.values()]


def test_weights_are_found_in_functions():
    found = weights_of_graph(DATA / "freezing" / "saved_model")
    layouts = {w.layout.operator for w in found if w.layout is not None}
    assert layouts == {"ResourceGather", "MatMul"}
    assert [w.dtype for w in found] == ["int32", *["float32"] * 3]


def test_weights_of_a_checkpoint_alone():
    found = {w.name: w for w in weights_of_checkpoint(DATA / "checkpoints" / "obj")}
    assert "_CHECKPOINTABLE_OBJECT_GRAPH" not in found
    assert found["bf16/.ATTRIBUTES/VARIABLE_VALUE"].dtype == "bfloat16"
