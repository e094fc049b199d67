"""Writes products with dequantized constants as MatMulNBits, onnxruntime's operator for few-bit weights.

1. The right operand of a MatMul or Gemm is a constant behind DequantizeLinear. Between them is a Reshape,
   a Transpose or a Cast at most.
2. The constant is a matrix of integers of 4 or 8 bits. Each column of the product has a scale, or one for
   each block of a power of two elements, 16 or more, that it sums over.
3. Integers of 8 bits that fit 4 bits are stored in 4 bits.
4. The left operand is FLOAT or FLOAT16, of two dimensions or more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext
from ...registration.arguments import every_node
from ...registration.integer_tensors import integer_bounds
from ..onnx_graph.simplification.unused_nodes import RemoveUnused
from ..realizers.rewriting import Rewriter, attribute, constant_of, is_onnx
from .blocks import SMALLEST_BLOCK, pack_nibbles
from .forms import MICROSOFT
from .quantize_weights import is_plain_product, with_bias

_INTEGERS = (DataType.INT4, DataType.INT8, DataType.UINT4, DataType.UINT8)
"""The types that weights are stored in."""
_LARGEST_BLOCK = 256
"""onnxruntime has fast kernels up to this size."""
_BEHIND = ("Cast", "Reshape", "Transpose")


@dataclasses.dataclass(frozen=True)
class _Matrix:
    """A dequantized constant with a row for each column of a product.

    Attributes:
        name: of the stored integers.
        codes: the stored integers, which `arrange` puts into rows.
        scales: the scales, in any arrangement that has one row for each row of the matrix.
        zeros: the zero points in the same arrangement, or None.
        rows, columns: the shape of the matrix.
        block: elements of a row that share a scale.
        is_transposed: whether codes, and scales of two dimensions, have rows and columns exchanged.
    """

    name: str
    codes: ir.TensorProtocol
    scales: ir.TensorProtocol
    zeros: ir.TensorProtocol | None
    rows: int
    columns: int
    block: int
    is_transposed: bool

    def arrange(self, tensor: ir.TensorProtocol, columns: int) -> np.ndarray:
        """The contents of a tensor in rows of the matrix."""
        array = tensor.numpy()
        if array.size == 1:
            return np.full((self.rows, columns), array.reshape(()))
        array = array.T if self.is_transposed and array.ndim == 2 else array
        return array.reshape(self.rows, -1)


class WriteMatMulNBits(ir.passes.InPlacePass):
    """Replaces products with dequantized weights for a target that takes onnxruntime's own operators."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        rewriter = Rewriter(model)
        weights: dict[tuple[ir.Value, bool], _StoredWeight | None] = {}
        modified = False
        for node in every_node(model.graph):
            if not is_onnx(node, "MatMul", "Gemm") or not is_plain_product(node):
                continue
            x, operand = node.inputs[:2]
            if x is None or operand is None or x.dtype not in (DataType.FLOAT, DataType.FLOAT16):
                continue
            key = operand, is_onnx(node, "Gemm") and bool(attribute(node, "transB", 0))
            if key not in weights:
                matrix = _matrix_of(*key)
                weights[key] = None if matrix is None else _StoredWeight(matrix, x.dtype, rewriter)
            weight = weights[key]
            if weight is None or weight.dtype != x.dtype:
                continue
            with rewriter.before(node) as g:
                result = with_bias(g, node, weight.emit_product(g, x))
            rewriter.replace(node, [result])
            modified = True
        if modified:
            RemoveUnused()(model)
            model.graph.opset_imports[MICROSOFT] = 1
        return ir.passes.PassResult(model, modified)


