"""The tables of angles that RotaryEmbedding reads, from those of its written-out form.

Written out, a table [1, 1, length, d] or [batch, 1, length, d] has d / 2 columns twice. The operator reads
them once, as [batch, length, d / 2]. They are found behind the operators that compute each column by itself:

    Unsqueeze(Cos(Concat(angles, angles))) -> Cos(angles)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..constants.initializers import Initializers
from ..node_pass import same_dimension
from .patterns import made_before

_UNARY = ("Cast", "Cos", "Identity", "Neg", "Sin")
_BINARY = ("Add", "Div", "Mul", "Sub")
_MAXIMUM_ELEMENTS = 2**20
"""Larger constant tables are not read."""
_MAXIMUM_REPEATED = 2**22
"""Elements of a constant table that is repeated for each element of the batch."""
_MAXIMUM_DEPTH = 16


class RotaryTables:
    """Makes the tables of one model. Rotations that read one table share what is made of it."""

    def __init__(self, known: Initializers):
        self._known = known
        self._made: dict[tuple[object, ...], ir.Value] = {}

    def table(self, table: ir.Value, x: ir.Value, node: ir.Node) -> ir.Value | None:
        """A table [batch, length, d / 2] in front of a node; None if the operator does not take the table."""
        if table.shape is None or x.shape is None or not 2 <= len(table.shape) <= len(x.shape):
            return None
        batch, _, length, size = x.shape
        own = [1] * (4 - len(table.shape)) + [*table.shape]
        if own[1] != 1 or own[3] != size or not same_dimension(own[2], length):
            return None
        if own[0] != 1 and not same_dimension(own[0], batch):
            return None
        if self._known.is_constant(table):
            return self._constant(table, x, node)
        half = self._half(_without_heads(table), node)
        if half is None or half.shape is None:
            return None
        if len(half.shape) != 3:
            shape = ir.Shape([own[0], length, half.shape[-1]])
            op_type, axis = ("Squeeze", 1) if len(half.shape) == 4 else ("Unsqueeze", 0)
            axes = self._known.make(np.array([axis]), "table_axes")
            half = self._of((half, op_type), node, op_type, [half, axes], shape)
        return half if own[0] == batch else self._expanded(half, x, node)

    def _constant(self, table: ir.Value, x: ir.Value, node: ir.Node) -> ir.Value | None:
        """The half of a constant table."""
        array = self._columns(table)
        assert x.shape is not None
        if array is None:
            return None
        array, batch = array.reshape(-1, *array.shape[-2:]), x.shape[0]
        name = f"{table.name}_half"
        if isinstance(batch, int) and batch * array[:1].size <= _MAXIMUM_REPEATED:
            return self._known.make(np.broadcast_to(array, (batch, *array.shape[1:])), name)
        return self._expanded(self._known.make(array, name), x, node)

    def _expanded(self, table: ir.Value, x: ir.Value, node: ir.Node) -> ir.Value:
        """A table of one batch, repeated for the batches of x."""
        assert x.shape is not None
        assert table.shape is not None
        batch = x.shape[0]
        # Batches without a name may differ.
        name = x if not isinstance(batch, int) and batch.value is None else batch
        shape = ir.Shape([batch, *table.shape[1:]])
        if isinstance(batch, int):
            target = self._known.make(np.array([batch, 1, 1]), "table_shape")
        else:
            ones = self._known.make(np.array([1, 1]), "table_shape")
            first = [ir.AttrInt64("start", 0), ir.AttrInt64("end", 1)]
            integers = ir.DataType.INT64
            size = self._of((name, "Shape"), node, "Shape", [x], ir.Shape([1]), first, integers)
            axis = [ir.AttrInt64("axis", 0)]
            target = self._of((name, "Concat"), node, "Concat", [size, ones], ir.Shape([3]), axis, integers)
        return self._of((table, name), node, "Expand", [table, target], shape)

    def _half(self, table: ir.Value, node: ir.Node, depth: int = 0) -> ir.Value | None:
        """The first half of the columns of a table, if the second half is equal to it; else None."""
        if table.shape is None or not isinstance(table.shape[-1], int) or depth > _MAXIMUM_DEPTH:
            return None
        if self._known.is_constant(table):
            array = self._columns(table)
            return None if array is None else self._known.make(array, f"{table.name}_half")
        maker, last = table.producer(), len(table.shape) - 1
        if maker is None or maker.domain or len(maker.outputs) > 1:
            return None
        data = maker.inputs[0]
        if data is None or data.shape is None:
            return None
        if maker.op_type == "Concat":
            axis = maker.attributes["axis"].as_int() % len(table.shape)
            return data if axis == last and [*maker.inputs] == [data, data] else None
        place = self._read_by_column(maker, last)
        half = None if place is None else self._half(maker.inputs[place], node, depth + 1)  # type: ignore[arg-type]
        if half is None or half.shape is None:
            return None
        inputs = [half if index == place else value for index, value in enumerate(maker.inputs)]
        shape = ir.Shape([*table.shape[:-1], half.shape[-1]])
        key = (table, "half")
        return self._of(key, node, maker.op_type, inputs, shape, [*maker.attributes.values()], table.dtype)

    def _read_by_column(self, node: ir.Node, last: int) -> int | None:
        """The input whose columns give those of the result, each by itself; None if there is none."""
        if node.op_type in _UNARY:
            return 0
        data = node.inputs[0]
        assert data is not None
        assert data.shape is not None
        rank = len(data.shape)
        if node.op_type in _BINARY:
            ranks = [1 if value is None or value.shape is None else len(value.shape) for value in node.inputs]
            for place, other in ((0, 1), (1, 0)):
                value = node.inputs[other]
                if self._known.is_constant(value) and value.const_value.size == 1 and ranks[place] > last:  # type: ignore[union-attr]
                    return place
            return None
        axes = node.inputs[-1].const_value if node.inputs[-1] is not None else None
        if node.op_type == "Unsqueeze" and axes is not None:
            return 0 if not {-1, last} & {int(axis) for axis in axes.numpy()} else None
        if node.op_type == "Gather":
            axis = node.attributes.get("axis")
            return 0 if rank > 1 and (0 if axis is None else axis.as_int()) % rank != rank - 1 else None
        if node.op_type == "Slice" and len(node.inputs) > 3 and node.inputs[3] is not None:
            given = node.inputs[3].const_value
            sliced = None if given is None else {int(axis) % rank for axis in given.numpy()}
            return 0 if sliced is not None and rank - 1 not in sliced else None
        return None

    def _columns(self, table: ir.Value) -> np.ndarray | None:
        """The first half of the columns of a constant, if the second is equal to it."""
        tensor = table.const_value
        if tensor is None or tensor.size > _MAXIMUM_ELEMENTS or tensor.shape.numpy()[-1] % 2:
            return None
        first, second = np.split(tensor.numpy(), 2, axis=-1)
        return first if np.array_equal(first, second) else None

    def _of(
        self,
        key: tuple[object, ...],
        node: ir.Node,
        op_type: str,
        inputs: list[ir.Value | None],
        shape: ir.Shape,
        attributes: list[ir.Attr] | None = None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """The result of a new node, made once in each graph."""
        place = (*key, node.graph)
        if place not in self._made:
            self._made[place] = made_before(
                node, self._known, op_type, inputs, shape, attributes or (), dtype
            )
        return self._made[place]


def _without_heads(table: ir.Value) -> ir.Value:
    """What a table [batch, 1, length, d] is before an Unsqueeze adds the dimension of heads."""
    maker = table.producer()
    if maker is None or maker.op_type != "Unsqueeze" or maker.domain or len(table.shape or ()) != 4:
        return table
    axes = maker.inputs[1].const_value if maker.inputs[1] is not None else None
    data = maker.inputs[0]
    if axes is None or data is None or [int(axis) % 4 for axis in axes.numpy()] != [1]:
        return table
    return data
