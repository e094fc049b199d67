"""Emits the source nodes that results depend on, from the results backwards.

A `GraphScope` emits into one graph: that of the model, or a block of a loop or a branch. Nodes that no result
depends on are not emitted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from .....registration import KIND, MODULE, CaptureError, ModelFileError, Names
from .....registration.arguments import source_node
from ....files.reading.bounds import REMEDY, Bounds
from ..element_types import ElementType, onnx_type
from ..freezing.variables import StoredVariable
from ..messages import TensorProto
from ..tensor_protos import array_of
from .attributes import attributes_of, shape_of
from .flow import Flow, cycle_error
from .function_library import Library
from .nodes import TABLES, Edge, GraphNode

DEVICE = "device"
"""Metadata key of source nodes: the device on which TensorFlow places the node."""
MAXIMUM_DEPTH = 24
"""Bound on the nesting of blocks and calls; a source file takes 28."""
_FLOATS = (
    ir.DataType.FLOAT,
    ir.DataType.DOUBLE,
    ir.DataType.FLOAT16,
    ir.DataType.BFLOAT16,
    ir.DataType.COMPLEX64,
    ir.DataType.COMPLEX128,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """An input of a block: a result outside of it, or a loop variable, by its initial value and its Merge."""

    outer: Edge
    variable: GraphNode | None = None


class Region(Protocol):
    """The part of a graph that becomes a block."""

    def slot(self, edge: Edge) -> Slot | None:
        """The block input for a result; None for a result that the block computes."""


@dataclasses.dataclass(slots=True)
class Unit:
    """A group of results that are computed together, of the node, loop or branching `key`."""

    key: object
    needs: Sequence[Edge]
    build: Callable[[], None]


_MOST_EXPANDED = 80_000
"""Nodes of a model with its functions inlined, unless its file has more. Each takes about 2,200 bytes."""
_READ_AT_ONCE = 2**20
"""Bytes of a weight up to which it is kept in memory, where passes read it several times."""
_NODES_OF_GRAPH = 16
"""Nodes that take as much time as the graph of a branch or of a loop's body."""
Begin = Callable[["GraphScope", Edge], "Unit | None"]
"""Says what makes a result in a scope; None if it has given the result a value itself."""