class _StoredWeight:
    """The initializers of a weight in the layout of MatMulNBits; contents are computed when written.

    Args:
        matrix: the constant as it is stored now.
        dtype: the type of scales, which is that of the product.
    """

    def __init__(self, matrix: _Matrix, dtype: DataType, rewriter: Rewriter):
        self.dtype = dtype
        self._matrix = matrix
        # torchao stores integers of 4 bits in bytes.
        low, high = (-8, 7) if matrix.codes.dtype in (DataType.INT4, DataType.INT8) else (0, 15)
        tensors = [matrix.codes] if matrix.zeros is None else [matrix.codes, matrix.zeros]
        bounds = (integer_bounds(tensor) for tensor in tensors)
        self._bits = 4 if all(low <= lowest and highest <= high for lowest, highest in bounds) else 8
        self._middle = 1 << (self._bits - 1)
        blocks = -(-matrix.columns // matrix.block)
        self._blocks = blocks
        width = matrix.block * self._bits // 8
        self._add = rewriter.initializer
        self._inputs = [
            self._lazy("quantized_bytes", self._bytes, DataType.UINT8, (matrix.rows, blocks, width)),
            self._lazy("scales", self._scales, dtype, (matrix.rows, blocks)),
        ]
        # Without zero points, MatMulNBits subtracts the middle of the unsigned range.
        if matrix.zeros is not None and np.any(
            _as_unsigned(matrix.zeros.numpy(), matrix.zeros.dtype, self._bits) != self._middle
        ):
            shape = (matrix.rows, -(-blocks * self._bits // 8))
            self._inputs.append(self._lazy("zero_points", self._zeros, DataType.UINT8, shape))
        elif matrix.zeros is None and matrix.codes.dtype in (DataType.UINT4, DataType.UINT8):
            shape = (matrix.rows, -(-blocks * self._bits // 8))
            self._inputs.append(
                self._lazy("zero_points", lambda: np.zeros(shape, np.uint8), DataType.UINT8, shape)
            )

    def emit_product(self, g: GraphContext, x: ir.Value) -> ir.Value:
        """The product of a value and the matrix."""
        result = g.op(
            f"{MICROSOFT}::MatMulNBits",
            x,
            *self._inputs,
            outputs=1,
            K=self._matrix.columns,
            N=self._matrix.rows,
            bits=self._bits,
            block_size=self._matrix.block,
        )
        result.type = ir.TensorType(self.dtype)
        return result

    def _bytes(self) -> np.ndarray:
        matrix = self._matrix
        rows = matrix.arrange(matrix.codes, matrix.columns)
        codes = _as_unsigned(rows, matrix.codes.dtype, self._bits)
        padding = self._blocks * matrix.block - matrix.columns
        blocks = np.pad(codes, ((0, 0), (0, padding))).reshape(matrix.rows, self._blocks, matrix.block)
        return blocks if self._bits == 8 else pack_nibbles(blocks)

    def _scales(self) -> np.ndarray:
        return self._repeat(self._matrix.scales).astype(self.dtype.numpy())

    def _zeros(self) -> np.ndarray:
        assert self._matrix.zeros is not None
        zeros = _as_unsigned(self._repeat(self._matrix.zeros), self._matrix.zeros.dtype, self._bits)
        return zeros if self._bits == 8 else pack_nibbles(np.pad(zeros, ((0, 0), (0, self._blocks % 2))))

    def _repeat(self, tensor: ir.TensorProtocol) -> np.ndarray:
        """Scales or zero points, one for each block; those per row are repeated."""
        rows = self._matrix.arrange(tensor, 1)
        return np.repeat(rows, self._blocks, axis=1) if rows.shape[1] == 1 else rows

    def _lazy(
        self, suffix: str, compute: Callable[[], np.ndarray], dtype: DataType, shape: tuple[int, ...]
    ) -> ir.Value:
        def tensor() -> ir.TensorProtocol:
            return ir.Tensor(np.ascontiguousarray(compute()), dtype=dtype, shape=ir.Shape(shape))

        name = f"{self._matrix.name}_{suffix}"
        return self._add(name, ir.LazyTensor(tensor, dtype=dtype, shape=ir.Shape(shape)))


def _as_unsigned(array: np.ndarray, dtype: ir.DataType, bits: int) -> np.ndarray:
    """Integers without a sign, for which the middle of the range stands for 0 of signed ones."""
    is_signed = dtype in (DataType.INT4, DataType.INT8)
    return (array.astype(np.int16) + ((1 << (bits - 1)) if is_signed else 0)).astype(np.uint8)


def _matrix_of(operand: ir.Value, has_rows: bool) -> _Matrix | None:
    """The dequantized constant that a product reads; None if MatMulNBits cannot represent it.

    Args:
        has_rows: whether the operand has a row for each column of the product.
    """
    value, shape = operand, operand.shape
    is_transposed, is_reshaped = not has_rows, False
    while is_onnx(node := value.producer(), *_BEHIND):
        assert node is not None
        source = node.inputs[0]
        if source is None:
            return None
        if node.op_type == "Transpose":
            if is_reshaped or list(attribute(node, "perm", (1, 0))) != [1, 0]:
                return None
            is_transposed = not is_transposed
            shape = source.shape
        elif node.op_type == "Reshape":
            is_reshaped = True
        value = source
    if node is None or not is_onnx(node, "DequantizeLinear") or shape is None or not shape.is_static():
        return None
    inputs = (*node.inputs, None)[:3]
    codes, scales, zeros = (None if item is None else constant_of(item) for item in inputs)
    if (
        codes is None
        or scales is None
        or codes.dtype not in _INTEGERS
        or (inputs[2] is not None and zeros is None)
    ):
        return None
    sizes = tuple(shape.numpy())
    if len(sizes) != 2 or not codes.size:
        return None
    rows, columns = sizes[::-1] if is_transposed else sizes
    # Groups of a row may be the rows of the stored constant; other Reshapes do not occur.
    block = _block_of(node, tuple(codes.shape.numpy()), tuple(scales.shape.numpy()), sizes, is_transposed)
    if block is None:
        return None
    name = inputs[0].name if inputs[0] is not None else None
    return _Matrix(name or "weight", codes, scales, zeros, rows, columns, block, is_transposed)


def _block_of(
    node: ir.Node,
    stored: tuple[int, ...],
    scales: tuple[int, ...],
    shape: tuple[int, ...],
    is_transposed: bool,
) -> int | None:
    """The size of a block along the columns of the matrix; None if scales vary otherwise."""
    columns = shape[0] if is_transposed else shape[1]
    row_axis = 1 if is_transposed else 0
    axis = attribute(node, "axis", 1) % max(1, len(stored))
    whole = SMALLEST_BLOCK
    while whole < min(columns, _LARGEST_BLOCK):
        whole *= 2
    if stored != shape:
        # Each group is a row of its own.
        is_grouped = not is_transposed and axis == 0 and len(stored) == 2 and scales == stored[:1]
        is_grouped = is_grouped and shape[1] % stored[1] == 0
        return _valid_block(stored[1]) if is_grouped else None
    if not scales or scales == (1,):
        return whole
    block = attribute(node, "block_size", 0)
    if not block:
        return whole if len(scales) == 1 and axis == row_axis else None
    return _valid_block(block) if axis == 1 - row_axis else None


def _valid_block(block: int) -> int | None:
    return block if block >= SMALLEST_BLOCK and not block & (block - 1) else None
