"""Base classes of the ONNX passes that rewrite one node at a time, and functions that replace a node."""

from __future__ import annotations

import abc
import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import onnx_ir as ir

from ...registration import schemas
from ...registration.arguments import blocks, walk_graphs
from ...registration.origins import inherit
from ...registration.runtimes import has_kernel
from ..faults import faults_of
from .constants.initializers import Initializers
from .pass_order import OnnxPass


class IndexedPass(OnnxPass, abc.ABC):
    """A pass that looks up nodes in an index, which passes share until one of them changes the nodes.

    Attributes:
        keeps_nodes: whether the pass neither adds nor removes nodes.
    """

    keeps_nodes: bool = False

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model, and report whether anything changed."""
        return ir.passes.PassResult(model, self.run(model, NodesByOperator(model.graph)))

    @abc.abstractmethod
    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """The same as `call`, for a model whose nodes are known."""


class NodePass(IndexedPass):
    """Calls `rewrite` for each node of some ONNX operators, in the main graph and its sub-graphs.

    Attributes:
        op_types: the operators, of ONNX's own domain; None for all of them.
        writes: an operator that the pass writes. The pass does nothing in an opset without it, or at which
            neither onnxruntime nor the consumer has a kernel for it.
        kernels: operators that the consumer of the model has kernels of.
        opset: the opset of the model that is rewritten.
    """

    op_types: Collection[str] | None = None
    writes: str | None = None
    kernels: Collection[str] = ()
    opset: int = 0

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Rewrite the nodes, and report whether anything changed."""
        self.opset = model.opset_imports.get("", 0)
        candidates = nodes.of(self.op_types)
        if not candidates or not self.can_write(self.writes) or not self.begin(model):
            return False
        modified = False
        for node in candidates:
            # The rewriting of another node may have removed this one.
            if node.graph is not None:
                modified |= self.rewrite(node)
        return modified

    def can_write(self, op_type: str | None) -> bool:
        """Whether the model's opset has an operator, and runtimes a kernel for it; True for None."""
        if op_type is None:
            return True
        runs = op_type in self.kernels or has_kernel(op_type, None, self.opset)
        return self.schema(op_type) is not None and runs

    def begin(self, model: ir.Model) -> bool:
        """Prepare for a model; returns whether the pass applies to it."""
        return True

    @abc.abstractmethod
    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite a node, and return whether anything changed."""

    def schema(self, op_type: str) -> schemas.OperatorSchema | None:
        """An operator in the model's opset; None if the opset does not have it."""
        return schemas.operator_schema(op_type, self.opset)


class InitializerPass(IndexedPass):
    """An `IndexedPass` that reads and adds constants.

    Attributes:
        initializers: the constants of the model that it may fold, and new ones.
    """

    def __init__(self, initializers: Initializers):
        super().__init__()
        self.initializers = initializers

    @classmethod
    def create(cls, initializers: Initializers) -> OnnxPass:
        """The pass for a model with these initializers."""
        return cls(initializers)


class ConstantPass(InitializerPass, NodePass):
    """A `NodePass` that reads and adds constants."""


class NodesByOperator:
    """The nodes of a graph and its sub-graphs by operator, until a pass changes them.

    Most passes look for operators that a graph has few of, or none.

    Attributes:
        all: every node, in the order of `every_node`.
        graphs: the graph and its sub-graphs, each before those of its own nodes.
    """

    def __init__(self, graph: ir.Graph, is_flat: bool = False):
        """Gather the nodes.

        Args:
            is_flat: whether the graph is known to have no sub-graphs, so that no attribute is looked at.
        """
        # Looking for sub-graphs costs as much as most passes.
        self.all, self.graphs = (list(graph), [graph]) if is_flat else walk_graphs(graph)
        self._positions: dict[str, list[int]] = defaultdict(list)
        for position, node in enumerate(self.all):
            self._positions[node.op_type].append(position)

    def of(self, op_types: Collection[str] | None) -> list[ir.Node]:
        """The nodes of some operators of ONNX's own domain, in order; None stands for all of them."""
        names = self._positions if op_types is None else self._positions.keys() & set(op_types)
        positions = sorted(position for name in names for position in self._positions[name])
        return [node for node in map(self.all.__getitem__, positions) if not node.domain]


