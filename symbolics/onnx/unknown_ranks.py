"""Squeeze and Unsqueeze below 11, with axes from the end of a tensor of unknown rank."""

from ...registration import GraphContext, Value, onnx_symbolic
from .support import integers


@onnx_symbolic("from_end::Unsqueeze")
def unsqueeze_from_end(g: GraphContext, data: Value, axes: Value | list[int]) -> Value:
    """A Reshape to the sizes of the data with ones between."""
    axes_from_end = _axes_from_end(g, axes)
    pieces: list[Value | list[int]] = []
    count = 0
    for axis in range(-1, min(axes_from_end) - 1, -1):
        if axis not in axes_from_end:
            count += 1
        pieces.insert(0, [1] if axis in axes_from_end else _size_from_end(g, data, count))
    return g.op("Reshape", data, g.op("Concat", _leading_sizes(g, data, count), *pieces, axis=0))


@onnx_symbolic("from_end::Squeeze")
def squeeze_from_end(g: GraphContext, data: Value, axes: Value | list[int]) -> Value:
    """A Reshape to the other sizes of the data."""
    axes_from_end = _axes_from_end(g, axes)
    last = -min(axes_from_end)
    kept = [_size_from_end(g, data, count) for count in range(last, 0, -1) if -count not in axes_from_end]
    return g.op("Reshape", data, g.op("Concat", _leading_sizes(g, data, last), *kept, axis=0))


def _axes_from_end(g: GraphContext, axes: Value | list[int]) -> set[int]:
    numbers = integers(g, axes)
    if numbers is None or max(numbers) >= 0:
        raise g.refuse("of a tensor of unknown rank, all axes must count from the end", first_opset=11)
    return set(numbers)


def _size_from_end(g: GraphContext, data: Value, count: int) -> Value:
    """The size of a dimension of data of unknown rank, one-dimensional; the last one has count 1."""
    end = 1 - count if count > 1 else 2**63 - 1
    return g.op("Slice", g.op("Shape", data), starts=[-count], ends=[end], axes=[0])


def _leading_sizes(g: GraphContext, data: Value, count: int) -> Value:
    """The sizes of all dimensions but the last ones."""
    sizes = g.op("Shape", data)
    return g.op("Slice", sizes, starts=[0], ends=[-count], axes=[0]) if count else sizes
