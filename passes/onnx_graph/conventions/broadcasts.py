"""ONNX pass: writes arithmetic with less broadcasting, for targets that read few of its cases.

1. The shapes of both operands are static, and differ. A constant of one element stays.
2. `"ranks"`: the operand of the lower rank gets dimensions of size 1 in front.
3. `"none"`: a constant is stored in the shape of the result, up to `MAXIMUM_BYTES` in all. Rows stay in sums,
   and where the result is a matrix. A computed operand is expanded, if the operator is an addition or a
   subtraction, or if it is the first or has one element; others get the rank only.
4. `"vectors"`: a computed vector gets dimensions of size 1 in front, for every elementwise operator and also
   where sizes are not known. OpenCV 4 takes it for a column.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..constants.initializers import Initializers
from ..node_pass import ConstantPass
from ..shapes.late_broadcasts import BROADCASTING

MAXIMUM_BYTES = 1 << 28
_MAXIMUM_COPIES = 1024
_SUMS = ("Add", "Sub")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_ELEMENTWISE = (*BROADCASTING, "Max", "Min", "Mod", "PRelu", "Pow")


class WriteBroadcasts(ConstantPass):
    """Gives the operands of Add, Sub, Mul and Div one rank or one shape, or computed vectors the rank."""

    def __init__(self, form: str, initializers: Initializers):
        super().__init__(initializers)
        self._form = form
        self.op_types = _ELEMENTWISE if form == "vectors" else _ARITHMETIC
        self._added_bytes = 0

    def rewrite(self, node: ir.Node) -> bool:
        """Widen the operands of a node."""
        if self._form == "vectors":
            return self._widen_vectors(node)
        values = list(node.inputs)
        shapes = [_static(value) for value in values]
        if len(shapes) != 2 or shapes[0] is None or shapes[1] is None or shapes[0] == shapes[1]:
            return False
        result = np.broadcast_shapes(shapes[0], shapes[1])
        modified = False
        for index, (value, shape) in enumerate(zip(values, shapes, strict=True)):
            if value is None or shape is None or shape == result:
                continue
            # OpenCV 4.6 takes the shape of the computed operand for that of the result.
            is_beside_constant = self.initializers.is_constant(values[1 - index])
            needs_shape = node.op_type in _SUMS or index == 0 or set(shape) == {1} or is_beside_constant
            widened = self._widen(node, value, shape, tuple(result), needs_shape)
            if widened is not None:
                node.replace_input_with(index, widened)
                modified = True
        return modified

    def _widen_vectors(self, node: ir.Node) -> bool:
        result, modified = node.outputs[0].shape, False
        if result is None or len(result) < 2:
            return False
        for index, value in enumerate(node.inputs):
            is_vector = value is not None and value.shape is not None and len(value.shape) == 1
            if value is None or not is_vector or value.shape == [1] or self.initializers.is_constant(value):
                continue
            sizes = (*[1] * (len(result) - 1), -1)
            node.replace_input_with(index, self._insert(node, value, "Reshape", sizes))
            modified = True
        return modified

    def _widen(
        self,
        node: ir.Node,
        value: ir.Value,
        shape: tuple[int, ...],
        result: tuple[int, ...],
        needs_shape: bool,
    ) -> ir.Value | None:
        same_rank = (1,) * (len(result) - len(shape)) + shape
        if value.const_value is not None and self.initializers.is_constant(value):
            is_row = len(shape) == 1 and (len(result) == 2 or node.op_type == "Add")
            if value.const_value.size == 1 or (is_row and self._form == "none"):
                return None
            size = int(np.prod(result)) * value.const_value.dtype.itemsize
            is_whole = self._form == "none" and self._added_bytes + size <= MAXIMUM_BYTES
            if not is_whole and same_rank == shape:
                return None
            self._added_bytes += int(size) if is_whole else 0
            array = value.const_value.numpy().reshape(same_rank)
            if is_whole:
                array = np.ascontiguousarray(np.broadcast_to(array, result))
            return self.initializers.make(array, f"{value.name}_broadcast")
        if self._form == "none" and needs_shape:
            if same_rank != shape:
                value = self._insert(node, value, "Reshape", same_rank)
            sizes = list(same_rank)
            for axis, size in enumerate(result):
                if sizes[axis] != size:
                    sizes[axis] = size
                    value = self._copy(node, value, axis, size, tuple(sizes))
            return value
        return None if same_rank == shape else self._insert(node, value, "Reshape", same_rank)

    def _copy(
        self, node: ir.Node, value: ir.Value, axis: int, count: int, shape: tuple[int, ...]
    ) -> ir.Value:
        """Repeat a dimension of size 1; by a Concat, because OpenCV 4.5 expands few dimensions."""
        if count > _MAXIMUM_COPIES:
            return self._insert(node, value, "Expand", shape)
        concat = ir.Node("", "Concat", [value] * count, [ir.AttrInt64("axis", axis)])
        return self._place(node, concat, value, shape)

    def _insert(self, node: ir.Node, value: ir.Value, op_type: str, shape: tuple[int, ...]) -> ir.Value:
        sizes = self.initializers.make(np.asarray(shape, np.int64), f"{value.name}_sizes")
        return self._place(node, ir.Node("", op_type, [value, sizes]), value, shape)

    def _place(self, node: ir.Node, inserted: ir.Node, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        """Insert a node before another, and return its output."""
        op_type = inserted.op_type
        inserted.metadata_props.update(node.metadata_props)
        output = inserted.outputs[0]
        output.name = self.initializers.unique(f"{value.name}_{op_type.lower()}")
        inserted.name = self.initializers.unique(f"{node.name}/{op_type}")
        last = shape[-1] if shape[-1] >= 0 or value.shape is None else value.shape[-1]
        output.type, output.shape = value.type, ir.Shape([*shape[:-1], last])
        assert node.graph is not None
        node.graph.insert_before(node, inserted)
        return output


def _static(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape of a value, if all of its sizes are numbers."""
    if value is None or value.shape is None:
        return None
    sizes = tuple(size for size in value.shape if isinstance(size, int))
    return sizes if len(sizes) == value.shape.rank() else None
