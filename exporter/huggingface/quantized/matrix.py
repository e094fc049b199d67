"""`QuantizedMatrix`: the weight of a layer as integers, with a scale for each group of columns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ....registration import DataType
from ....registration.integer_tensors import BoundedTensor


@dataclasses.dataclass(frozen=True)
class QuantizedMatrix:
    """The matrix `(codes - zeros) * scales`, with a row for each output of a layer.

    Attributes:
        codes: INT8 `[rows, columns]`, unpacked when they are read.
        scales: `[rows, groups]` in a float type.
        zeros: INT32 like `scales`; None for 0.
        bits: of a code; the lowest is `-2 ** (bits - 1)`.
        order: the number of the input that each column of `codes` is for; None if they are in order.
    """

    codes: ir.TensorProtocol
    scales: ir.TensorProtocol
    zeros: ir.TensorProtocol | None
    bits: int
    order: np.ndarray | None = None

    @property
    def group_size(self) -> int:
        """The number of columns with a common scale."""
        return int(self.codes.shape.numpy()[1]) // int(self.scales.shape.numpy()[1])

    @property
    def tensors(self) -> dict[str, ir.TensorProtocol]:
        """The tensors by the names of the buffers of `DequantizedLinear`."""
        tensors = {"codes": self.codes, "scales": self.scales}
        if self.zeros is not None:
            tensors["zeros"] = self.zeros
        if self.order is not None:
            tensors["order"] = ir.Tensor(self.order.astype(np.int64))
        return tensors

    def dequantize(self) -> np.ndarray:
        """The matrix in FLOAT, its columns in the order of the inputs."""
        codes, scales = self.codes.numpy(), self.scales.numpy().astype(np.float32)
        groups = codes.reshape(*scales.shape, -1).astype(np.float32)
        if self.zeros is not None:
            groups -= self.zeros.numpy()[..., None]
        matrix = (groups * scales[..., None]).reshape(codes.shape)
        return matrix if self.order is None else matrix[:, np.argsort(self.order)]


def matrix_in_groups(
    codes: Callable[[], np.ndarray],
    shape: tuple[int, int],
    scales: ir.TensorProtocol,
    zeros: Callable[[], np.ndarray] | None,
    bits: int,
    groups: np.ndarray,
) -> QuantizedMatrix:
    """A matrix whose groups may have any columns.

    Args:
        codes: computes the signed integers, of the given shape.
        shape: rows and columns.
        scales: `[groups, rows]`.
        zeros: computes the signed zero points `[groups, rows]`.
        bits: of a code.
        groups: the number of the group of each column.
    """
    rows = shape[0]
    # Symmetric weights have the middle as zero points, which is 0 for signed integers.
    if zeros is not None and not np.any(zeros()):
        zeros = None
    is_ordered = bool(np.all(np.diff(groups) >= 0))
    order = None if is_ordered else np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    # Groups of several sizes are divided into equal ones.
    size = math.gcd(*(int(count) for count in sizes if count))
    repeated = np.repeat(np.arange(len(sizes)), sizes // size)

    def arrange(parameter: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(parameter.T[:, repeated])

    def ordered_codes() -> np.ndarray:
        return codes() if order is None else codes()[:, order]

    shape_of_groups = (rows, len(repeated))
    return QuantizedMatrix(
        lazy_tensor(ordered_codes, DataType.INT8, shape, (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
        lazy_tensor(lambda: arrange(scales.numpy()), scales.dtype, shape_of_groups),
        None if zeros is None else lazy_tensor(lambda: arrange(zeros()), DataType.INT32, shape_of_groups),
        bits,
        order,
    )


def lazy_tensor(
    compute: Callable[[], np.ndarray],
    dtype: ir.DataType,
    shape: tuple[int, ...],
    bounds: tuple[int, int] | None = None,
) -> ir.TensorProtocol:
    """A tensor whose contents are computed at each use.

    Args:
        compute: the contents.
        dtype: of the tensor.
        shape: of the tensor.
        bounds: of integers, if they are known.
    """

    def make() -> ir.TensorProtocol:
        return ir.Tensor(np.ascontiguousarray(compute().astype(dtype.numpy(), copy=False)), dtype=dtype)

    if bounds is not None:
        return BoundedTensor(make, dtype, ir.Shape(shape), bounds)
    return ir.LazyTensor(make, dtype=dtype, shape=ir.Shape(shape))