class Emitter:
    """The state that all scopes of one capture share.

    Attributes:
        graph: the model's graph, which has all initializers.
        library: the functions and operators.
        begin: begins to convert a result, by its operator.
        placeholder: makes the graph input for a placeholder; returns None if it must not become one.
        weights: the contents of Const nodes of the graph that are in a checkpoint.
        tables: the keys and values of lookup tables, by their handles; or the reason why they are unknown.
    """

    def __init__(
        self, graph: ir.Graph, library: Library, begin: Begin, bounds: Bounds, node_count: int, size: int
    ):
        """Begin a capture.

        Args:
            node_count: the nodes in the file, which bound the nodes of the model with its functions inlined.
            size: the bytes of the graph and its weights, which bound them too.
        """
        self.graph = graph
        self.library = library
        self.begin = begin
        self.names = Names()
        self.placeholder: Callable[[GraphNode], ir.Value | None] = lambda node: None
        self.weights: Mapping[GraphNode, StoredVariable] = {}
        self.tables: dict[ir.Value, tuple[ir.Value, ir.Value] | str] = {}
        self._bounds = bounds
        self._constants: dict[GraphNode, ir.Value] = {}
        expanded = min(
            bounds.expanded_nodes + 16 * node_count,
            max(bounds.expanded_nodes, _MOST_EXPANDED),
            bounds.graph_nodes_of(size),
        )
        self._remaining = min(bounds.nodes, max(node_count, expanded))

    def charge(self, node: GraphNode | None, count: int = 1) -> None:
        """Count an emitted node, or a graph, which takes as much as several."""
        self._remaining -= count
        if self._remaining < 0:
            position = "" if node is None else f", at {node.label}"
            raise ModelFileError(
                f"the model has too many nodes when its functions are inlined{position}; {REMEDY}"
            )

    def constant(self, node: GraphNode, prefix: str) -> ir.Value:
        """The initializer of a Const."""
        initializer = self._constants.get(node)
        if initializer is None:
            tensor = node.attribute("value").tensor
            declared_type, stored_type = onnx_type(node.attribute("dtype").type), onnx_type(tensor.dtype)
            if declared_type != stored_type:
                raise ModelFileError(
                    f"{node.label} is {_type_title(declared_type)} by its 'dtype', but contains "
                    f"{_type_title(stored_type)}"
                )
            weight = self.weights.get(node)
            name = prefix + node.name
            initializer = (
                self.initializer(name, node, tensor) if weight is None else self._weight_value(name, weight)
            )
            self._constants[node] = initializer
        return initializer

    def _weight_value(self, name: str, weight: StoredVariable) -> ir.Value:
        """The initializer of a weight; a large one is read each time that its elements are needed."""
        name, declared = self.names.unique(name), onnx_type(weight.dtype)
        dtype = declared if isinstance(declared, ir.DataType) else None
        tensor: ir.TensorProtocol
        if dtype is not None and math.prod(weight.shape) * dtype.bitwidth > 8 * _READ_AT_ONCE:
            read, shape = weight.read, ir.Shape(weight.shape)
            tensor = ir.LazyTensor(
                lambda: ir.Tensor(read(), dtype=dtype, name=name), dtype=dtype, shape=shape, name=name
            )
        else:
            tensor = ir.Tensor(weight.read(), dtype=dtype, name=name)
        return self._add_initializer(tensor, "parameter" if tensor.dtype in _FLOATS else "constant")

    def number(self, name: str, array: np.ndarray) -> ir.Value:
        """Make an initializer of integers."""
        name = self.names.unique(name)
        return self._add_initializer(ir.Tensor(array, name=name), "constant")

    def initializer(self, name: str, node: GraphNode, message: TensorProto) -> ir.Value:
        """Make an initializer from a TensorProto, under a unique name."""
        array = array_of(message, node.label, self._bounds)
        element_type = onnx_type(message.dtype)
        name = self.names.unique(name)
        tensor: ir.TensorProtocol
        if array.dtype.hasobject:
            tensor = ir.StringTensor(array, name=name)
        elif isinstance(element_type, ir.DataType):
            tensor = ir.Tensor(array, dtype=element_type, name=name)
        else:
            tensor = ir.Tensor(array, name=name)
        # Scalars and integers are constants of the computation, not weights that a user looks up.
        is_weight = bool(array.ndim) and tensor.dtype in _FLOATS
        return self._add_initializer(tensor, "parameter" if is_weight else "constant")

    def _add_initializer(self, tensor: ir.TensorProtocol, kind: str) -> ir.Value:
        value = ir.Value(
            name=tensor.name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
            metadata_props={KIND: kind},
        )
        self.graph.initializers.add(value)
        return value


def _type_title(element_type: ElementType) -> str:
    return element_type if isinstance(element_type, str) else element_type.name


