"""Windows that slide over a tensor, taken out of it: for what no operator for windows can say."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from ...registration import GraphContext, Value, dtypes
from .sizes import Size, compute, product


@dataclasses.dataclass(frozen=True)
class Slide:
    """Windows along one dimension.

    Attributes:
        size: that of the dimension.
        count: the number of windows.
        padding: before the first element.
    """

    size: Size
    count: Size
    kernel: int
    stride: int
    padding: int
    dilation: int

    @classmethod
    def over(
        cls, g: GraphContext, size: Size, kernel: int, stride: int, pads: tuple[int, int], dilation: int
    ) -> "Slide":
        """As many windows as fit between the pads."""
        room = compute(g, "add", size, sum(pads) - dilation * (kernel - 1) - 1)
        count = compute(g, "add", compute(g, "floordiv", room, stride), 1)
        return cls(size, count, kernel, stride, pads[0], dilation)

    @classmethod
    def pooling(
        cls,
        g: GraphContext,
        size: Size,
        kernel: int,
        stride: int,
        padding: int,
        dilation: int,
        ceil_mode: bool,
    ) -> "Slide":
        """Those of ATen's pooling; with `ceil_mode` all that begin inside the input or its left padding."""
        if not ceil_mode:
            return cls.over(g, size, kernel, stride, (padding, padding), dilation)
        room = compute(g, "add", size, 2 * padding - dilation * (kernel - 1) - 2 + stride)
        count = compute(g, "add", compute(g, "floordiv", room, stride), 1)
        begun = compute(g, "floordiv", compute(g, "add", size, padding + stride - 1), stride)
        return cls(size, compute(g, "min", count, begun), kernel, stride, padding, dilation)

    def positions(self, g: GraphContext) -> Value:
        """Where the elements of each window stand, `[count, kernel]`; some stand in the padding."""
        numbers = g.call("sym::range", start=0, end=self.count)
        starts = g.op("Sub", g.op("Mul", numbers, self.stride), self.padding)
        offsets = np.arange(self.kernel, dtype=np.int64) * self.dilation
        return g.op("Add", g.op("Unsqueeze", starts, axes=[1]), offsets[None])

    def inside(self, g: GraphContext) -> Value | None:
        """Which elements are not padding, BOOL `[count, kernel]`; None where none is."""
        positions = self.positions(g)
        found = g.op("And", g.op("Greater", positions, -1), g.op("Less", positions, g.constant(self.size)))
        known = g.constant_value(found)
        return None if known is not None and known.all() else found

    def clipped(self, g: GraphContext) -> Value:
        """The positions, of padding those of the elements at the edges."""
        positions = _at_least(g, self.positions(g), 0)
        last = compute(g, "sub", self.size, 1)
        beyond = g.op("Greater", positions, g.constant(last))
        return g.op("Where", beyond, g.constant(last), positions)

    def nearest(self, g: GraphContext) -> Value:
        """The positions, of padding that of the element of the same window next to it.

        Raises:
            UnsupportedError: a window has padding only, or might have.
        """
        step, positions = self.dilation, self.positions(g)
        missing = _at_least(g, g.op("Sub", step - 1, positions), 0)
        positions = g.op("Add", positions, g.op("Mul", g.op("Div", missing, step), step))
        over = g.op("Add", g.op("Sub", positions, g.constant(self.size)), step)
        over = g.op("Div", _at_least(g, over, 0), step)
        positions = g.op("Sub", positions, g.op("Mul", over, step))
        known = g.constant_value(positions)
        if known is None and isinstance(self.size, Value) and step > 1 and self.padding:
            raise g.refuse("dilated windows with padding need the spatial sizes to be known")
        if known is not None and known.size and known.min() < 0:
            raise g.refuse("a window has nothing but padding in it")
        return positions


def _at_least(g: GraphContext, positions: Value, least: int) -> Value:
    return g.op("Where", g.op("Less", positions, least), least, positions)


def taken(g: GraphContext, input: Value, positions: Sequence[Value]) -> Value:
    """Windows `[N, C, count..., kernel...]` of `[N, C, spatial...]` by the positions along each dimension."""
    for index, places in enumerate(positions):
        input = g.op("Gather", input, places, axis=2 + 2 * index)
    count = len(positions)
    return g.op("Transpose", input, perm=[0, 1, *range(2, 2 + 2 * count, 2), *range(3, 3 + 2 * count, 2)])


def spread_out(g: GraphContext, value: Value, index: int, dimensions: int) -> Value:
    """What is `[count, kernel]` along one dimension, for `[count..., kernel...]` of all of them."""
    kept = (index, dimensions + index)
    return g.op("Unsqueeze", value, axes=[axis for axis in range(2 * dimensions) if axis not in kept])


def masked(g: GraphContext, windows: Value, slides: Sequence[Slide]) -> tuple[Value, Value | None]:
    """Windows with 0 in the place of padding, and which elements are not padding; None where none is."""
    found = [slide.inside(g) for slide in slides]
    parts = [spread_out(g, part, i, len(slides)) for i, part in enumerate(found) if part is not None]
    if not parts:
        return windows, None
    mask = functools.reduce(lambda a, b: g.op("And", a, b), parts)
    dtype = g.dtype(windows)
    if dtype in dtypes.INTEGERS:
        return g.op("Mul", windows, g.cast(mask, dtype)), mask
    return g.call("composed::where", condition=mask, self=windows, other=0.0), mask


def largest(
    g: GraphContext, input: Value, slides: Sequence[Slide], indices: bool
) -> tuple[Value, Value | None]:
    """The largest element of each window, and its position in its plane."""
    positions = [slide.nearest(g) for slide in slides]
    counts, kernel = [slide.count for slide in slides], [slide.kernel for slide in slides]
    return largest_at(g, input, positions, counts, kernel, indices)


def largest_at(
    g: GraphContext,
    input: Value,
    positions: Sequence[Value],
    counts: Sequence[Size],
    kernel: Sequence[Size],
    indices: bool,
) -> tuple[Value, Value | None]:
    """The same for windows by the positions `[count, kernel]` along each dimension."""
    dimensions = len(positions)
    last, windows = 2 + dimensions, taken(g, input, positions)
    values = g.op("ReduceMax", windows, axes=list(range(last, last + dimensions)), keepdims=0)
    if not indices:
        return values, None
    length = product(g, kernel)
    if isinstance(length, int):
        chosen = g.op("ArgMax", g.op("Reshape", windows, [*[0] * last, length]), axis=last, keepdims=0)
    else:
        # onnxruntime makes -1 of what is computed in the target of a Reshape, which an empty batch cannot.
        chosen = g.op("ArgMax", g.op("Flatten", windows, axis=last), axis=1, keepdims=0)
        chosen = g.op("Reshape", chosen, g.op("Shape", values))
    plane: Value | None = None
    stride: Size = 1
    for index in reversed(range(dimensions)):
        part = spread_out(g, g.op("Mul", positions[index], g.constant(stride)), index, dimensions)
        plane = part if plane is None else g.op("Add", plane, part)
        stride = compute(g, "mul", stride, g.size(input, 2 + index))
    assert plane is not None
    numbers = g.call("sym::range", start=0, end=product(g, counts))
    begins = g.op("Mul", numbers, g.constant(length))
    chosen = g.op("Add", chosen, g.op("Reshape", begins, g.stack(counts)))
    return values, g.op("Gather", g.op("Reshape", plane, [-1]), chosen)
