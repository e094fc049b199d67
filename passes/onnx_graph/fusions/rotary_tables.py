"""The tables of angles that RotaryEmbedding reads, from those of its written-out form.

In the written-out form, a table [1, 1, length, d] or [batch, 1, length, d] has d / 2 columns twice. The
operator reads them once, as [batch, length, d / 2]. This module finds them by walking back over operators
that compute each column independently:

    Unsqueeze(Cos(Concat(angles, angles))) -> Cos(angles)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_size
from ..constants.initializers import Initializers
from ..node_pass import insert_node

_UNARY = ("Cast", "Cos", "Identity", "Neg", "Sin")
_BINARY = ("Add", "Div", "Mul", "Sub")
_MAXIMUM_ELEMENTS = 2**20
"""Larger constant tables are not read."""
_MAXIMUM_REPEATED = 2**22
"""Elements of a constant table that is repeated for each element of the batch."""
_MAXIMUM_DEPTH = 16


class RotaryTables:
    """Builds the tables of one model. Rotations that read one table share the values built from it."""

    def __init__(self, initializers: Initializers):
        self._initializers = initializers
        self._cache: dict[tuple[object, ...], ir.Value] = {}

    def table(self, table: ir.Value, x: ir.Value, node: ir.Node) -> ir.Value | None:
        """A table [batch, length, d / 2] in front of a node; None if the operator does not take the table."""
        if table.shape is None or x.shape is None or not 2 <= len(table.shape) <= len(x.shape):
            return None
        batch, _, length, size = x.shape
        table_sizes = [1] * (4 - len(table.shape)) + [*table.shape]
        if table_sizes[1] != 1 or table_sizes[3] != size or not same_size(table_sizes[2], length):
            return None
        if table_sizes[0] != 1 and not same_size(table_sizes[0], batch):
            return None
        # Columns of a constant can be compared; those of a computed table must come from one Concat.
        if self._initializers.is_constant(table):
            return self._constant_half(table, x, node)
        half = self._half(_without_heads(table), node)
        if half is None or half.shape is None:
            return None
        if len(half.shape) != 3:
            shape = ir.Shape([table_sizes[0], length, half.shape[-1]])
            op_type, axis = ("Squeeze", 1) if len(half.shape) == 4 else ("Unsqueeze", 0)
            axes = self._initializers.make(np.array([axis]), "table_axes")
            half = self._emit_once((half, op_type), node, op_type, [half, axes], shape)
        return half if table_sizes[0] == batch else self._expand_batch(half, x, node)

    def _constant_half(self, table: ir.Value, x: ir.Value, node: ir.Node) -> ir.Value | None:
        """The half of a constant table."""
        array = self._columns(table)
        assert x.shape is not None
        if array is None:
            return None
        array, batch = array.reshape(-1, *array.shape[-2:]), x.shape[0]
        name = f"{table.name}_half"
        if isinstance(batch, int) and batch * array[:1].size <= _MAXIMUM_REPEATED:
            return self._initializers.make(np.broadcast_to(array, (batch, *array.shape[1:])), name)
        return self._expand_batch(self._initializers.make(array, name), x, node)

    def _expand_batch(self, table: ir.Value, x: ir.Value, node: ir.Node) -> ir.Value:
        """A table of one batch, repeated for the batches of x."""
        assert x.shape is not None
        assert table.shape is not None
        batch = x.shape[0]
        # Batches without a name may differ.
        name = x if not isinstance(batch, int) and batch.value is None else batch
        shape = ir.Shape([batch, *table.shape[1:]])
        if isinstance(batch, int):
            target = self._initializers.make(np.array([batch, 1, 1]), "table_shape")
        else:
            unit_sizes = self._initializers.make(np.array([1, 1]), "table_shape")
            first = [ir.AttrInt64("start", 0), ir.AttrInt64("end", 1)]
            integers = ir.DataType.INT64
            size = self._emit_once((name, "Shape"), node, "Shape", [x], ir.Shape([1]), first, integers)
            axis = [ir.AttrInt64("axis", 0)]
            target = self._emit_once(
                (name, "Concat"), node, "Concat", [size, unit_sizes], ir.Shape([3]), axis, integers
            )
        return self._emit_once((table, name), node, "Expand", [table, target], shape)

    def _half(self, table: ir.Value, node: ir.Node, depth: int = 0) -> ir.Value | None:
        """The first half of the columns of a table, if the second half is equal to it; else None."""
        if table.shape is None or not isinstance(table.shape[-1], int) or depth > _MAXIMUM_DEPTH:
            return None
        if self._initializers.is_constant(table):
            array = self._columns(table)
            return None if array is None else self._initializers.make(array, f"{table.name}_half")
        producer, last = table.producer(), len(table.shape) - 1
        if producer is None or producer.domain or len(producer.outputs) > 1:
            return None
        data = producer.inputs[0]
        if data is None or data.shape is None:
            return None
        if producer.op_type == "Concat":
            axis = producer.attributes["axis"].as_int() % len(table.shape)
            return data if axis == last and [*producer.inputs] == [data, data] else None
        input_index = self._read_by_column(producer, last)
        inner = None if input_index is None else producer.inputs[input_index]
        half = None if inner is None else self._half(inner, node, depth + 1)
        if half is None or half.shape is None:
            return None
        inputs = [half if index == input_index else value for index, value in enumerate(producer.inputs)]
        shape = ir.Shape([*table.shape[:-1], half.shape[-1]])
        key = (table, "half")
        return self._emit_once(
            key, node, producer.op_type, inputs, shape, [*producer.attributes.values()], table.dtype
        )

    def _read_by_column(self, node: ir.Node, last: int) -> int | None:
        """The input from which each column of the result is computed independently; None if there is none."""
        if node.op_type in _UNARY:
            return 0
        data = node.inputs[0]
        assert data is not None
        assert data.shape is not None
        rank = len(data.shape)
        if node.op_type in _BINARY:
            ranks = [1 if value is None or value.shape is None else len(value.shape) for value in node.inputs]
            for table_index, constant_index in ((0, 1), (1, 0)):
                factor = node.inputs[constant_index]
                if factor is None or factor.const_value is None or not self._initializers.is_constant(factor):
                    continue
                if factor.const_value.size == 1 and ranks[table_index] > last:
                    return table_index
            return None
        axes = node.inputs[-1].const_value if node.inputs[-1] is not None else None
        if node.op_type == "Unsqueeze" and axes is not None:
            return 0 if not {-1, last} & {int(axis) for axis in axes.numpy()} else None
        if node.op_type == "Gather":
            return 0 if rank > 1 and node.attributes.get_int("axis", 0) % rank != rank - 1 else None
        if node.op_type == "Slice" and len(node.inputs) > 3 and node.inputs[3] is not None:
            axes_tensor = node.inputs[3].const_value
            sliced = None if axes_tensor is None else {int(axis) % rank for axis in axes_tensor.numpy()}
            return 0 if sliced is not None and rank - 1 not in sliced else None
        return None

    def _columns(self, table: ir.Value) -> np.ndarray | None:
        """The first half of the columns of a constant, if the second is equal to it."""
        tensor = table.const_value
        if tensor is None or tensor.size > _MAXIMUM_ELEMENTS or tensor.shape.numpy()[-1] % 2:
            return None
        first, second = np.split(tensor.numpy(), 2, axis=-1)
        return first if np.array_equal(first, second) else None

    def _emit_once(
        self,
        key: tuple[object, ...],
        node: ir.Node,
        op_type: str,
        inputs: list[ir.Value | None],
        shape: ir.Shape,
        attributes: list[ir.Attr] | None = None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """The result of a new node, inserted once in each graph."""
        graph_key = (*key, node.graph)
        if graph_key not in self._cache:
            self._cache[graph_key] = insert_node(
                node, self._initializers, op_type, inputs, shape, attributes or (), dtype
            )
        return self._cache[graph_key]


def _without_heads(table: ir.Value) -> ir.Value:
    """A table [batch, 1, length, d] before an Unsqueeze adds the dimension of heads."""
    producer = table.producer()
    if producer is None or producer.op_type != "Unsqueeze" or producer.domain or len(table.shape or ()) != 4:
        return table
    axes = producer.inputs[1].const_value if producer.inputs[1] is not None else None
    data = producer.inputs[0]
    if axes is None or data is None or [int(axis) % 4 for axis in axes.numpy()] != [1]:
        return table
    return data