@dataclasses.dataclass(eq=False)
class GraphScope:
    """Emits into one graph.

    Attributes:
        prefix: the start of node names, in the body of a function.
        region: the part of the TensorFlow graph that becomes this block; None if all of it does.
        slots: the inputs of the blocks of one operator, which share this dictionary.
        depth: the nesting depth of blocks and calls.
        calls: the functions whose bodies enclose it, outermost first.
        values: the values of results.
    """

    emitter: Emitter
    graph: ir.Graph
    flow: Flow | None
    region: Region | None = None
    slots: dict[Slot, None] = dataclasses.field(default_factory=dict)
    prefix: str = ""
    depth: int = 0
    calls: tuple[str, ...] = ()
    values: dict[Edge, ir.Value] = dataclasses.field(default_factory=dict, init=False)
    _formals: dict[Slot, ir.Value] = dataclasses.field(default_factory=dict, init=False)
    _branches: set[tuple[Edge, int]] = dataclasses.field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if self.depth > MAXIMUM_DEPTH:
            raise CaptureError(f"loops, branches and calls are nested more than {MAXIMUM_DEPTH} deep")
        if self.graph is not self.emitter.graph:
            self.emitter.charge(None, _NODES_OF_GRAPH)

    def demand(self, edges: Sequence[Edge]) -> list[ir.Value]:
        """Return the values of results; emit all nodes that they depend on."""
        # An explicit stack: graphs are deeper than Python's recursion limit.
        pending = [*reversed(edges)]
        open_units: dict[object, Unit] = {}
        units: dict[Edge, Unit] = {}
        while pending:
            edge = pending[-1]
            if edge in self.values:
                pending.pop()
                continue
            unit = units.get(edge)
            if unit is None:
                unit = self._begin(edge)
                if unit is None:
                    continue
                units[edge] = unit
                # The unit waits for one of its own results.
                if unit.key in open_units:
                    raise self._cycle_error(open_units)
                open_units[unit.key] = unit
                missing = [need for need in unit.needs if need not in self.values]
                if missing:
                    pending += reversed(missing)
                    continue
            if any(need not in self.values for need in unit.needs):
                raise self._cycle_error(open_units)
            unit.build()
            del open_units[unit.key]
        return [self.values[edge] for edge in edges]

    def _begin(self, edge: Edge) -> Unit | None:
        # Blocks can read the initializers of the model: a Const or a table needs no block input.
        is_initializer = edge.node.op == "Const" or edge.node.op in TABLES
        slot = self.region.slot(edge) if self.region is not None and not is_initializer else None
        if slot is not None:
            self.values[edge] = self.formal(slot)
            return None
        return self.emitter.begin(self, edge)

    def _cycle_error(self, open_units: Iterable[object]) -> ModelFileError:
        return cycle_error([unit for unit in open_units if isinstance(unit, GraphNode)])

    def formal(self, slot: Slot) -> ir.Value:
        """Return the block input of a slot."""
        value = self._formals.get(slot)
        if value is None:
            edge = slot.outer
            value = self._formals[slot] = self.value(f"{edge.label}_in", edge.node.result_type(edge.output))
            self.slots.setdefault(slot)
        return value

    def enter_branch(self, predicate: Edge, branch: int) -> None:
        """Record that the block is a branch of a predicate."""
        self._branches.add((predicate, branch))

    def is_in_branch(self, predicate: Edge, branch: int) -> bool:
        """Whether the block is this branch of a predicate."""
        return (predicate, branch) in self._branches

    def value(
        self, name: str, element_type: ElementType | None, shape: Sequence[int] | None = None
    ) -> ir.Value:
        """A new value; the element type is text if ONNX lacks it, and -1 in the shape is an unknown size."""
        return ir.Value(
            name=self.emitter.names.unique(self.prefix + name),
            type=ir.TensorType(element_type) if isinstance(element_type, ir.DataType) else None,
            shape=None if shape is None else ir.Shape([None if size < 0 else size for size in shape]),
        )

    def block(self, name: str, flow: Flow | None, region: Region, slots: dict[Slot, None]) -> GraphScope:
        """A scope for a block of a node, with a graph of its own."""
        graph = ir.Graph([], [], nodes=[], name=self.emitter.names.unique(self.prefix + name))
        return GraphScope(self.emitter, graph, flow, region, slots, self.prefix, self.depth + 1, self.calls)

    def call(
        self, node: GraphNode, function: str, flow: Flow | None, graph: ir.Graph | None = None
    ) -> GraphScope:
        """Make a scope for the body of a called function; in this graph, unless another is given.

        Raises:
            CaptureError: the function is being called already.
        """
        if function in self.calls:
            raise CaptureError(
                f"function '{function}' calls itself at {node.label}, which ONNX cannot express"
            )
        return GraphScope(
            self.emitter,
            self.graph if graph is None else graph,
            flow,
            prefix=f"{self.prefix}{node.name}/",
            depth=self.depth + 1,
            calls=(*self.calls, function),
        )

    def close(self, formals: Iterable[ir.Value], results: Iterable[ir.Value]) -> ir.Graph:
        """Give the scope's block its inputs and outputs."""
        self.graph.inputs.extend(formals)
        for value in results:
            # ONNX demands that a node of the subgraph computes its outputs.
            self.graph.outputs.append(self.copy_value(value) if value.is_initializer() else value)
        return self.graph

    def transpose_value(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Transpose a value."""
        name = self.emitter.names.unique(f"{value.name}_transposed")
        permutation = self.emitter.number(f"{name}/perm", np.asarray(order, dtype=np.int32))
        result = ir.Value(name=name, type=value.type)
        arguments = {"x": value, "perm": permutation, "T": value.dtype, "Tperm": permutation.dtype}
        self.graph.append(source_node("tf::Transpose", arguments, outputs=[result], node_name=name))
        return result

    def copy_value(self, value: ir.Value) -> ir.Value:
        """The result of an Identity."""
        copy = ir.Value(
            name=self.emitter.names.unique(f"{value.name}_copy"), type=value.type, shape=value.shape
        )
        self.graph.append(source_node("tf::Identity", {"input": value, "T": value.dtype}, outputs=[copy]))
        return copy

    def add(
        self,
        node: GraphNode,
        arguments: dict[str, Any],
        outputs: Sequence[ir.Value],
        *,
        op: str | None = None,
        blocks: dict[str, ir.Graph] | None = None,
    ) -> None:
        """Append a source node, of the node's own operator or of `op`."""
        self.emitter.charge(node)
        name = self.prefix + node.name
        graphs = [ir.Attr(key, ir.AttributeType.GRAPH, graph) for key, graph in (blocks or {}).items()]
        metadata = {MODULE: name}
        if node.device:
            metadata[DEVICE] = node.device
        source = source_node(
            f"tf::{op or node.op}",
            arguments,
            outputs=outputs,
            node_name=name,
            attributes=graphs,
            metadata_props=metadata,
        )
        self.graph.append(source)

    def define(self, node: GraphNode, values: Iterable[ir.Value]) -> None:
        """Give a node's results their values."""
        for index, value in enumerate(values):
            # A result that a caller feeds has a value already, and keeps it.
            self.values.setdefault(Edge(node, index), value)

    def emit(self, node: GraphNode) -> None:
        """Append the source node of an operator."""
        input_values = [self.values[edge] for edge in node.inputs]
        arguments = self._bind_inputs(node, input_values) | attributes_of(node, self._make_initializer)
        # Without an OpDef, only the nodes that read the results tell how many there are.
        element_types = (
            node.result_types() if node.definition is not None else [None] * (node.highest_read_output + 1)
        )
        shapes: list[list[int] | None] = []
        if "_output_shapes" in node.stated_attributes:
            shapes = [shape_of(message) for message in node.attribute("_output_shapes").list.shape]
        # The shape of variants counts them; symbolic functions choose the tensors that represent them.
        outputs = [
            self.value(
                Edge(node, index).label,
                element_type,
                shapes[index] if index < len(shapes) and element_type != "variant" else None,
            )
            for index, element_type in enumerate(element_types)
        ]
        self.add(node, arguments, outputs)
        self.define(node, outputs)

    def _make_initializer(self, node: GraphNode, name: str, message: TensorProto) -> ir.Value:
        return self.emitter.initializer(f"{self.prefix}{node.name}/{name}", node, message)

    def _bind_inputs(self, node: GraphNode, input_values: Sequence[ir.Value]) -> dict[str, Any]:
        """The inputs of a node by the names of its OpDef."""
        if node.definition is None:
            return {"inputs": list(input_values)}
        bound_inputs: dict[str, Any] = {}
        position = 0
        for argument in node.definition.input_arg:
            element_types = node.types(argument)
            values = input_values[position : position + len(element_types)]
            for edge, element_type in zip(node.inputs[position:], element_types, strict=False):
                check_type(node, edge, element_type)
            is_list = bool(argument.number_attr or argument.type_list_attr)
            bound_inputs[argument.name] = list(values) if is_list else values[0] if values else None
            position += len(element_types)
        if position != len(input_values):
            raise ModelFileError(f"{node.label} has {len(input_values)} inputs instead of {position}")
        return bound_inputs


def check_type(node: GraphNode, edge: Edge, expected_type: ElementType | None) -> None:
    """Check that a node's input has the type of the result that it reads."""
    actual_type = edge.node.result_type(edge.output)
    # None stands for a result of an unknown operator, which may have any type.
    if actual_type != expected_type and actual_type is not None and expected_type is not None:
        raise ModelFileError(
            f"{node.label} reads '{edge.label}' as {_type_title(expected_type)}, but it is "
            f"{_type_title(actual_type)}"
        )
