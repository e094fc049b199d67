"""Pooling with `ceil_mode` whose last window would begin in the padding: files state the runtime's sizes."""

import numpy as np
import onnx
import pytest
from onnx import helper

from opsetta import OpsettaError

from ..opsets import HIGHEST
from .test_conversion import converted, run

FLOAT = onnx.TensorProto.FLOAT
SEQUENCE = {"kernel_shape": [2], "strides": [3], "pads": [1, 1]}
IMAGE = {"kernel_shape": [2, 2], "strides": [4, 4], "pads": [1, 1, 1, 1], "dilations": [2, 2]}
VOLUME = {"kernel_shape": [2, 2, 2], "strides": [3, 3, 3], "pads": [1, 1, 1, 1, 1, 1]}
POOLINGS = [
    ("MaxPool", 10, (1, 2, 7), SEQUENCE),
    ("AveragePool", 12, (1, 2, 7), SEQUENCE | {"count_include_pad": 1}),
    ("MaxPool", 12, (1, 1, 7, 8), IMAGE),
    ("AveragePool", 19, (1, 1, 7, 8), IMAGE),
    ("LpPool", 18, (1, 1, 4, 4), {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [1, 1, 1, 1]}),
    ("AveragePool", 11, (1, 1, 4, 4, 5), VOLUME),
    ("MaxPool", 22, (1, 1, 4, 4, 5), VOLUME),
]


@pytest.mark.parametrize(("op_type", "opset", "shape", "attributes"), POOLINGS)
def test_files_state_the_windows_that_runtimes_count(op_type, opset, shape, attributes):
    nodes = [
        helper.make_node(op_type, ["x"], ["pooled"], ceil_mode=1, **attributes),
        helper.make_node("Relu", ["pooled"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, FLOAT, sizes) for name, sizes in (("x", shape), ("y", None)))
    graph = helper.make_graph(nodes, "graph", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    [expected] = run(proto, x=array)
    # Below 22 onnx's inference states one window too many.
    stated = onnx.shape_inference.infer_shapes(proto)
    for target in {7, 9, 13, 18, 22, HIGHEST} - {opset}:
        for file in (proto, stated):
            new = converted(file, target)
            sizes = [dim.dim_value for dim in new.graph.output[0].type.tensor_type.shape.dim]
            assert sizes == list(expected.shape), f"at {target}"
        np.testing.assert_allclose(run(new, x=array)[0], expected, rtol=1e-5, err_msg=f"at {target}")


def test_windows_of_unknown_sizes_need_no_composition():
    node = helper.make_node("AveragePool", ["x"], ["y"], ceil_mode=1, **SEQUENCE)
    x, y = (
        helper.make_tensor_value_info(name, FLOAT, [1, 2, size]) for name, size in (("x", "n"), ("y", "m"))
    )
    graph = helper.make_graph([node], "graph", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    new = converted(proto, 7)
    assert [node.op_type for node in new.graph.node] == ["AveragePool"]
    for size in (6, 7, 8):
        array = np.arange(2 * size, dtype=np.float32).reshape(1, 2, size)
        np.testing.assert_allclose(run(new, x=array)[0], run(proto, x=array)[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "attributes"),
    [
        ("AveragePool", ["x", "x"], ["y"], {}),
        ("MaxPool", ["x"], ["y", "z", "w"], {}),
        ("LpPool", ["x"], ["y"], {"alpha": 1.0}),
    ],
)
def test_node_that_its_schema_refuses_is_an_error_of_the_file(op_type, inputs, outputs, attributes):
    node = helper.make_node(op_type, inputs, outputs, ceil_mode=1, **SEQUENCE, **attributes)
    infos = [helper.make_tensor_value_info(name, FLOAT, [1, 2, 7]) for name in ("x", "y")]
    graph = helper.make_graph([node], "graph", infos[:1], infos[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    with pytest.raises(OpsettaError, match="not valid at its opset 22"):
        converted(proto, 13)
