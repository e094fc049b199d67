"""Col2Im below 18: sums the block elements at each pixel, one dimension after the other."""

from collections.abc import Sequence

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import Size, compute, product
from ...compositions.spatial.resampling import arithmetic, column, pixels
from ..support import integers


def _terms(
    g: GraphContext, size: Size, count: Size, kernel: int, dilation: int, pad: int, stride: int
) -> tuple[Value, Value | None]:
    """The terms of the sum for each pixel, along one dimension of an image.

    Args:
        size: the size of the image.
        count: the number of blocks.

    Returns:
        Positions in `kernel` times `count` elements, `[size, terms]`; and a mask of the terms, None for all.
    """
    g.reserve(kernel)
    offsets = np.arange(kernel, dtype=np.int64)
    distance = arithmetic(g, "Add", column(g, pixels(g, size, DataType.INT64)), pad - offsets * dilation)
    block = arithmetic(g, "Div", distance, stride)
    # A block covers the pixel with this offset only if the division by the stride is exact.
    inside = arithmetic(g, "Equal", arithmetic(g, "Mul", block, stride), distance)
    inside = arithmetic(g, "And", inside, arithmetic(g, "Greater", distance, -1))
    inside = arithmetic(g, "And", inside, arithmetic(g, "Less", block, count))
    positions = arithmetic(
        g, "Add", arithmetic(g, "Where", inside, block, 0), arithmetic(g, "Mul", offsets, count)
    )
    if isinstance(positions, Value) or isinstance(inside, Value):
        return positions, inside
    term_count = max(int(inside.sum(axis=1).max(initial=0)), 1)
    # A pixel is covered by few blocks: keep the largest number of terms, those inside first.
    order = np.argsort(~inside, axis=1, kind="stable")[:, :term_count]
    positions, inside = (np.take_along_axis(array, order, axis=1) for array in (positions, inside))
    return g.constant(positions), None if inside.all() else g.constant(inside)


@onnx_symbolic("onnx::Col2Im")
def col2im(
    g: GraphContext,
    input: Value,
    image_shape: Value | list[int | Value],
    block_shape: Value | list[int],
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    """Blocks `[N, C * product(block), L]` as images `[N, C, image...]`."""
    kernel = integers(g, block_shape)
    if kernel is None:
        raise g.refuse("block_shape must be constant", first_opset=18)
    dimensions = len(kernel)
    image_sizes: Sequence[int | Value] | None = (
        image_shape if isinstance(image_shape, list) else integers(g, image_shape)
    )
    if image_sizes is None:
        image_sizes = [
            g.op("Squeeze", g.op("Gather", image_shape, [i], axis=0), axes=[0]) for i in range(dimensions)
        ]
    dilations, strides = dilations or [1] * dimensions, strides or [1] * dimensions
    pads = pads or [0] * (2 * dimensions)
    counts = []
    for i, size in enumerate(image_sizes):
        room = pads[i] + pads[dimensions + i] - dilations[i] * (kernel[i] - 1) - 1
        steps = compute(g, "floordiv", compute(g, "add", size, room), strides[i])
        counts.append(compute(g, "add", steps, 1))
    leading = [g.size(input, 0), compute(g, "floordiv", g.size(input, 1), product(g, kernel))]
    blocks = g.op("Reshape", input, g.stack([*leading, *kernel, *counts]))
    pairs = [axis for i in range(dimensions) for axis in (2 + i, 2 + dimensions + i)]
    blocks = g.op("Transpose", blocks, perm=[0, 1, *pairs])
    merged = [compute(g, "mul", k, count) for k, count in zip(kernel, counts, strict=True)]
    result = g.op("Reshape", blocks, g.stack([*leading, *merged]))
    for i, size in enumerate(image_sizes):
        positions, inside = _terms(g, size, counts[i], kernel[i], dilations[i], pads[i], strides[i])
        result = g.op("Gather", result, positions, axis=2 + i)
        if inside is not None:
            trailing_axes = list(range(2, 1 + dimensions - i))
            inside = g.op("Unsqueeze", inside, axes=trailing_axes) if trailing_axes else inside
            result = g.call("composed::where", condition=inside, self=result, other=0)
        result = g.op("ReduceSum", result, axes=[3 + i], keepdims=0)
    return result
