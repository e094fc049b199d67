"""ONNX pass: computes elementwise and row-wise nodes in the shape around two Reshapes, where that saves them.

    [b, n, 4, 8] -> Reshape [-1, 8] -> RMSNormalization -> Mul -> Reshape [b, n, 4, 8]
    [b, n, 4, 8] -> RMSNormalization -> Mul

1. The nodes between are elementwise, or reduce or normalize the last axis. Other operands are scalars and
   vectors of the last axis. If the Reshapes change the last axis, all nodes are elementwise, and all other
   operands scalars.
2. Every tensor that enters is the result of a Reshape, and one of them, or the Reshape behind, removes more
   Reshapes than are added. Nothing else reads the values between, and the graph does not return the last one.
3. All sizes of the new shape are known or have names, and Reshape can restore the old one where it is read. A
   Reshape behind to a third shape then reads the new shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_shape, same_size
from ..fusions.axes import is_last_axis, reduces_last_axis
from ..node_pass import ConstantPass, insert_node, replace_by_value
from ..pass_order import Run
from ..row_operators import BROADCASTING_BY_ROWS, NORMALIZATIONS, REDUCTIONS, UNARY_BY_ROWS

_MAXIMUM_NODES = 32


@dataclasses.dataclass(slots=True)
class _Region:
    """The nodes between Reshapes.

    Attributes:
        nodes: those that compute in another shape.
        entries: the Reshapes in front of them.
        has_columns: whether a node or an operand knows the last axis.
    """

    nodes: dict[ir.Node, None] = dataclasses.field(default_factory=dict)
    entries: dict[ir.Node, None] = dataclasses.field(default_factory=dict)
    has_columns: bool = False


class LiftRows(ConstantPass):
    """Removes Reshapes around elementwise and row-wise nodes."""

    runs = (
        Run(
            "basic",
            after={
                "FlattenRows": "It adds such Reshapes where they save others.",
                "MergeShapesBehindScales": "A merged Reshape has another shape in front of it.",
                "FuseRMSNormalization": "One node is quicker to move than its parts.",
            },
        ),
    )
    op_types = BROADCASTING_BY_ROWS

    def begin(self, model: ir.Model) -> bool:
        """Forget the values of the last model."""
        # Without these, each node of a long chain would look at the nodes in front of it again.
        self._blocked_values: set[ir.Value] = set()
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Lift the nodes that end in `node`, if that removes a Reshape."""
        result, readers = node.outputs[0], [reader for reader, _ in node.outputs[0].uses()]
        if (
            result.is_graph_output()
            or not readers
            or any(reader.graph is not node.graph for reader in readers)
        ):
            return False
        region = self._find_region(result, node.graph)
        if region is None or result.shape is None:
            return False
        last = readers[0] if len(readers) == 1 and _is_reshape(readers[0], node.graph) else None
        shapes = [reshape.outputs[0].shape for reshape in ([] if last is None else [last])]
        for shape in [*shapes, *(_source_shape(entry) for entry in region.entries)]:
            if shape is None or not _is_named(shape):
                continue
            if region.has_columns and not same_size(shape[-1], result.shape[-1]):
                continue
            ends = last is not None and same_shape(last.outputs[0].shape, shape)
            saved = sum(same_shape(_source_shape(entry), shape) for entry in region.entries)
            onward = None
            if last is not None and last.outputs[0].shape is not None and not ends:
                onward = _target(shape, last.outputs[0].shape)
            back = None if ends or onward is not None else _target(shape, result.shape)
            forth = [_target(_source_shape(entry), shape) for entry in region.entries]
            # Without a Reshape behind, one must restore the shape.
            saved += 1 if ends else 0 if onward is not None else -1
            if saved < 1 or None in forth or (back is None and onward is None and not ends):
                continue
            self._lift(result, region, shape, last if ends else None, back)
            if last is not None and onward is not None:
                self._set_target(last, onward)
            self._blocked_values.clear()
            return True
        return False

    def _find_region(self, result: ir.Value, graph: object) -> _Region | None:
        """The nodes in front of a value up to Reshapes; None if something else enters.

        A value that is blocked for every shape blocks all regions that it is in.
        """
        region, pending, shape = _Region(), [result], result.shape
        if shape is None or len(shape) < 2 or not _is_named(shape):
            return None
        while pending:
            value = pending.pop()
            node = value.producer()
            if node is not None and node in region.nodes:
                continue
            if node is None or node.graph is not graph or node.domain or value in self._blocked_values:
                self._blocked_values.add(result)
                return None
            if _is_reshape(node, graph):
                if not same_shape(value.shape, shape):
                    return None
                region.entries[node] = None
                continue
            by_columns = self._knows_last_axis(node)
            if by_columns is None or len(region.nodes) >= _MAXIMUM_NODES:
                self._blocked_values.add(result)
                return None
            if not _fits(value.shape, shape):
                return None
            region.nodes[node] = None
            region.has_columns |= by_columns
            for operand in node.inputs:
                if operand is None:
                    continue
                if not self.initializers.is_constant(operand):
                    pending.append(operand)
                elif operand.shape is None or len(operand.shape) > 1:
                    self._blocked_values.add(result)
                    return None
                else:
                    region.has_columns |= len(operand.shape) == 1 and operand.shape[0] != 1
        inner = [node.outputs[0] for node in (*region.nodes, *region.entries)]
        is_closed = all(
            value is result
            or (not value.is_graph_output() and all(reader in region.nodes for reader, _ in value.uses()))
            for value in inner
        )
        return region if region.entries and is_closed else None

    def _knows_last_axis(self, node: ir.Node) -> bool | None:
        """Whether a node knows the last axis; None if it is not computed row by row."""
        if len(node.outputs) != 1 or not node.inputs or node.inputs[0] is None:
            return None
        if node.op_type in UNARY_BY_ROWS or node.op_type in BROADCASTING_BY_ROWS:
            return False
        if node.op_type in REDUCTIONS:
            return True if reduces_last_axis(node, node.inputs[0]) else None
        if node.op_type in NORMALIZATIONS:
            axis = node.attributes.get_int("axis", self._default_axis(node))
            return True if axis is not None and is_last_axis([axis], node.inputs[0]) else None
        return None

    def _default_axis(self, node: ir.Node) -> int | None:
        schema = self.schema(node.op_type)
        default = None if schema is None else schema.attributes["axis"].default
        return default if isinstance(default, int) else None

    def _lift(
        self, result: ir.Value, region: _Region, shape: ir.Shape, last: ir.Node | None, back: list[int] | None
    ) -> None:
        """Let the nodes compute in a shape.

        Args:
            last: the Reshape behind, which is removed.
            back: the target of a Reshape that is added behind; None for none.
        """
        old_shape = result.shape
        for entry in region.entries:
            source, value = entry.inputs[0], entry.outputs[0]
            assert source is not None
            if same_shape(source.shape, shape):
                replace_by_value(entry, source)
                continue
            self._set_target(entry, _target(source.shape, shape))
            value.shape = shape
        for node in region.nodes:
            self._name_last_axis(node, len(shape) - 1)
            value = node.outputs[0]
            assert value.shape is not None
            assert old_shape is not None
            is_column = not same_size(value.shape[-1], old_shape[-1])
            value.shape = ir.Shape([*shape[:-1], 1]) if is_column else shape
        if last is not None:
            replace_by_value(last, result)
        if back is None:
            return
        uses = list(result.uses())
        readers, producer = {node for node, _ in uses}, result.producer()
        assert producer is not None
        assert producer.graph is not None
        successor = next(node for node in producer.graph if node in readers)
        restored = insert_node(
            successor, self.initializers, "Reshape", [result, self._sizes(back)], old_shape
        )
        for node, index in uses:
            node.replace_input_with(index, restored)

    def _set_target(self, reshape: ir.Node, target: list[int] | None) -> None:
        reshape.attributes.pop("allowzero", None)
        reshape.replace_input_with(1, self._sizes(target))

    def _sizes(self, target: list[int] | None) -> ir.Value:
        return self.initializers.make(np.array(target, dtype=np.int64), "lifted_shape")

    def _name_last_axis(self, node: ir.Node, axis: int) -> None:
        """Write the number of the last axis into a node that names it."""
        if node.op_type in NORMALIZATIONS:
            if "axis" in node.attributes or self._default_axis(node) != -1:
                node.attributes.add(ir.AttrInt64("axis", axis))
        elif node.op_type in REDUCTIONS and "axes" in node.attributes:
            node.attributes.add(ir.AttrInt64s("axes", [axis]))
        elif node.op_type in REDUCTIONS:
            node.replace_input_with(1, self.initializers.make(np.array([axis], dtype=np.int64), "columns"))


