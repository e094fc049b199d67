"""Pooling over windows, and adaptive pooling."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from .....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....compositions.outputs import is_used
from ....compositions.spatial.sliding import Slide, average_windows, largest
from ....compositions.spatial.windows import is_unbatched, per_dimension, spatial_sizes


@dataclasses.dataclass(frozen=True)
class PoolingWindow:
    """A pooling window, with one number per spatial dimension in each list."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    ceil_mode: bool

    @classmethod
    def of(
        cls,
        dimensions: int,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> "PoolingWindow":
        kernel = per_dimension(kernel_size, dimensions)
        return cls(
            kernel,
            per_dimension(stride, dimensions) if stride else kernel,
            per_dimension(padding, dimensions),
            per_dimension(dilation, dimensions),
            ceil_mode,
        )

    def right_pads(self, sizes: list[int]) -> list[int]:
        """Pads on the right with which floor gives the same count as ATen's ceil (`pooling_output_shape`).

        A last window counts when it begins inside the input or its left padding.
        """
        result = []
        for size, k, s, p, d in zip(
            sizes, self.kernel, self.stride, self.padding, self.dilation, strict=True
        ):
            extent = d * (k - 1) + 1
            count = -(-(size + 2 * p - extent) // s) + 1
            # A window that would begin in the right padding does not count.
            if (count - 1) * s >= size + p:
                count -= 1
            result.append(max(p, (count - 1) * s + extent - size - p))
        return result

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            "kernel_shape": self.kernel,
            "strides": self.stride,
            "dilations": self.dilation if set(self.dilation) != {1} else None,
        }

    def slides(self, g: GraphContext, input: Value) -> list[Slide]:
        """The windows along each spatial dimension."""
        numbers = zip(self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return [
            Slide.over(g, g.size(input, 2 + i), kernel, stride, (pad, pad), dilation, self.ceil_mode)
            for i, (kernel, stride, pad, dilation) in enumerate(numbers)
        ]

    def pads(self, g: GraphContext, input: Value) -> dict[str, Any]:
        """The pads, and `ceil_mode` where the sizes are unknown or the pads would outgrow the window."""
        if self.ceil_mode:
            sizes = spatial_sizes(g, input, len(self.kernel))
            right = None if sizes is None else self.right_pads(sizes)
            # Runtimes refuse pads that are as large as the window.
            if right is None or any(pad >= k for pad, k in zip(right, self.kernel, strict=True)):
                return {"pads": self.padding * 2, "ceil_mode": 1}
            return {"pads": self.padding + right}
        return {"pads": self.padding * 2}


def as_batch(g: GraphContext, input: Value, dimensions: int) -> tuple[Value, Callable[[Value], Value]]:
    """The input with a batch dimension, and a function that removes it from a result."""
    if not is_unbatched(g, input, dimensions):
        return input, lambda value: value
    return g.op("Unsqueeze", input, axes=[0]), lambda value: g.op("Squeeze", value, axes=[0])


def _has_kernel(g: GraphContext, input: Value) -> bool:
    """Whether runtimes have a MaxPool for the element type; onnxruntime's first one takes only FLOAT."""
    dtype = g.dtype(input)
    if dtype in (DataType.INT64, DataType.UINT64):
        return False
    return dtype not in (DataType.DOUBLE, DataType.INT32, DataType.UINT32) or g.has(
        "MaxPool", "storage_order"
    )


def max_pool_windows(
    g: GraphContext, input: Value, window: PoolingWindow, indices: bool
) -> tuple[Value, Value | None]:
    """MaxPool; if it has no kernel or returns no positions, gathered windows.

    Positions are those in their own plane.
    """
    attributes = {**window.attributes, **window.pads(g, input)}
    argument_names = [name for name, value in attributes.items() if value is not None]
    if not _has_kernel(g, input) or (indices and not g.has("MaxPool", "storage_order", *argument_names)):
        return largest(g, input, window.slides(g, input), indices)
    # Below 22 onnx's inference miscounts the windows of `ceil_mode` along dimensions whose size is known.
    # The ladder then writes pads instead, except for positions in dilated windows of unknown sizes.
    has_form = not (indices and window.attributes["dilations"]) or spatial_sizes(g, input, len(window.kernel))
    emit = g.op_of_any_data if "ceil_mode" in attributes and has_form else g.op
    if not indices:
        return emit("MaxPool", input, **attributes), None
    values, positions = emit("MaxPool", input, **attributes, outputs=2)
    # MaxPool counts positions in the whole tensor, ATen in each plane.
    sizes = [g.size(input, axis) for axis in range(2, len(window.kernel) + 2)]
    plane = functools.reduce(lambda a, b: g.op("Mul", a, b), [g.constant(size) for size in sizes])
    return values, g.op("Sub", positions, g.op("Mul", g.op("Div", positions, plane), plane))


def _register_max_pool(name: str, dimensions: int, indices: bool) -> None:
    @onnx_symbolic(f"aten::{name}")
    def max_pool(
        g: GraphContext,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> Value | tuple[Value, Value | None]:
        window = PoolingWindow.of(dimensions, kernel_size, stride, padding, dilation, ceil_mode)
        batched, restore = as_batch(g, self, dimensions)
        values, positions = max_pool_windows(g, batched, window, indices=indices and is_used(g, 1))
        if not indices:
            return restore(values)
        return restore(values), None if positions is None else restore(positions)


def _avg_pool(
    g: GraphContext,
    input: Value,
    dimensions: int,
    window: PoolingWindow,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> Value:
    batched, restore = as_batch(g, input, dimensions)
    sizes = spatial_sizes(g, batched, dimensions)
    padding = window.padding
    right = padding
    if g.dtype(input) in dtypes.INTEGERS or not g.has_kernel("AveragePool", input):
        return restore(
            average_windows(g, batched, window.slides(g, batched), count_include_pad, divisor_override)
        )
    if window.ceil_mode:
        if sizes is None:
            return restore(_avg_pool_of_unknown_size(g, batched, window, count_include_pad, divisor_override))
        right = window.right_pads(sizes)
    if divisor_override is not None:
        pads = padding + right
        # The mean over all positions, padding included, times their number is the sum.
        summed = g.op("AveragePool", batched, **window.attributes, pads=pads, count_include_pad=1)
        return restore(g.op("Mul", summed, math.prod(window.kernel) / divisor_override))
    if right != padding and any(padding) and count_include_pad:
        # ATen counts its padding, but nothing beyond it: make the padding part of the input.
        batched = g.op("Pad", batched, pads=[0, 0, *padding] * 2, mode="constant", value=0.0)
        right = [max(r - p, 0) for r, p in zip(right, padding, strict=True)]
        padding = [0] * dimensions
    includes = count_include_pad and right == padding
    result = g.op(
        "AveragePool", batched, **window.attributes, pads=padding + right, count_include_pad=int(includes)
    )
    return restore(result)


def _avg_pool_of_unknown_size(
    g: GraphContext,
    input: Value,
    window: PoolingWindow,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    """With `ceil_mode`: windows over the right edge count only the elements that they cover."""
    attributes = {**window.attributes, "pads": window.padding * 2, "ceil_mode": 1, "count_include_pad": 0}
    counts = divisor_override is not None or (count_include_pad and any(window.padding))
    if counts:
        return average_windows(g, input, window.slides(g, input), count_include_pad, divisor_override)
    result: Value = g.op_of_any_data("AveragePool", input, **attributes)
    return result


def _register_avg_pool(dimensions: int) -> None:
    @onnx_symbolic(f"aten::avg_pool{dimensions}d")
    def avg_pool(
        g: GraphContext,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **divisor_override: int | None,
    ) -> Value:
        window = PoolingWindow.of(dimensions, kernel_size, stride, padding, [1], ceil_mode)
        return _avg_pool(g, self, dimensions, window, count_include_pad, **divisor_override)


for _dimensions in (1, 2, 3):
    _register_max_pool(f"max_pool{_dimensions}d", _dimensions, indices=False)
    _register_max_pool(f"max_pool{_dimensions}d_with_indices", _dimensions, indices=True)
    _register_avg_pool(_dimensions)
