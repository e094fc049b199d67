"""ONNX pass: reads weights of 8 bits or fewer with DequantizeLinear.

    MatMul(x, Cast(w)) -> Mul by s               -> MatMul(x, DequantizeLinear(w, s))
    Cast(w) -> Mul by s                          -> DequantizeLinear(w, s)
    DequantizeLinear(Cast(w), s)                 -> DequantizeLinear(w in 4 bits, s)
    Transpose([Cast](DequantizeLinear(w, s)))    -> [Cast](DequantizeLinear(transposed w, s))

1. `w` is a constant matrix; Transposes before or after the Cast are part of the form, and so are Casts that
   keep every element. In the last form only products read the result.
2. `s` is a constant with one number, or one for each column of the product or index of one axis of `w`.
3. Nothing else reads the first product.
4. The opset has DequantizeLinear with this element type and axis, and onnxruntime has a kernel for it.
5. Scales in half precision are FLOAT, and the result is cast, if the opset has only that.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration import DataType, dtypes
from ....registration.integer_tensors import integer_bounds
from ....registration.runtimes import has_kernel
from ..constants.deferred_constants import derive_transposed
from ..node_pass import (
    ConstantPass,
    insert_node,
    producer_of,
    removable_producer,
    remove_unread,
    replace_by_value,
)
from ..pass_order import Run

_PRODUCTS = (DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16)
_LIMITS = {DataType.INT4: (-8, 7), DataType.UINT4: (0, 15)}


class DequantizeWeights(ConstantPass):
    """Replaces Casts of stored weights by DequantizeLinear."""

    runs = (Run("full", after={"FoldConstants": "Scales are constants only after they have been folded."}),)
    op_types = ("DequantizeLinear", "Mul", "Transpose")

    def rewrite(self, node: ir.Node) -> bool:
        """Dequantize the weight of a product, or of a matrix that is scaled."""
        if node.op_type == "DequantizeLinear":
            return self._pack(node)
        if node.op_type == "Transpose":
            return self._transpose(node)
        a, b = node.inputs
        for operand, scale in ((a, b), (b, a)):
            if operand is None or scale is None or not self.initializers.is_constant(scale):
                continue
            if self._dequantize_factor(node, operand, scale) or self._dequantize(node, operand, scale):
                return True
        return False

    def _pack(self, node: ir.Node) -> bool:
        """Store the integers of a dequantized weight in 4 bits, if all fit."""
        cast = producer_of(node.inputs[0], "Cast")
        weight = None if cast is None else cast.inputs[0]
        if cast is None or weight is None or not self.initializers.is_constant(weight):
            return False
        dtype, tensor = cast.outputs[0].dtype, weight.const_value
        if dtype not in _LIMITS or tensor is None or tensor.dtype not in dtypes.QUANTIZED:
            return False
        lowest, highest = integer_bounds(tensor)
        low, high = _LIMITS[dtype]
        if not tensor.size or lowest < low or highest > high:
            return False
        # Computed when the file is written, because numpy has a byte for each element.
        packed = self.initializers.derive(
            [weight],
            lambda integers: integers.astype(dtype.numpy()),
            dtype,
            tuple(tensor.shape.numpy()),
            suffix="packed",
        )
        node.replace_input_with(0, packed)
        remove_unread(cast)
        return True

    def _dequantize_factor(self, node: ir.Node, operand: ir.Value, scale: ir.Value) -> bool:
        """Move a scale behind a product to the weight of the product."""
        product = removable_producer(node, operand, "MatMul")
        # The sum of a product over another axis has other columns.
        if product is None or scale.shape is None or any(size != 1 for size in scale.shape[:-1]):
            return False
        if len(scale.shape) > len(operand.shape or ()):
            return False
        matrix = self._emit_matrix(product, product.inputs[1], scale, column_scale=True)
        if matrix is None:
            return False
        weight = product.inputs[1]
        product.replace_input_with(1, matrix)
        if operand.shape is None:
            operand.shape = node.outputs[0].shape
        replace_by_value(node, operand)
        _remove_producer(weight)
        return True

    def _dequantize(self, node: ir.Node, operand: ir.Value, scale: ir.Value) -> bool:
        """Replace the product of a matrix and its scale."""
        matrix = self._emit_matrix(node, operand, scale, column_scale=False)
        if matrix is None:
            return False
        replace_by_value(node, matrix)
        _remove_producer(operand)
        return True

    def _emit_matrix(
        self, successor: ir.Node, value: ir.Value | None, scale: ir.Value, column_scale: bool
    ) -> ir.Value | None:
        """The matrix by DequantizeLinear before a node; None if a rule does not hold.

        Args:
            column_scale: whether the scale has one number or one per column.
        """
        stored, dtype = self._find_stored(value), value.dtype if value is not None else None
        if value is None or stored is None or dtype not in _PRODUCTS or scale.dtype != dtype:
            return None
        weight, is_transposed = stored
        assert weight.const_value is not None
        rows, columns = weight.const_value.shape.numpy()
        if is_transposed:
            rows, columns = columns, rows
        axis = _scale_axis(scale, (rows, columns), column_scale)
        if axis is None:
            return None
        schema = self.schema("DequantizeLinear")
        if schema is None or weight.dtype not in schema.inputs[0].dtypes:
            return None
        if not has_kernel("DequantizeLinear", weight.dtype, self.opset) or (
            axis >= 0 and "axis" not in schema.attributes
        ):
            return None
        scale_dtype = dtype
        # onnxruntime has no kernel for BFLOAT16 scales.
        if dtype not in schema.inputs[1].dtypes or dtype == DataType.BFLOAT16:
            scale_dtype = DataType.FLOAT
        matrix = derive_transposed(self.initializers, weight) if is_transposed else weight
        shape = (rows, columns)[axis : axis + 1] if axis >= 0 else ()
        numbers = self.initializers.derive(
            [scale],
            lambda array: array.reshape(shape).astype(scale_dtype.numpy()),
            scale_dtype,
            shape,
            readers=1,
            suffix="reshaped",
        )
        attributes = [ir.AttrInt64("axis", axis)] if axis >= 0 and axis != 1 else []
        dequantized = insert_node(
            successor,
            self.initializers,
            "DequantizeLinear",
            [matrix, numbers],
            ir.Shape((rows, columns)),
            attributes,
            scale_dtype,
        )
        if scale_dtype == dtype:
            return dequantized
        cast = [ir.AttrInt64("to", int(dtype))]
        return insert_node(
            successor, self.initializers, "Cast", [dequantized], dequantized.shape, cast, dtype
        )

    def _find_stored(self, value: ir.Value | None) -> tuple[ir.Value, bool] | None:
        """The stored matrix that a value is read from, and whether the value is its transpose."""
        is_transposed, has_cast = False, False
        while value is not None and (node := producer_of(value, "Cast", "Transpose")) is not None:
            if node.op_type == "Cast":
                has_cast = True
                # Back to the stored type, where only other types can be transposed.
                if value.dtype not in _PRODUCTS and value.dtype not in dtypes.QUANTIZED:
                    return None
            elif _permutation(node) != [1, 0]:
                return None
            else:
                is_transposed = not is_transposed
            value = node.inputs[0]
        if value is None or not has_cast or not self.initializers.is_constant(value):
            return None
        if value.dtype not in dtypes.QUANTIZED or value.shape is None or len(value.shape) != 2:
            return None
        return value, is_transposed

    def _transpose(self, node: ir.Node) -> bool:
        cast = removable_producer(node, node.inputs[0], "Cast")
        first = node if cast is None else cast
        dequantize = removable_producer(first, first.inputs[0], "DequantizeLinear")
        if dequantize is None or _permutation(node) != [1, 0]:
            return False
        weight, scale, zero_point = (*dequantize.inputs, None)[:3]
        if not self.initializers.is_constant(weight) or weight is None or len(weight.shape or ()) != 2:
            return False
        assert weight.const_value is not None
        readers = node.outputs[0].uses()
        if not readers or any(reader.op_type != "MatMul" or index != 1 for reader, index in readers):
            return False
        parameters = [value for value in (scale, zero_point) if value is not None]
        if any(
            len(value.shape or ()) == 2 and not self.initializers.is_constant(value) for value in parameters
        ):
            return False
        # Parameters per block have the two dimensions of the matrix.
        inputs = [
            derive_transposed(self.initializers, value)
            if value is not None and len(value.shape or ()) == 2
            else value
            for value in (weight, scale, zero_point)
        ]
        attributes = [item for item in dequantize.attributes.values() if item.name != "axis"]
        axis = 1 - dequantize.attributes.get_int("axis", 1) % 2
        if self.schema("DequantizeLinear") is not None and any(len(v.shape or ()) for v in parameters):
            attributes.append(ir.AttrInt64("axis", axis))
        dequantized = insert_node(
            node,
            self.initializers,
            "DequantizeLinear",
            inputs if zero_point is not None else inputs[:2],
            ir.Shape(weight.const_value.shape.numpy()[::-1]),
            attributes,
            dequantize.outputs[0].dtype,
        )
        if cast is not None:
            to, dtype = list(cast.attributes.values()), cast.outputs[0].dtype
            dequantized = insert_node(
                node, self.initializers, "Cast", [dequantized], dequantized.shape, to, dtype
            )
        replace_by_value(node, dequantized)
        remove_unread(first if cast is not None else dequantize)
        return True


def _permutation(node: ir.Node) -> list[int]:
    permutation = node.attributes.get("perm")
    return [1, 0] if permutation is None else list(permutation.as_ints())


def _scale_axis(scale: ir.Value, shape: tuple[int, int], column_scale: bool) -> int | None:
    """The axis of a matrix along which a scale varies; -1 for one number, None if it is neither."""
    sizes = tuple(scale.const_value.shape.numpy()) if scale.const_value is not None else ()
    if all(size == 1 for size in sizes):
        return -1
    if sizes[-1] == shape[1] and all(size == 1 for size in sizes[:-1]):
        return 1
    return 0 if not column_scale and sizes == (shape[0], 1) else None


def _remove_producer(value: ir.Value | None) -> None:
    producer = value.producer() if value is not None else None
    if producer is not None:
        remove_unread(producer)