def run_in_order(
    model: ir.Model,
    passes: Iterable[ir.passes.PassBase],
    remedy_for: Callable[[ir.passes.PassBase], str] = lambda _: "",
) -> bool:
    """Run passes one after the other, and report whether anything changed.

    The nodes are gathered again only after a pass that changed them. No ONNX pass creates sub-graphs, so a
    graph without sub-graphs never gets one.

    Args:
        remedy_for: what a caller may do instead, if a pass fails.

    Raises:
        OpsettaError: a pass failed.
    """
    nodes: NodesByOperator | None = None
    modified = is_flat = False
    for graph_pass in passes:
        with faults_of(type(graph_pass).__name__.strip("_"), functools.partial(remedy_for, graph_pass)):
            if isinstance(graph_pass, IndexedPass):
                if nodes is None:
                    nodes = NodesByOperator(model.graph, is_flat)
                    is_flat = len(nodes.graphs) == 1
                changed, keeps_nodes = graph_pass.run(model, nodes), graph_pass.keeps_nodes
            else:
                changed, keeps_nodes = graph_pass(model).modified, False
        if changed:
            nodes, modified = nodes if keeps_nodes else None, True
    return modified


def new_node(
    initializers: Initializers,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    shape: ir.Shape | None,
    attributes: Sequence[ir.Attr] = (),
) -> ir.Node:
    """A node in no graph yet, named after its first input; its result has the type of that input."""
    first = inputs[0]
    assert first is not None
    name = initializers.unique(f"{(first.name or op_type).removesuffix('_output_0')}/{op_type}")
    node = ir.Node("", op_type, inputs, attributes, num_outputs=1, name=name)
    result = node.outputs[0]
    result.name, result.type, result.shape = initializers.unique(f"{name}_output_0"), first.type, shape
    return node


def insert_node(
    successor: ir.Node,
    initializers: Initializers,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    shape: ir.Shape | None,
    attributes: Sequence[ir.Attr] = (),
    dtype: ir.DataType | None = None,
) -> ir.Value:
    """The result of a new node before another, by default of the element type of its first input."""
    inserted = new_node(initializers, op_type, inputs, shape, attributes)
    if dtype is not None:
        inserted.outputs[0].type = ir.TensorType(dtype)
    assert successor.graph is not None
    successor.graph.insert_before(successor, inserted)
    inherit(inserted, successor)
    return inserted.outputs[0]


def new_split(
    origin: ir.Node,
    initializers: Initializers,
    operand: ir.Value,
    axis: int,
    sizes: Sequence[int],
    suffix: str,
    opset: int,
) -> ir.Node:
    """A Split in no graph yet, named after the node that it stands for and the suffix.

    Its sizes are an attribute or an input, depending on the opset; its results have names, types and shapes.
    """
    schema = schemas.operator_schema("Split", opset)
    inputs: list[ir.Value | None] = [operand]
    attributes = [ir.AttrInt64("axis", axis)] if axis else []
    # The sizes are an input from opset 13 on.
    if schema is not None and "split" in schema.input_index:
        inputs.append(initializers.make(np.array(sizes, np.int64), f"{suffix}_sizes"))
    else:
        attributes.append(ir.AttrInt64s("split", sizes))
    name = initializers.unique(f"{origin.name or origin.op_type}/{suffix}")
    split = ir.Node("", "Split", inputs, attributes, num_outputs=len(sizes), name=name)
    for index, (result, size) in enumerate(zip(split.outputs, sizes, strict=True)):
        result.name, result.type = initializers.unique(f"{name}_output_{index}"), operand.type
        result.shape = None if operand.shape is None else with_size(operand.shape, axis, size)
    inherit(split, origin)
    return split


def with_size(shape: ir.Shape, axis: int, size: int) -> ir.Shape:
    """A shape with another size of an axis."""
    return ir.Shape([size if index == axis else old for index, old in enumerate(shape)])


