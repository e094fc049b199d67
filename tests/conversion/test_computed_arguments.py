"""Arguments that are computed, and sizes that are unknown, where the target has them as constants only."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from opsetta import UnsupportedOperatorsError

from .test_conversion import converted, model, run, value

INT64 = TensorProto.INT64
LENGTH = 7


@pytest.mark.parametrize("opset", [7, pytest.param(9, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_bounds_of_a_slice_are_computed(step, opset):
    """Below 10, where the bounds of a Slice are attributes."""
    nodes = [helper.make_node("Slice", ["x", "start", "end", "axes", "steps"], ["y"])]
    bounds = [value(name, (1,), INT64) for name in ("start", "end")]
    stored = {"axes": np.array([1]), "steps": np.array([step])}
    proto = model(13, nodes, [value("x", (2, LENGTH)), *bounds], [value("y", (2, None))], stored)
    found = converted(proto, opset)
    x = np.arange(2 * LENGTH, dtype=np.float32).reshape(2, LENGTH)
    edges = [0, 2, LENGTH - 1, LENGTH, LENGTH + 3, 2**62, -1, -LENGTH, -LENGTH - 1, -LENGTH - 4, -(2**62)]
    for start in edges:
        for end in edges:
            [result] = run(found, x=x, start=np.array([start]), end=np.array([end]))
            np.testing.assert_array_equal(result, x[:, start:end:step], err_msg=f"{start}:{end}:{step}")


@pytest.mark.parametrize("opset", [9, 13, 19])
@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_of_a_quantized_tensor_of_unknown_size(axis, opset):
    """Below 21, which has no `block_size`."""
    block, shape, scales_shape = 4, [3, 3], [3, 3]
    shape[axis], scales_shape[axis] = 10, 3
    free = [f"free{i}" if i == axis else size for i, size in enumerate(shape)]
    node = helper.make_node("DequantizeLinear", ["x", "scale"], ["y"], axis=axis, block_size=block)
    inputs = [value("x", free, TensorProto.INT8), value("scale", scales_shape)]
    found = converted(model(21, [node], inputs, [value("y", free)], ir_version=10), opset)
    generator = np.random.default_rng(0)
    x = generator.integers(-128, 128, shape, dtype=np.int8)
    scale = generator.uniform(0.5, 2, scales_shape).astype(np.float32)
    expected = x * np.repeat(scale, block, axis).take(np.arange(10), axis)
    np.testing.assert_allclose(run(found, x=x, scale=scale)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("opset", [7, 13])
@pytest.mark.parametrize(("batch", "length"), [(2, 3), (1, 1), (0, 3)])
def test_sizes_of_a_reshape_are_computed_where_zeros_stand_for_themselves(batch, length, opset):
    """Below 14, which has no `allowzero`."""
    node = helper.make_node("Reshape", ["x", "sizes"], ["y"], allowzero=1)
    inputs = [value("x", ("rows", 8)), value("sizes", (4,), INT64)]
    found = converted(model(14, [node], inputs, [value("y", (None,) * 4)]), opset)
    x = np.arange(batch * length * 8, dtype=np.float32).reshape(batch * length, 8)
    sizes = np.array([batch, length, 2, 4])
    np.testing.assert_array_equal(run(found, x=x, sizes=sizes)[0], x.reshape(sizes))


def test_computed_sizes_of_an_empty_tensor_are_refused():
    node = helper.make_node("Reshape", ["x", "sizes"], ["y"], allowzero=1)
    inputs = [value("x", (0, 3)), value("sizes", (2,), INT64)]
    with pytest.raises(UnsupportedOperatorsError, match="allowzero=1 with a computed shape"):
        converted(model(14, [node], inputs, [value("y", (None, None))]), 13)
