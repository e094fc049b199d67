"""Operators that TensorFlow's layout optimizer leaves behind: axes and shapes in another data format."""

from __future__ import annotations

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic


def _order(g: GraphContext, source: str, target: str) -> list[int]:
    """For each axis of the target format, its number in the source format."""
    if sorted(source) != sorted(target) or len(set(source)) != len(source):
        raise g.refuse(f"'{source}' and '{target}' are no formats of the same axes")
    return [source.index(axis) for axis in target]


@onnx_symbolic("tf::DataFormatVecPermute")
def data_format_vec_permute(
    g: GraphContext, x: Value, src_format: str = "NHWC", dst_format: str = "NCHW"
) -> Value:
    """A number for each axis, or two; a shorter tensor has those of the spatial axes alone."""
    shape = g.shape(x)
    count = shape[0] if shape else None
    if not isinstance(count, int):
        raise g.refuse("how many axes there are is unknown")
    if count == len(src_format) - 2:
        src_format, dst_format = (
            "".join(axis for axis in name if axis not in "NC") for name in (src_format, dst_format)
        )
    return g.op("Gather", x, _order(g, src_format, dst_format), axis=0)


@onnx_symbolic("tf::DataFormatDimMap")
def data_format_dim_map(
    g: GraphContext, x: Value, src_format: str = "NHWC", dst_format: str = "NCHW"
) -> Value:
    """The numbers of axes in the other format."""
    places = np.argsort(_order(g, src_format, dst_format))
    table = g.constant(places, g.dtype(x) or DataType.INT32)
    count = len(src_format)
    whole = g.cast(x, DataType.INT64)
    whole = g.op("Where", g.op("Less", whole, 0), g.op("Add", whole, count), whole)
    return g.op("Gather", table, whole, axis=0)
