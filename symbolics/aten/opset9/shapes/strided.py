"""Views by strides, and uninitialised tensors.

Strides refer to the storage of a tensor, which ONNX does not have: the tensor is assumed to be contiguous and
to start at its storage. The exporter refuses others.
"""

import math
from typing import Any

import numpy as np

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import Size, fold_size


def _positions(
    g: GraphContext, size: list[Size], stride: list[Size], storage_offset: Size | None
) -> tuple[Value, list[Size]]:
    """The position of each element of the view in the storage."""
    sizes, strides = [fold_size(g, number) for number in size], [fold_size(g, number) for number in stride]
    offset = 0 if storage_offset is None else fold_size(g, storage_offset)
    if all(isinstance(number, int) for number in (*sizes, *strides, offset)):
        g.reserve(*sizes)  # type: ignore[arg-type]
        positions = np.asarray(offset, dtype=np.int64)
        for count, step in zip(sizes, strides, strict=True):
            positions = positions[..., None] + np.arange(count) * step  # type: ignore[arg-type]
        return g.constant(positions), sizes
    total = g.constant(offset, DataType.INT64)
    for dim, (count, step) in enumerate(zip(sizes, strides, strict=True)):
        along = g.op("Mul", g.call("sym::range", start=0, end=count), g.constant(step, DataType.INT64))
        after = len(sizes) - dim - 1
        total = g.op(
            "Add", total, g.op("Unsqueeze", along, axes=list(range(1, after + 1))) if after else along
        )
    return total, sizes


@onnx_symbolic(["aten::as_strided", "aten::as_strided_copy"])
def as_strided(
    g: GraphContext,
    self: Value,
    size: list[int | Value],
    stride: list[int | Value],
    storage_offset: int | Value | None = None,
) -> Value:
    positions, _ = _positions(g, size, stride, storage_offset)
    _check_within(g, self, positions)
    return g.op("Gather", g.op("Reshape", self, [-1]), positions)


def _check_within(g: GraphContext, self: Value, positions: Value) -> None:
    """Refuse a view that reaches beyond the elements of the tensor."""
    array, shape = g.constant_value(positions), g.shape(self)
    if array is None or shape is None or not all(isinstance(item, int) for item in shape):
        return
    count = math.prod(size for size in shape if isinstance(size, int))
    if array.size and int(array.max()) >= count:
        raise g.refuse("the view reads elements of the storage outside of the tensor")


@onnx_symbolic("aten::as_strided_scatter")
def as_strided_scatter(
    g: GraphContext,
    self: Value,
    src: Value,
    size: list[int | Value],
    stride: list[int | Value],
    storage_offset: int | Value | None = None,
) -> Value:
    positions, sizes = _positions(g, size, stride, storage_offset)
    _check_within(g, self, positions)
    array = g.constant_value(positions)
    if array is None or len(np.unique(array)) != array.size:
        raise g.refuse("a write to elements that may overlap has no defined result")
    flat = g.op("Reshape", self, [-1])
    updates = g.op("Reshape", g.call("aten::expand", self=src, size=sizes), [-1])
    written = g.op("ScatterElements", flat, g.constant(array.reshape(-1)), updates, axis=0)
    return g.call("aten::view_as", self=written, other=self)


@onnx_symbolic("aten::new_empty_strided")
def new_empty_strided(
    g: GraphContext,
    self: Value,
    size: list[int | Value],
    stride: list[int | Value],
    dtype: DataType | None = None,
) -> Value:
    """Elements that torch leaves uninitialised are zero here."""
    return g.call("aten::new_full", self=self, size=size, fill_value=0, dtype=dtype)


@onnx_symbolic(["aten::empty_strided", "aten::empty_permuted"])
def empty_strided(
    g: GraphContext, size: list[int | Value], dtype: DataType | None = None, **layout: Any
) -> Value:
    """Elements that torch leaves uninitialised are zero here."""
    return g.call("aten::empty", size=size, dtype=dtype)
