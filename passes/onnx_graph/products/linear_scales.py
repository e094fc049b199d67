"""ONNX pass: folds a constant factor after a linear layer into its weight and bias.

    MatMul(x, w) [-> Add(bias)] [-> Reshape, Transpose, ...] -> Mul or Div by a number

1. Only the next node reads each of these results, and none is an output of a graph.
2. Weight and bias are constants without other readers. The new ones are computed when they are written.
3. Directly after MatMul or Add the factor may also be a vector with a number for each column.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..constants.reused_memory import empty
from ..node_pass import ConstantPass, removable_producer, replace_by_value
from ..pass_order import Run
from .linear_layer import LinearLayer, find_layer
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
            if layer is not None and self._scale(layer, numbers.numpy(), node.op_type == "Div"):
                if operand.shape is None:
                    operand.shape = node.outputs[0].shape
                replace_by_value(node, operand)
                return True
        return False

    def _layer(self, value: ir.Value, reader: ir.Node, is_number: bool) -> LinearLayer | None:
        """The layer that a value comes from, perhaps through changes of shape."""
        node = removable_producer(reader, value)
        # A single number can pass changes of shape; numbers by column belong to the last dimension.
        while is_number and node is not None and node.op_type in _MOVES and node.inputs[0] is not None:
            reader, value = node, node.inputs[0]
            node = removable_producer(reader, value)
        return find_layer(self.initializers, reader, value)

    def _scale(self, layer: LinearLayer, numbers: np.ndarray, divides: bool) -> bool:
        weight = layer.product.inputs[1]
        if weight is None or ir.DataType.from_numpy(numbers.dtype) != weight.dtype:
            return False
        if numbers.size not in (1, layer.columns):
            return False
        wide = numbers.reshape(-1).astype(np.float64)
        with np.errstate(all="ignore"):
            factor = 1.0 / wide if divides else wide
        # A division by 0 would turn all weights into infinities.
        if not np.isfinite(factor).all():
            return False
        layer.replace(
            self.initializers,
            lambda constant, axis: self._scale_constant(
                constant, factor.reshape(-1, 1) if axis == 0 else factor
            ),
        )
        return True

    def _scale_constant(self, value: ir.Value, factor: np.ndarray) -> ir.Value:
        """A weight or bias times a factor, or a factor for each column."""
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
