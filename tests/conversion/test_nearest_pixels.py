"""The pixels that Resize of opset 10 and Upsample take: those that onnxruntime takes at their own opset."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from opsetta.exporter.lowering.conversion import convert

from ..onnxruntime_sessions import run_onnxruntime
from ..opsets import is_full_run

PAIRS = [(size, count) for size in range(2, 17) for count in range(1, 17)][:: 1 if is_full_run() else 7]
GROWING = [(size, count) for size, count in PAIRS if count >= size]


def scale_of(size, count):
    """The least FLOAT at or above the quotient from which onnxruntime computes the size of the result."""
    scale = np.float32(count / size)
    while int(np.float32(size) * scale) < count:
        scale = np.nextafter(scale, np.float32(np.inf))
    return scale


def resizing(op_type, opset, pairs, is_constant):
    """A node for each pair of sizes; of ranks 1 to 5, some with an axis from the second size to the first."""
    inputs, outputs, nodes, stored, feeds = [], [], [], [], {}
    for size, count in pairs:
        rank = 4 if op_type == "Upsample" else 1 + (size + count) % 5
        shape, scales = [1] * rank, np.ones(rank, dtype=np.float32)
        shape[-1], scales[-1] = size, scale_of(size, count)
        if rank == 5 or (rank == 4 and op_type == "Resize"):
            shape[2], scales[2] = count, scale_of(count, size)
        x, s, y = (f"{kind}_{size}_{count}" for kind in ("x", "scales", "y"))
        inputs.append(helper.make_tensor_value_info(x, 1, shape))
        feeds[x] = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        if is_constant:
            stored.append(numpy_helper.from_array(scales, s))
        else:
            inputs.append(helper.make_tensor_value_info(s, 1, [rank]))
            feeds[s] = scales
        outputs.append(helper.make_tensor_value_info(y, 1, [None] * rank))
        nodes.append(helper.make_node(op_type, [x, s], [y], mode="nearest"))
    graph = helper.make_graph(nodes, "graph", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=5), feeds


def results(model, feeds):
    return run_onnxruntime(model, feeds, optimized=False)


@pytest.mark.parametrize(
    ("op_type", "opset", "pairs", "is_constant", "targets"),
    [
        ("Resize", 10, PAIRS, True, (7, 9, 11, 13, 18)),
        ("Resize", 10, [(2, 3), (3, 5), (7, 4), (16, 9), (9, 16), (5, 5)], False, (9, 11, 19)),
        ("Upsample", 9, GROWING, True, (7, 10, 11)),
    ],
)
def test_the_same_pixels_are_taken_after_conversion(op_type, opset, pairs, is_constant, targets):
    model, feeds = resizing(op_type, opset, pairs, is_constant)
    expected = results(model, feeds)
    for target in targets:
        converted = ir.to_proto(convert(ir.from_proto(model), target))
        for pair, one, other in zip(pairs, results(converted, feeds), expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"{pair} at {target}")
