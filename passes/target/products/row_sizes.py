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
from ..shapes.shape_chains import reshape_target

Dimensions = tuple[int | ir.SymbolicDim, ...]


def unknown_dimensions(shape: Iterable[int | ir.SymbolicDim]) -> Dimensions:
    """The named dimensions of unknown size that a shape begins with."""
    found: list[int | ir.SymbolicDim] = []
    for size in shape:
        if isinstance(size, int) or size.value is None:
            break
        found.append(size)
    return tuple(found)


class RowSizes:
    """Makes the targets of Reshapes in one graph."""

    def __init__(self, graph: ir.Graph, nodes: Iterable[ir.Node], known: Initializers, opset: int):
        """Make a table without targets.

        Args:
            nodes: those of the graph, in their order.
        """
        self._graph = graph
        self._known = known
        self._opset = opset
        self._sources: dict[Dimensions, ir.Value] = {}
        self._places = {node: place for place, node in enumerate(nodes)}
        self._sizes: dict[Dimensions, ir.Value] = {}
        self._targets: dict[tuple[Dimensions, Dimensions], ir.Value] = {}

    def in_order(self, nodes: Iterable[ir.Node]) -> list[ir.Node]:
        """Nodes in the order of the graph."""
        return sorted(nodes, key=self._places.__getitem__)

    def find_sources(self, rewritten: Collection[ir.Node]) -> None:
        """Find values with the sizes; results of the nodes that are rewritten lose them."""
        outputs = (value for node in self._places if node not in rewritten for value in node.outputs)
        for values in (self._graph.inputs, outputs):
            for value in values:
                if value.shape is None or not isinstance(value.type, ir.TensorType):
                    continue
                sizes = value.shape.dims
                if len(sizes) < 2 or isinstance(sizes[0], int):
                    continue
                dimensions = unknown_dimensions(sizes)
                if len(dimensions) > 1:
                    self._sources.setdefault(dimensions, value)

    def restores(self, shape: ir.Shape | None, node: ir.Node) -> bool:
        """Whether a Reshape at the place of a node can give a shape: from values that are made before it."""
        if shape is None or reshape_target(shape) is not None:
            return shape is not None
        dimensions = unknown_dimensions(shape)
        source = self._sources.get(dimensions)
        if source is None or not all(isinstance(size, int) and size for size in shape[len(dimensions) :]):
            return False
        maker = source.producer()
        return maker is None or self._places.get(maker, -1) < self._places[node]

    def cost(self, shapes: Iterable[Dimensions]) -> int:
        """The nodes that are added to compute the targets for shapes."""
        wanted = {each: unknown_dimensions(each) for each in shapes if reshape_target(ir.Shape(each)) is None}
        count = len(wanted)
        for dimensions in set(wanted.values()):
            source = self._sources[dimensions]
            count += self._existing(source) is None
            count += len(source.shape or ()) > len(dimensions)
        return count

    def give_target(self, reshape: ir.Node, shape: ir.Shape) -> None:
        """Let a Reshape give a shape."""
        constant = reshape_target(shape)
        if constant is not None:
            target = self._known.make(np.array(constant, dtype=np.int64), "rows_shape")
        else:
            target = self._target(shape)
            schema = operator_schema("Reshape", self._opset)
            if schema is not None and "allowzero" in schema.attributes:
                # A size of zero would stand for a size of the matrix.
                reshape.attributes.add(ir.AttrInt64("allowzero", 1))
        reshape.replace_input_with(1, target)

    def _target(self, shape: ir.Shape) -> ir.Value:
        dimensions = unknown_dimensions(shape)
        rest = tuple(shape[len(dimensions) :])
        if (dimensions, rest) not in self._targets:
            sizes = self._of_source(dimensions)
            tail = self._known.make(np.array(rest, dtype=np.int64), "columns_shape")
            axis = ir.AttrInt64("axis", 0)
            self._targets[dimensions, rest] = self._insert_node(
                sizes, "Concat", [sizes, tail], len(shape), axis
            )
        return self._targets[dimensions, rest]

    def _of_source(self, dimensions: Dimensions) -> ir.Value:
        """The sizes of the unknown dimensions."""
        if dimensions not in self._sizes:
            source = self._sources[dimensions]
            assert source.shape is not None
            sizes = self._shape_of(source, len(source.shape))
            if len(source.shape) > len(dimensions):
                places = self._known.make(np.arange(len(dimensions)), "places")
                sizes = self._insert_node(sizes, "Gather", [sizes, places], len(dimensions))
            self._sizes[dimensions] = sizes
        return self._sizes[dimensions]

    def _shape_of(self, source: ir.Value, rank: int) -> ir.Value:
        """The result of a Shape; one that is there moves to its source."""
        found = self._existing(source)
        if found is None:
            return self._insert_node(source, "Shape", [source], rank)
        self._graph.remove(found)
        self._insert(found, source)
        return found.outputs[0]

    def _existing(self, source: ir.Value) -> ir.Node | None:
        readers = (node for node, _ in source.uses() if node.op_type == "Shape" and not node.domain)
        return next((node for node in readers if node.graph is self._graph and not node.attributes), None)

    def _insert_node(
        self, after: ir.Value, op_type: str, inputs: list[ir.Value], length: int, *attributes: ir.Attr
    ) -> ir.Value:
        """The result, a vector of integers, of a new node behind the one that makes a value."""
        name = self._known.unique(f"{(inputs[0].name or 'rows').removesuffix('_output_0')}/{op_type}")
        node = ir.Node("", op_type, inputs, attributes, num_outputs=1, name=name)
        result = node.outputs[0]
        result.name, result.shape = self._known.unique(f"{name}_output_0"), ir.Shape([length])
        result.type = ir.TensorType(ir.DataType.INT64)
        self._insert(node, after)
        return result

    def _insert(self, node: ir.Node, after: ir.Value) -> None:
        """Put a node behind the one that makes a value."""
        maker = after.producer()
        if maker is not None and maker.graph is self._graph:
            inherit(node, maker)
            self._graph.insert_after(maker, node)
        else:
            self._graph.insert_before(self._graph[0], node)
