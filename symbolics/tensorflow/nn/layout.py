"""Data formats: the position of the channel axis, and the pads of TensorFlow's padding schemes.

ONNX operators for images have the channels at axis 1. Tensors in another data format are transposed before
and after; `passes/onnx_graph/transposes` removes the Transposes between operators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, dtypes
from ...compositions.size_arithmetic import Size, compute


def set_rank(g: GraphContext, value: Value, rank: int) -> Value:
    """Set the rank of a value to the only one that its operator accepts."""
    if g.rank(value) is None:
        value.shape = ir.Shape([None] * rank)
    return value


@dataclasses.dataclass(frozen=True)
class DataLayout:
    """A data format, `NHWC`, `NCHW`, `NDHWC` or `NCDHW`, by its number of spatial dimensions."""

    dimensions: int
    channels_last: bool

    @classmethod
    def of(cls, g: GraphContext, data_format: str) -> DataLayout:
        """The layout of a data format."""
        if data_format in ("NHWC", "NDHWC"):
            return cls(len(data_format) - 2, True)
        if data_format in ("NCHW", "NCDHW"):
            return cls(len(data_format) - 2, False)
        raise g.refuse(f"data_format '{data_format}' is not supported")

    @property
    def channel(self) -> int:
        """The channel axis."""
        return self.dimensions + 1 if self.channels_last else 1

    def axis(self, index: int) -> int:
        """The axis of a spatial dimension."""
        return index + (1 if self.channels_last else 2)

    def spatial(self, g: GraphContext, per_axis: Sequence[int], name: str, expected: int = 1) -> list[int]:
        """Select the numbers of the spatial dimensions from those of all axes."""
        rank = self.dimensions + 2
        if len(per_axis) != rank:
            raise g.refuse(f"{name} must have {rank} numbers, not {len(per_axis)}")
        axes = [self.axis(index) for index in range(self.dimensions)]
        if any(per_axis[axis] != expected for axis in range(rank) if axis not in axes):
            raise g.refuse(f"{name}={list(per_axis)} must be {expected} for batch and channels")
        if min(per_axis) < expected:
            raise g.refuse(f"{name}={list(per_axis)} must be {expected} or more")
        return [per_axis[axis] for axis in axes]

    def channels_first(self, g: GraphContext, value: Value) -> Value:
        """Transpose the value to have its channels at axis 1."""
        set_rank(g, value, self.dimensions + 2)
        if not self.channels_last:
            return value
        return g.op("Transpose", value, perm=[0, self.dimensions + 1, *range(1, self.dimensions + 1)])

    def restore(self, g: GraphContext, value: Value) -> Value:
        """Transpose a result with channels at axis 1 to this data format."""
        set_rank(g, value, self.dimensions + 2)
        if not self.channels_last:
            return value
        return g.op("Transpose", value, perm=[0, *range(2, self.dimensions + 2), 1])


IMAGES = DataLayout(2, True)
"""The layout of operators without a data format."""

Pads = list[tuple[Size, Size]]
"""The pads before and after each spatial dimension."""


def explicit_pads(g: GraphContext, layout: DataLayout, paddings: Sequence[int]) -> list[tuple[int, int]]:
    """The pads in `explicit_paddings`, which lists two for each axis."""
    begin_pads = layout.spatial(g, paddings[::2], "explicit_paddings", 0)
    return list(zip(begin_pads, layout.spatial(g, paddings[1::2], "explicit_paddings", 0), strict=True))


def same_pads(g: GraphContext, size: Size, extent: Size, stride: int) -> tuple[Size, Size]:
    """The pads of SAME along one dimension: `ceil(size / stride)` windows; an odd pad is added at the end.

    Args:
        extent: the number of elements from the first to the last of a window, gaps of a dilation included.
    """
    if extent == 1:
        return 0, 0
    # The total does not depend on the size.
    if stride == 1:
        total: Size = compute(g, "sub", extent, 1)
    else:
        count = compute(g, "floordiv", compute(g, "add", size, stride - 1), stride)
        reach = compute(g, "mul", compute(g, "sub", count, 1), stride)
        total = compute(g, "sub", compute(g, "add", reach, extent), size)
        total = compute(g, "max", total, 0)
    return split_pad(g, total)


def split_pad(g: GraphContext, total: Size) -> tuple[Size, Size]:
    """Split the total padding of SAME into begin and end; an odd pad goes to the end."""
    pad_before = compute(g, "floordiv", total, 2)
    return pad_before, compute(g, "sub", total, pad_before)


def window_pads(
    g: GraphContext,
    layout: DataLayout,
    input: Value,
    extents: Sequence[Size],
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
) -> Pads:
    """The pads of windows over an input with channels at axis 1."""
    if padding == "VALID":
        return [(0, 0)] * layout.dimensions
    if padding == "EXPLICIT":
        return list(explicit_pads(g, layout, explicit_paddings))
    if padding != "SAME":
        raise g.refuse(f"padding '{padding}' is not supported")
    pairs = enumerate(zip(extents, strides, strict=True))
    return [
        # A window of one element, or a stride of 1, needs no size.
        same_pads(g, g.size(input, 2 + i) if extent != 1 and stride > 1 else 0, extent, stride)
        for i, (extent, stride) in pairs
    ]


def constant_pads(pads: Pads) -> list[int] | None:
    """The pads in ONNX's order, all begins, then all ends; None if one of them is computed."""
    pads_in_order = [pair[0] for pair in pads] + [pair[1] for pair in pads]
    return pads_in_order if all(isinstance(item, int) for item in pads_in_order) else None  # type: ignore[return-value]


def pad_images(g: GraphContext, input: Value, pads: Pads, value: float | int = 0) -> Value:
    """Pad the input, `[N, C, spatial...]`."""
    if constant_pads(pads) == [0] * (2 * len(pads)):
        return input
    begins: list[Size] = [0, 0, *(pair[0] for pair in pads)]
    ends: list[Size] = [0, 0, *(pair[1] for pair in pads)]
    dtype = g.dtype(input)
    if dtype in dtypes.INTEGERS and dtype != DataType.INT64 and not g.has_kernel("Pad", input):
        # Runtimes pad no narrow integers, and INT32 holds them exactly.
        padded_int32 = g.call("composed::pad", g.cast(input, DataType.INT32), begins, ends, value)
        return g.cast(padded_int32, dtype)
    return g.call("composed::pad", input, begins, ends, value)
