"""A weight and its quantized forms, which are computed when they are written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphError
from .blocks import Blocks, Scheme, pack_nibbles, pack_nibbles_flat, quantize, transpose_in_tiles


class Latest:
    """Keeps the matrix that was quantized last: its codes, scales and zero points are written together."""

    def __init__(self) -> None:
        self._owner: QuantizedWeight | None = None
        self._blocks: Blocks | None = None

    def get(self, owner: QuantizedWeight, compute: Callable[[], Blocks]) -> Blocks:
        """The matrix of a weight."""
        if self._owner is not owner or self._blocks is None:
            self._blocks = None
            self._owner, self._blocks = owner, compute()
        return self._blocks


@dataclasses.dataclass(frozen=True)
class Errors:
    """The difference between a quantized weight and the original one.

    Attributes:
        largest: the largest absolute error.
        total: the sum of absolute errors.
        largest_weight: the largest absolute value of the weight.
        total_weight: the sum of its absolute values.
    """

    largest: float
    total: float
    largest_weight: float
    total_weight: float


class QuantizedWeight:
    """A matrix that is quantized along one axis.

    Attributes:
        name: of the initializer.
        shape: of the initializer.
        axis: the axis that products sum over, 0 or 1.
        per_channel: whether each row or column has one scale.
        block_size: elements that share a scale; with `per_channel`, the whole axis.
        scale_dtype: of the scales as they are computed.
        bytes_before: of the initializer.
        bytes_after: of the initializers that replace it.
    """

    def __init__(
        self,
        name: str,
        tensor: ir.TensorProtocol,
        axis: int,
        scheme: Scheme,
        per_channel: bool,
        latest: Latest,
    ):
        self.name = name
        self.shape: tuple[int, ...] = tuple(tensor.shape.numpy())
        self.axis = axis
        self.scheme = scheme
        self.rows, self.columns = (self.shape[1 - axis], self.shape[axis])
        self.per_channel = per_channel
        self.block_size = self.columns if per_channel else scheme.block_size
        self.blocks = -(-self.columns // self.block_size)
        self.dtype = tensor.dtype
        self.scale_dtype = DataType.FLOAT16 if scheme.is_ggml else tensor.dtype
        self.bytes_before = tensor.nbytes
        self.bytes_after = 0
        self._tensor = tensor
        self._latest = latest
        self._errors: Errors | None = None

    def expected_bytes(self, padded: bool) -> int:
        """The bytes of codes, scales and zero points.

        Args:
            padded: whether rows are stored as whole blocks.
        """
        zeros = 0 if self.scheme.symmetric else self.blocks
        # The last block of a row may be partly filled.
        columns = self.blocks * self.block_size if padded else self.columns
        bits = self.rows * (self.scheme.bits * (columns + zeros) + self.scale_dtype.bitwidth * self.blocks)
        return math.ceil(bits / 8)

    @property
    def errors(self) -> Errors:
        """The errors, which are known once the contents have been computed."""
        if self._errors is None:
            self._contents()
        assert self._errors is not None
        return self._errors

    def check(self) -> None:
        """Read the weight.

        Raises:
            GraphError: it contains an infinity or NaN, or numbers beyond the range of scales.
        """
        try:
            self.scheme.check_largest(float(np.abs(self._tensor.numpy()).max(initial=0)))
        except ValueError as error:
            raise GraphError(f"the weight '{self.name}' cannot be quantized: {error}") from None

    def _contents(self) -> Blocks:
        return self._latest.get(self, self._compute)

    def _compute(self) -> Blocks:
        array = self._tensor.numpy()
        matrix = array if self.axis == 1 else array.T
        try:
            blocks = quantize(matrix, self.scheme, self.block_size, self.scale_dtype.numpy())
        except ValueError as error:
            raise GraphError(f"the weight '{self.name}' cannot be quantized: {error}") from None
        self._errors = Errors(blocks.worst, blocks.total_error, blocks.largest, blocks.total)
        return blocks

    def _orient(self, array: np.ndarray) -> np.ndarray:
        """Rows of the quantized matrix as the initializer has them."""
        return array if self.axis == 1 else transpose_in_tiles(array)

    def elements(self) -> ir.TensorProtocol:
        """The elements in the shape of the initializer, as DequantizeLinear reads them.

        Symmetric ones have a sign, and a zero point of 0.
        """
        bits, symmetric = self.scheme.bits, self.scheme.symmetric
        dtype = DataType[f"{'' if symmetric else 'U'}INT{bits}"]
        mask = (1 << bits) - 1

        def compute() -> np.ndarray:
            codes = self._contents().codes.reshape(self.rows, -1)[:, : self.columns]
            codes = self._orient(codes)
            # Two's complement: without the middle, negative numbers wrap around.
            codes = (codes - np.uint8(self.scheme.middle)) & np.uint8(mask) if symmetric else codes
            return np.ascontiguousarray(codes) if bits == 8 else pack_nibbles_flat(codes)

        return self._lazy(compute, dtype, self.shape)

    def rows_of_bytes(self) -> ir.TensorProtocol:
        """The unsigned elements `[rows, blocks, bytes]`, in the layout of MatMulNBits."""
        size = self.block_size * self.scheme.bits // 8

        def compute() -> np.ndarray:
            codes = self._contents().codes
            return codes if self.scheme.bits == 8 else pack_nibbles(codes)

        return self._lazy(compute, DataType.UINT8, (self.rows, self.blocks, size))

    def scales(self, dtype: ir.DataType, *, oriented: bool) -> ir.TensorProtocol:
        """The scales: oriented as the initializer, one per channel, or `[rows, blocks]`."""

        def compute() -> np.ndarray:
            return self._arrange(self._contents().scales, oriented).astype(dtype.numpy(), copy=False)

        return self._lazy(compute, dtype, self._arrangement(oriented))

    def zeros(self, *, oriented: bool) -> ir.TensorProtocol:
        """The zero points, in bytes or, oriented, in the type of the elements."""
        dtype = DataType[f"UINT{self.scheme.bits}"] if oriented else DataType.UINT8

        def compute() -> np.ndarray:
            zeros = self._arrange(self._contents().zeros, oriented)
            return pack_nibbles_flat(zeros) if dtype.bitwidth < 8 else zeros

        return self._lazy(compute, dtype, self._arrangement(oriented))

    def zero_bytes(self) -> ir.TensorProtocol:
        """The zero points `[rows, bytes]`, in the layout of MatMulNBits."""
        width = -(-self.blocks * self.scheme.bits // 8)

        def compute() -> np.ndarray:
            zeros = self._contents().zeros
            if self.scheme.bits == 8:
                return zeros
            return pack_nibbles(np.pad(zeros, ((0, 0), (0, self.blocks % 2))))

        return self._lazy(compute, DataType.UINT8, (self.rows, width))

    def _arrangement(self, oriented: bool) -> tuple[int, ...]:
        if not oriented:
            return self.rows, self.blocks
        if self.per_channel:
            return (self.rows,)
        return (self.rows, self.blocks) if self.axis == 1 else (self.blocks, self.rows)

    def _arrange(self, array: np.ndarray, oriented: bool) -> np.ndarray:
        return self._orient(array).reshape(self._arrangement(oriented)) if oriented else array

    def _lazy(
        self, compute: Callable[[], np.ndarray], dtype: ir.DataType, shape: tuple[int, ...]
    ) -> ir.TensorProtocol:
        def tensor() -> ir.TensorProtocol:
            array = compute()
            if dtype.bitwidth < 8:
                return ir.PackedTensor(array, dtype, shape=ir.Shape(shape))
            return ir.Tensor(array.view(dtype.numpy()), dtype=dtype, shape=ir.Shape(shape))

        lazy_tensor = ir.LazyTensor(tensor, dtype=dtype, shape=ir.Shape(shape))
        # Counted here, because a form adds each of its tensors once.
        self.bytes_after += lazy_tensor.nbytes
        return lazy_tensor
