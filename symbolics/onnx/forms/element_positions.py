"""GatherElements and ScatterElements whose indices have the sizes of the data beside the axis."""

from typing import Any

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from .sizes import static_shape


def _smaller_sizes(g: GraphContext, data: Value, indices: Value, axis: int) -> dict[int, tuple[int, int]]:
    """The sizes of the indices and of the data along the axes beside `axis` where they differ."""
    sizes, counts = static_shape(g, data), static_shape(g, indices)
    differing = {
        dim: (count, size)
        for dim, (count, size) in enumerate(zip(counts, sizes, strict=True))
        if dim != axis and count != size
    }
    if not differing:
        raise g.refuse("the indices have the sizes of the data")
    return differing


@onnx_symbolic("form::GatherElements.equal_sizes")
def gather_from_part(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Reads the part of the data that the indices are about."""
    dim = g.axis(axis, g.rank(data) or 0)
    part = data
    for side, (count, _) in _smaller_sizes(g, data, indices, dim).items():
        # OpenVINO 2026.4 removes a Slice here.
        part = g.op("Gather", part, np.arange(count, dtype=np.int64), axis=side)
    return g.op("GatherElements", part, indices, axis=dim)


@onnx_symbolic("form::ScatterElements.equal_sizes")
def scatter_into_part(
    g: GraphContext, data: Value, indices: Value, updates: Value, axis: int = 0, **arguments: Any
) -> Value:
    """Writes into the part of the data that the indices are about, and joins it with the other parts."""
    dim = g.axis(axis, g.rank(data) or 0)
    others: list[tuple[int, Value]] = []
    part = data
    for side, (count, size) in _smaller_sizes(g, data, indices, dim).items():
        others.append((side, g.op("Slice", part, starts=[count], ends=[size], axes=[side])))
        part = g.op("Slice", part, starts=[0], ends=[count], axes=[side])
    part = g.op("ScatterElements", part, indices, updates, axis=dim, **arguments)
    for side, rest_of_data in reversed(others):
        part = g.op("Concat", part, rest_of_data, axis=side)
    return part