def _is_reshape(node: ir.Node, graph: object) -> bool:
    return node.op_type == "Reshape" and not node.domain and node.graph is graph and len(node.inputs) == 2


def _source_shape(reshape: ir.Node) -> ir.Shape | None:
    source = reshape.inputs[0]
    return None if source is None else source.shape


def _is_named(shape: Iterable[int | ir.SymbolicDim]) -> bool:
    """Whether all sizes are numbers above 0, or have names."""
    return all(size > 0 if isinstance(size, int) else size.value is not None for size in shape)


def _fits(shape: ir.Shape | None, whole: ir.Shape) -> bool:
    """Whether a shape is the whole one, or that of one column of it."""
    if shape is None or len(shape) != len(whole) or not all(map(same_size, shape[:-1], whole[:-1])):
        return False
    return same_size(shape[-1], whole[-1]) or shape[-1] == 1


def _target(before: ir.Shape | None, after: ir.Shape) -> list[int] | None:
    """The second input of a Reshape from one shape to another; None if it needs computed sizes."""
    if before is None:
        return None
    target = []
    for axis, size in enumerate(after):
        copies = axis < len(before) and not isinstance(size, int) and same_size(before[axis], size)
        target.append(size if isinstance(size, int) else 0 if copies else -1)
    return target if target.count(-1) <= 1 else None
