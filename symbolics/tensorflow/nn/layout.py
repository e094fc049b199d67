"""Data formats: the position of the channel axis, and the pads of TensorFlow's padding schemes.

ONNX operators for images have the channels at axis 1. Tensors in another data format are transposed before
and after; `passes/onnx_graph/transposes` removes the Transposes between operators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, dtypes
from ...compositions.sizes import Size, compute


def ranked(g: GraphContext, value: Value, rank: int) -> Value:
    """Set the rank of a value to the only one that its operator accepts."""
    if g.rank(value) is None:
        value.shape = ir.Shape([None] * rank)
    return value


@dataclasses.dataclass(frozen=True)
class Layout:
    """A data format, `NHWC`, `NCHW`, `NDHWC` or `NCDHW`.

    Attributes:
        dimensions: the number of spatial dimensions.
        last: whether the channels are the last axis.
    """

    dimensions: int
    last: bool

    @classmethod
    def of(cls, g: GraphContext, data_format: str) -> Layout:
        """The layout of a data format.

        Raises:
            UnsupportedError: it is another one, such as `NCHW_VECT_C`.
        """
        if data_format in ("NHWC", "NDHWC"):
            return cls(len(data_format) - 2, True)
        if data_format in ("NCHW", "NCDHW"):
            return cls(len(data_format) - 2, False)
        raise g.refuse(f"data_format '{data_format}' is not supported")

    @property
    def channel(self) -> int:
        """The channel axis."""
        return self.dimensions + 1 if self.last else 1

    def axis(self, index: int) -> int:
        """The axis of a spatial dimension."""
        return index + (1 if self.last else 2)

    def spatial(self, g: GraphContext, numbers: Sequence[int], name: str, other: int = 1) -> list[int]:
        """Select the numbers of the spatial dimensions from those of all axes.

        Raises:
            UnsupportedError: batch or channels have another number than `other`.
        """
        rank = self.dimensions + 2
        if len(numbers) != rank:
            raise g.refuse(f"{name} must have {rank} numbers, not {len(numbers)}")
        axes = [self.axis(index) for index in range(self.dimensions)]
        if any(numbers[at] != other for at in range(rank) if at not in axes):
            raise g.refuse(f"{name}={list(numbers)} must be {other} for batch and channels")
        return [numbers[at] for at in axes]

    def channels_first(self, g: GraphContext, value: Value) -> Value:
        """Transpose the value to have its channels at axis 1."""
        ranked(g, value, self.dimensions + 2)
        if not self.last:
            return value
        return g.op("Transpose", value, perm=[0, self.dimensions + 1, *range(1, self.dimensions + 1)])

    def restored(self, g: GraphContext, value: Value) -> Value:
        """Transpose a result with channels at axis 1 to this data format."""
        ranked(g, value, self.dimensions + 2)
        if not self.last:
            return value
        return g.op("Transpose", value, perm=[0, *range(2, self.dimensions + 2), 1])


IMAGES = Layout(2, True)
"""The layout of operators without a data format."""

Pads = list[tuple[Size, Size]]
"""Before and behind each spatial dimension."""


def explicit_pads(g: GraphContext, layout: Layout, paddings: Sequence[int]) -> list[tuple[int, int]]:
    """The pads in `explicit_paddings`, which lists two for each axis."""
    before = layout.spatial(g, paddings[::2], "explicit_paddings", 0)
    return list(zip(before, layout.spatial(g, paddings[1::2], "explicit_paddings", 0), strict=True))


def same_pads(g: GraphContext, size: Size, extent: int, stride: int) -> tuple[Size, Size]:
    """The pads of SAME along one dimension: `ceil(size / stride)` windows; an odd pad is added at the end.

    Args:
        extent: the elements from the first of a window to its last one, both included.
    """
    if extent == 1:
        return 0, 0
    if stride == 1:
        total: Size = extent - 1
    else:
        count = compute(g, "floordiv", compute(g, "add", size, stride - 1), stride)
        reach = compute(g, "mul", compute(g, "sub", count, 1), stride)
        total = compute(g, "sub", compute(g, "add", reach, extent), size)
        total = compute(g, "max", total, 0)
    before = compute(g, "floordiv", total, 2)
    return before, compute(g, "sub", total, before)


def window_pads(
    g: GraphContext,
    layout: Layout,
    input: Value,
    extents: Sequence[int],
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
) -> Pads:
    """The pads of windows over an input with channels at axis 1.

    Raises:
        UnsupportedError: the padding is none of SAME, VALID and EXPLICIT.
    """
    if padding == "VALID":
        return [(0, 0)] * layout.dimensions
    if padding == "EXPLICIT":
        return list(explicit_pads(g, layout, explicit_paddings))
    if padding != "SAME":
        raise g.refuse(f"padding '{padding}' is not supported")
    pairs = enumerate(zip(extents, strides, strict=True))
    return [
        # A window of one element, or a stride of 1, needs no size.
        same_pads(g, g.size(input, 2 + i) if extent > 1 and stride > 1 else 0, extent, stride)
        for i, (extent, stride) in pairs
    ]


def numbers(pads: Pads) -> list[int] | None:
    """The pads in ONNX's order, all begins and then all ends; None if one is computed."""
    listed = [pair[0] for pair in pads] + [pair[1] for pair in pads]
    return listed if all(isinstance(item, int) for item in listed) else None  # type: ignore[return-value]


def padded(g: GraphContext, input: Value, pads: Pads, value: float | int = 0) -> Value:
    """Pad the input, `[N, C, spatial...]`."""
    if numbers(pads) == [0] * (2 * len(pads)):
        return input
    begins: list[Size] = [0, 0, *(pair[0] for pair in pads)]
    ends: list[Size] = [0, 0, *(pair[1] for pair in pads)]
    dtype = g.dtype(input)
    if dtype in dtypes.INTEGERS and dtype != DataType.INT64 and not g.has_kernel("Pad", input):
        wide = g.call("composed::pad", g.cast(input, DataType.INT32), begins, ends, value)
        return g.cast(wide, dtype)
    return g.call("composed::pad", input, begins, ends, value)
