"""Operands that TensorFlow computes at run time, and that ONNX has as attributes or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import opsetta.symbolics
from opsetta.exporter.lowering.source_dialect import lower
from opsetta.registration import UNSHAPED, default_registry
from opsetta.registration.arguments import source_node

from .checks import run

FLOAT, INT32 = ir.DataType.FLOAT, ir.DataType.INT32
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
OPSETS = (9, 13, 23)


def result_of(
    op: str,
    operands: dict[str, Any],
    opset: int,
    *,
    sizes_known: bool = True,
    unknown_ranks: tuple[str, ...] = (),
    **attributes: Any,
):
    """The result of a node whose operands are inputs of the graph; None is an absent operand."""
    values, feed = {}, {}
    for name, operand in operands.items():
        array = np.asarray(operand)
        array = array if array.dtype == np.float32 else array.astype(np.int32)
        sizes = array.shape if sizes_known or array.dtype == np.int32 else [None] * array.ndim
        dtype = FLOAT if array.dtype == np.float32 else INT32
        values[name] = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(sizes))
        if name in unknown_ranks:
            values[name].shape = None
        feed[name] = array
    result = ir.Value(name="result", type=ir.TensorType(FLOAT))
    node = source_node(f"tf::{op}", {**values, **attributes}, outputs=[result])
    graph = ir.Graph(list(values.values()), [result], nodes=[node], name="graph")
    model = lower(
        ir.Model(graph, ir_version=10, metadata_props={UNSHAPED: "true"}), opset, default_registry
    ).model
    return run(ir.to_proto(model), feed)[0]


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("axis", [0, 1, 3, -1, -4])
def test_a_new_axis(axis, opset):
    found = result_of("ExpandDims", {"input": X, "dim": axis}, opset, sizes_known=False)
    np.testing.assert_array_equal(found, np.expand_dims(X, axis))


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_an_order_of_axes(order, opset):
    found = result_of("Transpose", {"x": X, "perm": order}, opset, sizes_known=False)
    np.testing.assert_array_equal(found, X.transpose(order))


STRIDES = [
    ((0, 0), (2, 3), (1, 2), {}),
    ((1, 2), (-9, 0), (-1, -1), {}),
    ((1, 2), (0, 1), (-1, -2), {"begin_mask": 3, "end_mask": 3}),
    ((1, 3), (2, 0), (1, -2), {"shrink_axis_mask": 1, "end_mask": 2}),
]


@pytest.mark.parametrize("opset", [13, 23])
@pytest.mark.parametrize(("begin", "end", "strides", "masks"), STRIDES)
def test_steps_of_a_slice(begin, end, strides, masks, opset):
    operands = {"input": X, "begin": begin, "end": end, "strides": strides}
    index: list[Any] = []
    for axis, bounds in enumerate(zip(begin, end, strides, strict=True)):
        first = None if masks.get("begin_mask", 0) >> axis & 1 else bounds[0]
        last = None if masks.get("end_mask", 0) >> axis & 1 else bounds[1]
        is_removed = masks.get("shrink_axis_mask", 0) >> axis & 1
        index.append(bounds[0] if is_removed else slice(first, last, bounds[2]))
    found = result_of("StridedSlice", operands, opset, sizes_known=False, **masks)
    np.testing.assert_array_equal(found, X[tuple(index)])


def test_steps_of_a_slice_are_refused_before_opset_10():
    operands = {"input": X, "begin": [0], "end": [2], "strides": [1]}
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="opset 10"):
        result_of("StridedSlice", operands, 9)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("k", [0, 2, -1, [1]])
def test_the_number_of_a_diagonal(k, opset):
    offset = int(np.ravel(k)[0])
    operands = {"input": X, "k": k, "padding_value": np.float32(0)}
    diagonal = result_of("MatrixDiagPartV3", operands, opset, sizes_known=False)
    np.testing.assert_array_equal(diagonal, X.diagonal(offset, 1, 2))
    length, filled = diagonal.shape[-1], X.copy()
    rows = np.arange(length) + max(-offset, 0)
    columns = np.arange(length) + max(offset, 0)
    filled[:, rows, columns] = -diagonal
    operands = {"input": X, "diagonal": -diagonal, "k": k}
    np.testing.assert_array_equal(result_of("MatrixSetDiagV3", operands, opset, sizes_known=False), filled)
    # A size of -1 is chosen by the operator: the smallest that fits, or a square if both are -1.
    side = length + abs(offset)
    for shape, sizes in (
        ((3, 4), (3, 4)),
        ((-1, -1), (side, side)),
        ((-1, 4), (length + max(-offset, 0), 4)),
    ):
        matrix = np.full((2, *sizes), 7, np.float32)
        matrix[:, rows, columns] = diagonal
        operands = {"diagonal": diagonal, "k": k, "num_rows": shape[0], "num_cols": shape[1]}
        operands["padding_value"] = np.float32(7)
        found = result_of("MatrixDiagV3", operands, opset, sizes_known=False)
        np.testing.assert_array_equal(found, matrix)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("ids", [[1, 0], [[2, -1, 0], [0, 2, 2]]])
def test_segments_of_rows_of_unknown_rank(ids, opset):
    operands = {"data": X, "segment_ids": ids, "num_segments": 3}
    found = result_of("UnsortedSegmentSum", operands, opset, unknown_ranks=("data",))
    expected = np.zeros((3, *X.shape[np.ndim(ids) :]), np.float32)
    for index, number in np.ndenumerate(ids):
        if number >= 0:
            expected[number] += X[index]
    np.testing.assert_allclose(found, expected)
