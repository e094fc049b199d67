"""The targets of Reshapes that restore several unknown dimensions from the rows of a matrix.

    Shape(input_ids) -> Concat([12, 64]) gives the target of a Reshape to [batch, length, 12, 64]

One Shape serves all targets with the same first dimensions, and one Concat each target.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import onnx_ir as ir

from ....registration.origins import inherit
from ....registration.schemas import operator_schema
from ..constants.initializers import Initializers
from ..node_pass import new_node
from ..shapes.shape_chains import reshape_target

Dimensions = tuple[int | ir.SymbolicDim, ...]


def unknown_dimensions(shape: Iterable[int | ir.SymbolicDim]) -> Dimensions:
    """The named dimensions of unknown size at the start of a shape."""
    dimensions: list[int | ir.SymbolicDim] = []
    for size in shape:
        if isinstance(size, int) or size.value is None:
            break
        dimensions.append(size)
    return tuple(dimensions)


class RowSizes:
    """Computes the targets of Reshapes in one graph."""

    def __init__(self, graph: ir.Graph, nodes: Iterable[ir.Node], initializers: Initializers, opset: int):
        """Make a table without targets.

        Args:
            nodes: those of the graph, in their order.
        """
        self._graph = graph
        self._initializers = initializers
        self._opset = opset
        self._sources: dict[Dimensions, ir.Value] = {}
        self._positions = {node: position for position, node in enumerate(nodes)}
        self._sizes: dict[Dimensions, ir.Value] = {}
        self._targets: dict[tuple[Dimensions, Dimensions], ir.Value] = {}

    def in_order(self, nodes: Iterable[ir.Node]) -> list[ir.Node]:
        """Nodes in the order of the graph."""
        return sorted(nodes, key=self._positions.__getitem__)

    def find_sources(self, rewritten: Collection[ir.Node]) -> None:
        """Find values with the sizes; results of rewritten nodes lose them."""
        outputs = (value for node in self._positions if node not in rewritten for value in node.outputs)
        for values in (self._graph.inputs, outputs):
            for value in values:
                if value.shape is None or not isinstance(value.type, ir.TensorType):
                    continue
                sizes = value.shape.dims
                # One unknown size needs no source: Reshape infers it from -1.
                if len(sizes) < 2 or isinstance(sizes[0], int):
                    continue
                dimensions = unknown_dimensions(sizes)
                if len(dimensions) > 1:
                    self._sources.setdefault(dimensions, value)

    def restores(self, shape: ir.Shape | None, node: ir.Node) -> bool:
        """Whether a Reshape inserted at a node can restore a shape from values computed before it."""
        if shape is None or reshape_target(shape) is not None:
            return shape is not None
        dimensions = unknown_dimensions(shape)
        source = self._sources.get(dimensions)
        if source is None or not all(isinstance(size, int) and size for size in shape[len(dimensions) :]):
            return False
        producer = source.producer()
        # The source must be computed before the Reshape that needs its sizes.
        return producer is None or self._positions.get(producer, -1) < self._positions[node]

    def cost(self, shapes: Iterable[Dimensions]) -> int:
        """The nodes that are added to compute the targets for shapes."""
        computed_shapes = {
            shape: unknown_dimensions(shape) for shape in shapes if reshape_target(ir.Shape(shape)) is None
        }
        count = len(computed_shapes)
        for dimensions in set(computed_shapes.values()):
            source = self._sources[dimensions]
            count += self._existing_shape_node(source) is None
            count += len(source.shape or ()) > len(dimensions)
        return count

    def set_target(self, reshape: ir.Node, shape: ir.Shape) -> None:
        """Set the target of a Reshape to a shape."""
        constant = reshape_target(shape)
        if constant is not None:
            target = self._initializers.make(np.array(constant, dtype=np.int64), "rows_shape")
        else:
            target = self._target(shape)
            schema = operator_schema("Reshape", self._opset)
            if schema is not None and "allowzero" in schema.attributes:
                # Without `allowzero`, a size of zero would copy a size of the matrix.
                reshape.attributes.add(ir.AttrInt64("allowzero", 1))
        reshape.replace_input_with(1, target)

    def _target(self, shape: ir.Shape) -> ir.Value:
        dimensions = unknown_dimensions(shape)
        known_sizes = tuple(shape[len(dimensions) :])
        if (dimensions, known_sizes) not in self._targets:
            sizes = self._unknown_sizes(dimensions)
            tail = self._initializers.make(np.array(known_sizes, dtype=np.int64), "columns_shape")
            axis = ir.AttrInt64("axis", 0)
            self._targets[dimensions, known_sizes] = self._insert_node(
                sizes, "Concat", [sizes, tail], len(shape), axis
            )
        return self._targets[dimensions, known_sizes]

    def _unknown_sizes(self, dimensions: Dimensions) -> ir.Value:
        """The sizes of the unknown dimensions."""
        if dimensions not in self._sizes:
            source = self._sources[dimensions]
            assert source.shape is not None
            sizes = self._shape_of(source, len(source.shape))
            if len(source.shape) > len(dimensions):
                positions = self._initializers.make(np.arange(len(dimensions)), "places")
                sizes = self._insert_node(sizes, "Gather", [sizes, positions], len(dimensions))
            self._sizes[dimensions] = sizes
        return self._sizes[dimensions]

    def _shape_of(self, source: ir.Value, rank: int) -> ir.Value:
        """The result of a Shape; an existing one moves to its source, so that all readers come after it."""
        shape_node = self._existing_shape_node(source)
        if shape_node is None:
            return self._insert_node(source, "Shape", [source], rank)
        self._graph.remove(shape_node)
        self.insert(shape_node, source)
        return shape_node.outputs[0]

    def _existing_shape_node(self, source: ir.Value) -> ir.Node | None:
        readers = (node for node, _ in source.uses() if node.op_type == "Shape" and not node.domain)
        return next((node for node in readers if node.graph is self._graph and not node.attributes), None)

    def _insert_node(
        self, after: ir.Value, op_type: str, inputs: list[ir.Value], length: int, *attributes: ir.Attr
    ) -> ir.Value:
        """The result, a vector of integers, of a new node after the producer of a value."""
        node = new_node(self._initializers, op_type, inputs, ir.Shape([length]), attributes)
        node.outputs[0].type = ir.TensorType(ir.DataType.INT64)
        self.insert(node, after)
        return node.outputs[0]

    def insert(self, node: ir.Node, after: ir.Value) -> None:
        """Insert a node after the producer of a value."""
        producer = after.producer()
        if producer is not None and producer.graph is self._graph:
            inherit(node, producer)
            self._graph.insert_after(producer, node)
        else:
            self._graph.insert_before(self._graph[0], node)
