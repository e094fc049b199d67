"""ONNX pass: folds a constant factor after a linear layer into its weight and bias.

    MatMul(x, w) [-> Add(bias)] [-> Reshape, Transpose, ...] -> Mul or Div by a number

1. Only the next node reads each of these results, and none is an output of a graph.
2. Weight and bias are constants without other readers. The new ones are computed when they are written.
3. Directly after MatMul or Add the factor may also be a vector with a number for each column.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..constants.deferred_constants import transposed_blocks, transposed_matrix
from ..constants.reused_memory import empty
from ..node_pass import ConstantPass, removable_producer, replace_by_value
from ..pass_order import Run
from .scaled_weights import scaled_blocks

_MOVES = ("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten")
_FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)


class FoldLinearScales(ConstantPass):
    """Removes factors after MatMuls."""

    runs = (
        Run("full", after={"FoldScales": "It takes the factors that do not follow their product directly."}),
    )
    op_types = ("Div", "Mul")

    def rewrite(self, node: ir.Node) -> bool:
        """Fold a factor into the layer before it."""
        a, b = node.inputs
        for operand, factor in ((a, b),) if node.op_type == "Div" else ((a, b), (b, a)):
            if operand is None or factor is None or not self.initializers.is_constant(factor):
                continue
            numbers = factor.const_value
            if numbers is None or len(numbers.shape) > 1 or numbers.dtype not in _FLOATS:
                continue
            layer = self._layer(operand, node, is_number=numbers.size == 1)
            if layer is not None and self._scale(*layer, numbers.numpy(), node.op_type == "Div"):
                if operand.shape is None:
                    operand.shape = node.outputs[0].shape
                replace_by_value(node, operand)
                return True
        return False

    def _layer(
        self, value: ir.Value, reader: ir.Node, is_number: bool
    ) -> tuple[ir.Node, ir.Node | None] | None:
        """The MatMul that a value comes from, and the Add of its bias if there is one."""
        node = removable_producer(reader, value)
        # A single number can pass changes of shape; numbers by column belong to the last dimension.
        while is_number and node is not None and node.op_type in _MOVES:
            node = removable_producer(node, node.inputs[0])
        if node is None:
            return None
        if node.op_type == "MatMul":
            return node, None
        if node.op_type != "Add":
            return None
        for index in (0, 1):
            product, bias = node.inputs[index], node.inputs[1 - index]
            matmul = removable_producer(node, product, "MatMul")
            if matmul is not None and bias is not None and len(bias.shape or ()) == 1:
                return matmul, node
        return None

    def _scale(self, product: ir.Node, addition: ir.Node | None, numbers: np.ndarray, divides: bool) -> bool:
        weight = product.inputs[1]
        if weight is None or not self._is_exclusive(weight) or len(weight.shape or ()) != 2:
            return False
        columns = weight.shape[1]  # type: ignore[index]
        index, bias = 0, None
        if addition is not None:
            index = 1 if addition.inputs[0] is product.outputs[0] else 0
            bias = addition.inputs[index]
            if bias is None or not self._is_exclusive(bias) or bias.shape is None or bias.shape[0] != columns:
                return False
        if numbers.size not in (1, columns) or ir.DataType.from_numpy(numbers.dtype) != weight.dtype:
            return False
        wide = numbers.reshape(-1).astype(np.float64)
        with np.errstate(all="ignore"):
            factor = 1.0 / wide if divides else wide
        # A division by 0 would turn all weights into infinities.
        if not np.isfinite(factor).all():
            return False
        product.replace_input_with(1, self._scale_constant(weight, factor))
        if addition is not None and bias is not None:
            addition.replace_input_with(index, self._scale_constant(bias, factor))
        return True

    def _is_exclusive(self, value: ir.Value) -> bool:
        is_exclusive = (
            self.initializers.is_constant(value) and len(value.uses()) == 1 and not value.is_graph_output()
        )
        return is_exclusive and value.dtype in _FLOATS

    def _scale_constant(self, value: ir.Value, factor: np.ndarray) -> ir.Value:
        """A weight or bias times a factor, or a factor for each column."""
        if value in self.initializers.transposed:
            # The stored matrix is scaled by its rows: a Gemm can then do without the transposed copy.
            scaled = self._scale_constant(self.initializers.restore(value), factor.reshape(-1, 1))
            assert scaled.const_value is not None
            rows, columns = scaled.const_value.shape.numpy()
            copy = self.initializers.derive(
                [scaled],
                transposed_matrix,
                scaled.const_value.dtype,
                (columns, rows),
                suffix="transposed",
                blocks=transposed_blocks,
            )
            self.initializers.transposed[copy] = scaled
            return copy
        assert value.const_value is not None
        tensor = value.const_value

        return self.initializers.derive(
            [value],
            lambda array: _multiply_in_float32(array, factor),
            tensor.dtype,
            tuple(tensor.shape.numpy()),
            suffix="scaled",
            blocks=lambda array: scaled_blocks(array, factor, _multiply_in_float32),
        )


def _multiply_in_float32(array: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """The product, of half precision computed as float32."""
    compute_dtype = array.dtype if array.dtype.itemsize >= 4 else np.dtype(np.float32)
    result = empty(array.shape, compute_dtype)
    np.multiply(array.astype(compute_dtype, copy=False), factor.astype(compute_dtype, copy=False), out=result)
    return result.astype(array.dtype, copy=False)
