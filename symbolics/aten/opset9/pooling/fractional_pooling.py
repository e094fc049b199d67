"""Max pooling over windows at positions computed from given random numbers.

Semantics: aten/src/ATen/native/FractionalMaxPool2d.cpp and FractionalMaxPool3d.cpp.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.matrices import dtype_of
from ....compositions.size_arithmetic import Size, compute, known_rank, product
from ....compositions.spatial.windows import is_unbatched, per_dimension


def _starts(g: GraphContext, sample: Value, size: Size, count: int, kernel: int) -> Value:
    """The starts of windows, `[N, C, count]`, from the sample `[N, C, 1]`; the last window is at the end."""
    dtype = dtype_of(g, sample)
    last = compute(g, "sub", size, kernel)
    gaps = max(count - 1, 1)
    if isinstance(last, int):
        scalar_type = dtype.numpy().type
        step = g.constant(np.asarray(scalar_type(last) / scalar_type(gaps)))
    else:
        step = g.op("Div", g.constant(last, dtype), float(gaps))

    def scale_to_integer(value: Value) -> Value:
        return g.cast(g.op("Mul", value, step), DataType.INT64)

    g.reserve(count)
    numbers = np.arange(count, dtype=np.int64)
    spread = g.op(
        "Sub", scale_to_integer(g.op("Add", sample, g.constant(numbers, dtype))), scale_to_integer(sample)
    )
    return g.op("Where", g.constant(numbers == count - 1), g.constant(last), spread)


def _windows(
    g: GraphContext, samples: Value, sizes: Sequence[Size], counts: list[int], kernel: list[int]
) -> Value:
    """The positions in their plane of the elements of each window, `[N, C, count..., kernel...]`."""
    dimensions, axis_positions = len(kernel), []
    stride: Size = 1
    rank = 2 + 2 * dimensions
    for index in reversed(range(dimensions)):
        # The first of two samples is for the width.
        sample_index = 1 - index if dimensions == 2 else index
        sample = g.call("aten::slice", self=samples, dim=2, start=sample_index, end=sample_index + 1)
        starts = _starts(g, sample, sizes[index], counts[index], kernel[index])
        starts = g.op("Unsqueeze", starts, axes=[axis for axis in range(2, rank) if axis != 2 + index])
        shape = [-1 if axis == index else 1 for axis in range(dimensions)]
        g.reserve(kernel[index])
        offsets = np.arange(kernel[index], dtype=np.int64).reshape(shape)
        axis_positions.append(g.op("Mul", g.op("Add", starts, offsets), g.constant(stride)))
        stride = compute(g, "mul", stride, sizes[index])
    return functools.reduce(lambda a, b: g.op("Add", a, b), axis_positions)


def _register(dimensions: int) -> None:
    @onnx_symbolic(f"aten::fractional_max_pool{dimensions}d")
    def fractional_max_pool(
        g: GraphContext, self: Value, kernel_size: list[int], output_size: list[int], random_samples: Value
    ) -> tuple[Value, Value]:
        """The largest element of each window, and its position in its plane."""
        if g.dtype(random_samples) not in (DataType.FLOAT, DataType.DOUBLE):
            raise g.refuse(
                "half precision is not supported, because the windows depend on how a runtime rounds"
            )
        known_rank(g, self)
        unbatched = is_unbatched(g, self, dimensions)
        input = g.op("Unsqueeze", self, axes=[0]) if unbatched else self
        if unbatched:
            # The module may draw samples for more images; use those of the first one.
            random_samples = g.call("aten::slice", self=random_samples, dim=0, start=0, end=1)
        kernel, counts = per_dimension(kernel_size, dimensions), per_dimension(output_size, dimensions)
        sizes = [g.size(input, 2 + index) for index in range(dimensions)]
        leading = [g.size(input, 0), g.size(input, 1)]
        positions = _windows(g, random_samples, sizes, counts, kernel)
        flat = g.op("Reshape", positions, [*leading, math.prod(counts) * math.prod(kernel)])
        planes = g.op("Reshape", input, [*leading, product(g, sizes)])
        windows = g.op("GatherElements", planes, flat, axis=2)
        window_shape = [*leading, math.prod(counts), math.prod(kernel)]
        windows, positions = (g.op("Reshape", tensor, window_shape) for tensor in (windows, flat))
        values = g.op("ReduceMax", windows, axes=[3], keepdims=0)
        largest_index = g.op("ArgMax", windows, axis=3, keepdims=1)
        largest_index.shape = ir.Shape(
            [*(size if isinstance(size, int) else None for size in window_shape[:3]), 1]
        )
        indices = g.op("Squeeze", g.op("GatherElements", positions, largest_index, axis=3), axes=[3])
        results = [g.op("Reshape", tensor, [*leading, *counts]) for tensor in (values, indices)]
        first, second = (g.op("Squeeze", tensor, axes=[0]) if unbatched else tensor for tensor in results)
        return first, second


_register(2)
_register(3)
