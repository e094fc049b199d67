"""Replaces nodes of a finished ONNX graph by others, which are emitted against the schemas of its opset."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir

from ...registration import MAY_OVERWRITE, GraphContext, GraphError, Registry
from ...registration.construction.graph import SourcePosition
from ...registration.metadata import PLAN_PHASE
from ...registration.origins import origins_of, set_origins
from ..onnx_graph.constants.initializers import rename_tensor

MAXIMUM_NODES = 200_000
"""The maximum number of nodes that one pass creates by repetition."""


class Rewriter:
    """Emits nodes before a node of a graph, and replaces the node's outputs by their results.

    Attributes:
        model: the model that is rewritten; constants become initializers of its main graph.
    """

    def __init__(self, model: ir.Model, registry: Registry | None = None):
        """Make a rewriter.

        Args:
            registry: has the compositions of operators that the opset lacks; by default these are refused.
        """
        self.model = model
        imports = model.graph.opset_imports
        self.opset = imports.get("", imports.get("ai.onnx", 0))
        self._context = GraphContext(model.graph, self.opset, registry or Registry())
        self._names = self._context.construction.names
        self._repeated_nodes = 0
        self._emitted: set[ir.Node] = set()
        self._names.take_all(model.graph)

    def unique(self, stem: str) -> str:
        """The stem, or the stem with the lowest number that no value or node has."""
        return self._names.unique(stem)

    @contextlib.contextmanager
    def before(self, node: ir.Node, scope: str | None = None) -> Iterator[GraphContext]:
        """Emit nodes that are inserted before a node when the block ends.

        Args:
            scope: the prefix of the new nodes' names; by default the name of the node.
        """
        assert node.graph is not None
        construction = self._context.construction
        # A scratch graph, so that nothing changes if the emission is refused halfway.
        scratch = ir.Graph([], [], nodes=[])
        path = scope or node.name or node.outputs[0].name or node.op_type
        outer = construction.graph, construction.position
        construction.graph, construction.position = scratch, SourcePosition(None, f"{path}/", _origin(node))
        try:
            yield self._context
        finally:
            construction.graph, construction.position = outer
        nodes = list(scratch)
        origins = origins_of(node)
        for emitted_node in nodes if origins else ():
            set_origins(emitted_node, origins)
        scratch.remove(nodes)
        node.graph.insert_before(node, nodes)
        self._emitted.update(nodes)

    def use(self, value: ir.Value) -> ir.Value:
        """The value; a constant that was emitted becomes an initializer."""
        return self._context.construction.use(value)

    def replace(self, node: ir.Node, results: Sequence[ir.Value | None]) -> None:
        """Replace the uses of a node's outputs by other values, and remove the node.

        A value that was emitted for this, or that becomes an output of the graph, takes over the name.

        Args:
            results: one per output; None for an output that nothing reads.
        """
        graph = node.graph
        assert graph is not None
        for old, new in zip(node.outputs, results, strict=True):
            if new is None or not (old.uses() or old.is_graph_output()):
                continue
            self.use(new)
            is_output = old.is_graph_output()
            # A graph cannot return its input, an initializer, a value twice, or a value of another graph.
            if is_output and (new.producer() is None or new.is_graph_output() or new.graph is not graph):
                with self.before(node) as g:
                    new = g.op("Identity", new)
            new.type = new.type or old.type
            if old.shape is not None:
                # The new value may be an input of the graph, whose shape says more than that of the old one.
                shape = new.shape if new.shape is not None and len(new.shape) == len(old.shape) else old.shape
                sizes = [
                    size if isinstance(size, int) or old_size == ir.SymbolicDim(None) else old_size
                    for size, old_size in zip(shape, old.shape, strict=True)
                ]
                new.shape = ir.Shape(sizes)
            old.replace_all_uses_with(new, replace_graph_outputs=True)
            if is_output or new.producer() in self._emitted:
                new.name, old.name = old.name, None
        graph.remove(node, safe=True)

    def lift_initializers(self, graph: ir.Graph, stem: str) -> None:
        """Move the initializers of a sub-graph to the main graph."""
        for value in list(graph.initializers.values()):
            graph.initializers.pop(value.name or "")
            name = self.unique(f"{stem}/{value.name}")
            if value.const_value is not None:
                value.const_value = rename_tensor(value.const_value, name)
            value.name = name
            self.model.graph.initializers.add(value)

    def count(self, nodes: int, unrolled_node: ir.Node) -> None:
        """Count nodes that an unrolling is about to create.

        Raises:
            GraphError: they are too many.
        """
        self._repeated_nodes += nodes
        if self._repeated_nodes > MAXIMUM_NODES:
            raise GraphError(
                f"unrolling {title(unrolled_node)} makes more than {MAXIMUM_NODES} nodes: shorten the "
                "sequence, or do not unroll"
            )

    def initializer(self, stem: str, tensor: ir.TensorProtocol) -> ir.Value:
        """A new initializer of the main graph."""
        value = ir.Value(
            name=self.unique(stem),
            shape=ir.Shape(tensor.shape.numpy()),
            type=ir.TensorType(tensor.dtype),
        )
        value.const_value = rename_tensor(tensor, value.name or "")
        self.model.graph.initializers.add(value)
        return value


def _origin(node: ir.Node) -> dict[str, str]:
    """The metadata of a node that also hold for the nodes that replace it."""
    return {
        key: text for key, text in node.metadata_props.items() if key != MAY_OVERWRITE and not is_of_plan(key)
    }


def is_of_plan(key: str) -> bool:
    """Whether metadata states a plan. The phase of training does not depend on one."""
    return key.startswith("opsetta.plan.") and key != PLAN_PHASE


def title(node: ir.Node) -> str:
    """The operator and the name of a node, for messages."""
    return f"{node.op_type} '{node.name or node.outputs[0].name}'"


def list_shapes(values: Sequence[ir.Value]) -> str:
    """The names and shapes of values, for messages."""
    return ", ".join(f"{value.name}{value.shape}" for value in values)


def is_onnx(node: ir.Node | None, *op_types: str) -> bool:
    """Whether a node is one of these operators of ONNX's own domain."""
    return node is not None and node.domain in ("", "ai.onnx") and node.op_type in op_types


def attribute(node: ir.Node, name: str, default: object = None) -> Any:
    """The value of an attribute of a node."""
    node_attribute = node.attributes.get(name)
    if node_attribute is None:
        return default
    if node_attribute.is_ref():
        raise GraphError(
            f"attribute '{name}' of {title(node)} refers to a parameter of a function: inline the functions "
            "of the model first"
        )
    value = node_attribute.value
    return value.decode() if isinstance(value, bytes) else value


def constant_of(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The contents of an initializer that no caller can replace, or of a Constant; else None."""
    # Exporters often put an Identity between a shared weight and its readers.
    while value is not None and is_onnx(value.producer(), "Identity"):
        value = value.producer().inputs[0]  # type: ignore[union-attr]
    if value is None or value.is_graph_input():
        return None
    return ir.convenience.get_const_tensor(value)


def only_reader(value: ir.Value) -> ir.Node | None:
    """The node that reads a value, if it is the only reader and the value is no output of a graph."""
    readers = [use.node for use in value.uses()]
    return readers[0] if len(readers) == 1 and not value.is_graph_output() else None