def replace_node(
    node: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr] = ()
) -> None:
    """Replace a node by another node with one output, under the same names."""
    replacement = ir.Node("", op_type, inputs, attributes, num_outputs=1, name=node.name)
    old, result, graph = node.outputs[0], replacement.outputs[0], node.graph
    result.name, result.type, result.shape = old.name, old.type, old.shape
    inherit(replacement, node)
    assert graph is not None
    graph.insert_before(node, replacement)
    replace_by_value(node, result)


def replace_match(
    last: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr], opset: int
) -> None:
    """Replace the nodes that end in `last` by one operator.

    Attributes equal to their default are left out.
    """
    written_attributes = [
        attribute for attribute in attributes if not schemas.omissible(op_type, opset, attribute)
    ]
    name = f"{last.name or last.outputs[0].name}_fused"
    # The old name is still taken; the fused node keeps a related one.
    fused = ir.Node("", op_type, inputs, written_attributes, num_outputs=1, name=name)
    result, old, graph = fused.outputs[0], last.outputs[0], last.graph
    result.type, result.shape, result.name = old.type, old.shape, f"{old.name}_fused"
    assert graph is not None
    graph.insert_before(last, fused)
    old.replace_all_uses_with(result, replace_graph_outputs=True)
    inherit(fused, last, *remove_unread(last))


def remove_unread(node: ir.Node) -> list[ir.Node]:
    """Remove a node that nothing reads, and the nodes that only it needed; return the removed nodes."""
    pending, removed = [node], []
    while pending:
        current = pending.pop()
        if current.graph is None or any(
            output.uses() or output.is_graph_output() for output in current.outputs
        ):
            continue
        producers = [value.producer() for value in current.inputs if value is not None]
        current.graph.remove(current, safe=True)
        removed.append(current)
        pending += [producer for producer in producers if producer is not None]
    return removed


def replace_by_value(node: ir.Node, value: ir.Value) -> None:
    """Replace all uses of a node's first output, graph outputs included, by another value."""
    node.outputs[0].replace_all_uses_with(value, replace_graph_outputs=True)
    assert node.graph is not None
    node.graph.remove(node, safe=True)


def remove_node(node: ir.Node) -> None:
    """Remove a node whose results nothing reads, and the uses of values by the nodes of its sub-graphs."""
    for block in blocks(node) if node.attributes.data else ():
        block.outputs.clear()
        for inner in reversed(block):
            remove_node(inner)
    assert node.graph is not None
    node.graph.remove(node, safe=True)


def producer_of(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The ONNX node that computes a value, if it is one of these operators."""
    node = value.producer() if value is not None else None
    return node if node is not None and not node.domain and node.op_type in op_types else None


def exclusive_producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that computes a value, if it has one of these types and the value exactly one reader."""
    node = value.producer() if value is not None else None
    if node is None or value is None or node.domain or node.op_type not in op_types:
        return None
    # With another reader the node would stay, and fusing would compute its value twice.
    if value is not node.outputs[0] or value.is_graph_output() or len(value.uses()) != 1:
        return None
    return node


def removable_producer(reader: ir.Node, value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The ONNX node that computes a value, if it can be removed together with the only reader of the value.

    Both are in one graph, and no graph returns the value.

    Args:
        op_types: the operators that it may be; without them, any.
    """
    node = value.producer() if value is not None else None
    if value is None or node is None or node.domain or node.graph is not reader.graph:
        return None
    if op_types and node.op_type not in op_types:
        return None
    return node if len(value.uses()) == 1 and not value.is_graph_output() else None


def keeps_shape(operand: ir.Value, other_shape: tuple[int, ...]) -> bool:
    """Whether an operand that is broadcast with another shape keeps its own."""
    if not other_shape:
        return True
    shape = operand.shape
    if shape is None or len(other_shape) > len(shape):
        return False
    trailing_sizes = shape[len(shape) - len(other_shape) :]
    return all(
        size == 1 or size == operand_size
        for size, operand_size in zip(other_shape, trailing_sizes, strict=True)
    )
