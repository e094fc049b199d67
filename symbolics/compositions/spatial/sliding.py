"""Sliding windows over the last dimensions of a tensor, composed where no pooling operator fits."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from ....registration import DataType, GraphContext, Value, dtypes
from ..size_arithmetic import Size, compute, product
from .resampling import Numbers, arithmetic, clamp_positions, column, pixels


@dataclasses.dataclass(frozen=True)
class Slide:
    """Windows along one dimension.

    Attributes:
        size: the size of the dimension.
        count: the number of windows.
        pads: the padding before the first element, and after the last one.
    """

    size: Size
    count: Size
    kernel: int
    stride: int
    pads: tuple[int, int]
    dilation: int

    @classmethod
    def over(
        cls,
        g: GraphContext,
        size: Size,
        kernel: int,
        stride: int,
        pads: tuple[int, int],
        dilation: int,
        ceil_mode: bool = False,
    ) -> "Slide":
        """All windows that fit in the padded dimension.

        Args:
            ceil_mode: also those that begin before the trailing padding, and end behind it.
        """
        # Rounding the quotient up is rounding down with `stride - 1` more.
        spare = stride - 1 if ceil_mode else 0
        room = compute(g, "add", size, sum(pads) - dilation * (kernel - 1) - 1 + spare)
        count = compute(g, "add", compute(g, "floordiv", room, stride), 1)
        if ceil_mode:
            # ATen leaves out a last window that begins in the padding at the end.
            begun = compute(g, "floordiv", compute(g, "add", size, pads[0] + stride - 1), stride)
            count = compute(g, "min", count, begun)
        return cls(size, count, kernel, stride, pads, dilation)

    def positions(self, g: GraphContext) -> Numbers:
        """The position of each element of each window, `[count, kernel]`; in padding it is out of range."""
        g.reserve(self.count if isinstance(self.count, int) else 1, self.kernel)
        numbers = pixels(g, self.count, DataType.INT64)
        starts = arithmetic(g, "Sub", arithmetic(g, "Mul", numbers, self.stride), self.pads[0])
        offsets = np.arange(self.kernel, dtype=np.int64) * self.dilation
        return arithmetic(g, "Add", column(g, starts), offsets[None])

    def inside(self, g: GraphContext, padded: bool = False) -> Numbers | None:
        """Which elements of the windows are in the input, BOOL `[count, kernel]`; None if all are.

        Args:
            padded: whether elements in the padding count as inside; those behind it never do.
        """
        positions = self.positions(g)
        if padded:
            mask = arithmetic(g, "Less", positions, compute(g, "add", self.size, self.pads[1]))
        else:
            mask = arithmetic(g, "Greater", positions, -1)
            mask = arithmetic(g, "And", mask, arithmetic(g, "Less", positions, self.size))
        return None if not isinstance(mask, Value) and mask.all() else mask

    def clip_positions(self, g: GraphContext) -> Numbers:
        """The positions; an element in the padding gets the position of the nearest edge."""
        return clamp_positions(g, self.positions(g), self.size)

    def nearest(self, g: GraphContext) -> Numbers:
        """The positions; an element in the padding gets the position of the nearest one inside its window.

        Raises:
            UnsupportedError: a window might lie in the padding completely.
        """
        step, positions = self.dilation, self.positions(g)
        # Whole steps of the dilation keep an element on the window's own grid.
        missing = _raise_to(g, arithmetic(g, "Sub", step - 1, positions), 0)
        advance = arithmetic(g, "Mul", arithmetic(g, "Div", missing, step), step)
        positions = arithmetic(g, "Add", positions, advance)
        over = arithmetic(g, "Add", arithmetic(g, "Sub", positions, self.size), step)
        over = arithmetic(g, "Div", _raise_to(g, over, 0), step)
        positions = arithmetic(g, "Sub", positions, arithmetic(g, "Mul", over, step))
        if isinstance(self.size, Value) and step > 1 and any(self.pads):
            raise g.refuse("the spatial sizes must be known for dilated windows with padding")
        return positions if isinstance(positions, Value) else clamp_positions(g, positions, self.size)


def _raise_to(g: GraphContext, positions: Numbers, least: int) -> Numbers:
    return arithmetic(g, "Where", arithmetic(g, "Less", positions, least), least, positions)


def reduce_windows(
    g: GraphContext,
    op_type: str,
    input: Value,
    positions: Sequence[Numbers],
    inside: Sequence[Numbers | None] = (),
) -> Value:
    """Reduce each window of `[N, C, spatial...]` to one element, one dimension after the other.

    Args:
        positions: for each spatial dimension, the positions of the elements, `[count, kernel]`.
        inside: for each spatial dimension, which elements count, `[count, kernel]`: the others are read as 0.
            None if all count.
    """
    for i, axis_positions in enumerate(positions):
        input = g.op("Gather", input, axis_positions, axis=2 + i)
        if inside and inside[i] is not None:
            mask = g.constant(inside[i])
            trailing_axes = list(range(2, 1 + len(positions) - i))
            mask = g.op("Unsqueeze", mask, axes=trailing_axes) if trailing_axes else mask
            dtype = g.dtype(input)
            if dtype in dtypes.INTEGERS:
                input = g.op("Mul", input, g.cast(mask, dtype))
            else:
                input = g.call("composed::where", condition=mask, self=input, other=0)
        input = g.op(op_type, input, axes=[3 + i], keepdims=0)
    return input


def sum_windows(g: GraphContext, input: Value, slides: Sequence[Slide]) -> Value:
    """The sum of each window; padding is 0."""
    positions = [slide.clip_positions(g) for slide in slides]
    return reduce_windows(g, "ReduceSum", input, positions, [slide.inside(g) for slide in slides])


def average_windows(
    g: GraphContext, input: Value, slides: Sequence[Slide], padded: bool, divisor: int | None = None
) -> Value:
    """The mean of each window; integer means are rounded toward zero.

    Args:
        padded: whether the number of elements includes padding; elements behind the padding never count.
        divisor: divide the sums by this instead of the number of elements.
    """
    total = sum_windows(g, input, slides)
    # `divisor_override` takes the place of the number of elements, padding or not.
    if divisor is not None:
        return g.op("Div", total, divisor)
    number: Numbers = 1
    for i, slide in enumerate(slides):
        length: Numbers = slide.kernel
        inside = slide.inside(g, padded)
        if isinstance(inside, Value):
            length = g.op("ReduceSum", g.cast(inside, DataType.INT64), axes=[1], keepdims=0)
        elif inside is not None:
            length = inside.sum(axis=1)
        trailing_axes = list(range(1, len(slides) - i))
        if trailing_axes and inside is not None:
            length = g.op("Unsqueeze", g.constant(length), axes=trailing_axes)
        number = length if isinstance(number, int) and number == 1 else arithmetic(g, "Mul", number, length)
    return g.op("Div", total, g.constant(number, g.dtype(total) or DataType.INT64))


def gather_windows(g: GraphContext, input: Value, positions: Sequence[Numbers]) -> Value:
    """Gather the windows of `[N, C, spatial...]` at positions along each dimension.

    Returns:
        `[N, C, count..., kernel...]`.
    """
    for index, axis_positions in enumerate(positions):
        input = g.op("Gather", input, axis_positions, axis=2 + 2 * index)
    count = len(positions)
    return g.op("Transpose", input, perm=[0, 1, *range(2, 2 + 2 * count, 2), *range(3, 3 + 2 * count, 2)])


def _spread_out(g: GraphContext, value: Numbers, index: int, dimensions: int) -> Value:
    """Reshape the `[count, kernel]` of one dimension to broadcast to `[count..., kernel...]` of all."""
    kept_axes = (index, dimensions + index)
    axes = [axis for axis in range(2 * dimensions) if axis not in kept_axes]
    return g.op("Unsqueeze", g.constant(value), axes=axes)


def mask_padding(g: GraphContext, windows: Value, slides: Sequence[Slide]) -> Value:
    """Windows of integers with padding replaced by 0."""
    inside_masks = [slide.inside(g) for slide in slides]
    broadcast_masks = [
        _spread_out(g, inside, i, len(slides)) for i, inside in enumerate(inside_masks) if inside is not None
    ]
    if not broadcast_masks:
        return windows
    mask = functools.reduce(lambda a, b: g.op("And", a, b), broadcast_masks)
    return g.op("Mul", windows, g.cast(mask, g.dtype(windows) or DataType.INT64))


def largest(
    g: GraphContext, input: Value, slides: Sequence[Slide], indices: bool
) -> tuple[Value, Value | None]:
    """The largest element of each window, and its position in the flattened spatial dimensions.

    For a window that lies in the padding completely, the lowest number of the element type.
    """
    positions = [slide.nearest(g) for slide in slides]
    counts, kernel = [slide.count for slide in slides], [slide.kernel for slide in slides]
    values, largest_positions = largest_at(g, input, positions, counts, kernel, indices)
    dtype = g.dtype(input) or DataType.FLOAT
    # A window that lies wholly in the padding has the least number of its type, as in ATen.
    lowest = dtypes.limits(dtype)[0] if dtype in dtypes.INTEGERS else -math.inf
    for i, slide in enumerate(slides):
        inside = slide.inside(g)
        if inside is None or isinstance(inside, Value) or inside.any(axis=1).all():
            continue
        shape = [-1] + [1] * (len(slides) - 1 - i)
        empty = g.constant(~inside.any(axis=1).reshape(shape))
        values = g.call("composed::where", condition=empty, self=g.constant(lowest, dtype), other=values)
    return values, largest_positions


def largest_at(
    g: GraphContext,
    input: Value,
    positions: Sequence[Numbers],
    counts: Sequence[Size],
    kernel: Sequence[Size],
    indices: bool,
) -> tuple[Value, Value | None]:
    """`largest` for windows given by their positions `[count, kernel]` along each dimension."""
    if not indices:
        return reduce_windows(g, "ReduceMax", input, positions), None
    dimensions = len(positions)
    last, windows = 2 + dimensions, gather_windows(g, input, positions)
    values = g.op("ReduceMax", windows, axes=list(range(last, last + dimensions)), keepdims=0)
    length = product(g, kernel)
    if isinstance(length, int):
        largest_index = g.op("ArgMax", g.op("Reshape", windows, [*[0] * last, length]), axis=last, keepdims=0)
    else:
        # onnxruntime replaces a computed size in a Reshape target by -1, which fails for an empty batch.
        largest_index = g.op("ArgMax", g.op("Flatten", windows, axis=last), axis=1, keepdims=0)
        largest_index = g.op("Reshape", largest_index, g.op("Shape", values))
    plane: Value | None = None
    stride: Size = 1
    for index in reversed(range(dimensions)):
        part = _spread_out(g, arithmetic(g, "Mul", positions[index], stride), index, dimensions)
        plane = part if plane is None else g.op("Add", plane, part)
        stride = compute(g, "mul", stride, g.size(input, 2 + index))
    assert plane is not None
    # ArgMax gives a position in its own window: add the start of the window among all of them.
    numbers = g.call("sym::range", start=0, end=product(g, counts))
    begins = g.op("Mul", numbers, g.constant(length))
    largest_index = g.op("Add", largest_index, g.op("Reshape", begins, g.stack(counts)))
    return values, g.op("Gather", g.op("Reshape", plane, [-1]), largest_index)
