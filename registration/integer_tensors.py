"""Tensors of integers whose bounds are known without reading them."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir


class BoundedTensor(ir.LazyTensor):
    """Integers that are computed at each use, within known bounds.

    Args:
        compute: makes the tensor.
        dtype: of its elements.
        shape: of the tensor.
        bounds: the lowest and the highest integer that may occur.
        name: of the tensor.
    """

    __slots__ = ("_compute", "bounds")

    def __init__(
        self,
        compute: Callable[[], ir.TensorProtocol],
        dtype: ir.DataType,
        shape: ir.Shape,
        bounds: tuple[int, int],
        name: str | None = None,
    ):
        super().__init__(compute, dtype=dtype, shape=shape, name=name)
        # The base class has no public attribute for it.
        self._compute = compute
        self.bounds = bounds

    def with_name(self, name: str) -> BoundedTensor:
        """The same contents under another name."""
        return BoundedTensor(self._compute, self.dtype, ir.Shape(self.shape.numpy()), self.bounds, name)


def integer_bounds(tensor: ir.TensorProtocol) -> tuple[int, int]:
    """Return the lowest and highest integer of a tensor; for a packed one, the limits of its type.

    Tensors of other classes are read. An empty one has the bounds 0 and 0.
    """
    if isinstance(tensor, BoundedTensor):
        return tensor.bounds
    if tensor.dtype in (ir.DataType.INT4, ir.DataType.UINT4):
        return (-8, 7) if tensor.dtype == ir.DataType.INT4 else (0, 15)
    # The bounds of the type would be wider, so that 4-bit integers in bytes would not be recognised.
    array = tensor.numpy()
    return (int(array.min()), int(array.max())) if array.size else (0, 0)
