"""Gradients of padding with the values at the edges."""

import numpy as np

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import known_rank
from ....compositions.spatial.windows import spatial_sizes
from .axis_products import multiply_along


def _register(dimensions: int) -> None:
    @onnx_symbolic(f"aten::replication_pad{dimensions}d_backward")
    def replication_pad_backward(
        g: GraphContext, grad_output: Value, self: Value, padding: list[int]
    ) -> Value:
        """A product with the one-hot matrix of the source positions along each dimension."""
        sizes = spatial_sizes(g, self, dimensions)
        if sizes is None:
            raise g.refuse("the spatial sizes must be known")
        rank, result = known_rank(g, self), grad_output
        for i, size in enumerate(sizes):
            leading, trailing = padding[2 * (dimensions - 1 - i) : 2 * (dimensions - i)]
            if leading or trailing:
                g.reserve(leading + size + trailing, size)
                source = np.clip(np.arange(-leading, size + trailing), 0, size - 1)
                matrix = g.constant(np.eye(size)[source], g.dtype(grad_output) or DataType.FLOAT)
                result = multiply_along(g, result, rank - dimensions + i, rank, matrix)
        return result


for _dimensions in (1, 2, 3):
    _register(_dimensions)
