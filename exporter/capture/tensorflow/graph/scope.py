"""Emits the source nodes that results depend on, from the results backwards.

A `Scope` emits into one graph: the model's, or a block of a loop or a branch. Nodes that no result depends on
are not part of the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from .....registration import KIND, MODULE, CaptureError, ModelFileError, Names
from .....registration.arguments import source_node
from ....files.reading.bounds import REMEDY, Bounds
from ..element_types import onnx_type
from ..tensors import array_of
from .attributes import attributes_of, shape_of
from .flow import Flow, cycle_error
from .functions import Library
from .nodes import Edge, Node

DEVICE = "device"
"""On source nodes: where TensorFlow placed the node."""
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
    """An input of a block.

    Attributes:
        outer: the result around the block that it is, in a loop at first.
        variable: the Merge of the loop's variable that it is later; None for what does not change.
    """

    outer: Edge
    variable: Node | None = None


class Region(Protocol):
    """The part of a graph that becomes a block."""

    def slot(self, edge: Edge) -> Slot | None:
        """The block input for a result; None for a result that the block computes."""


@dataclasses.dataclass(slots=True)
class Unit:
    """A group of results that are computed together.

    Attributes:
        key: what it makes, to recognize it.
        needs: the results that it reads.
        build: makes the results, when all of `needs` have values.
    """

    key: object
    needs: Sequence[Edge]
    build: Callable[[], None]


_MOST_EXPANDED = 80_000
"""Nodes of a model with its functions inlined, unless its file has more. Each takes about 2,200 bytes."""
_NODES_OF_GRAPH = 16
"""Nodes that take as much time as the graph of a branch or of a loop's body."""
Begin = Callable[["Scope", Edge], "Unit | None"]
"""Says what makes a result in a scope; None if it has given the result a value itself."""


class Emitter:
    """The state that all scopes of one capture share.

    Attributes:
        graph: the model's graph, which has all initializers.
        library: the functions and operators.
        begin: the operators' meaning.
        placeholder: the input that a placeholder becomes, None if it must not become one.
    """

    def __init__(self, graph: ir.Graph, library: Library, begin: Begin, bounds: Bounds, stored: int):
        """Begin a capture.

        Args:
            stored: the nodes that the file has, by which the nodes of the expanded model are bounded.
        """
        self.graph = graph
        self.library = library
        self.begin = begin
        self.names = Names()
        self.placeholder: Callable[[Node], ir.Value | None] = lambda node: None
        self._bounds = bounds
        self._constants: dict[Node, ir.Value] = {}
        expanded = min(bounds.expanded_nodes + 16 * stored, max(bounds.expanded_nodes, _MOST_EXPANDED))
        self._remaining = min(bounds.nodes, max(stored, expanded))

    def charge(self, node: Node | None, count: int = 1) -> None:
        """Count an emitted node, or a graph, which takes as much as several.

        Raises:
            ModelFileError: the model is larger than what is made of a file of its size.
        """
        self._remaining -= count
        if self._remaining < 0:
            place = "" if node is None else f", at {node.shown}"
            raise ModelFileError(
                f"the model has too many nodes when its functions are inlined{place}; {REMEDY}"
            )

    def constant(self, node: Node, prefix: str) -> ir.Value:
        """The initializer of a Const."""
        found = self._constants.get(node)
        if found is None:
            tensor = node.attribute("value").tensor
            due, held = onnx_type(node.attribute("dtype").type), onnx_type(tensor.dtype)
            if due != held:
                raise ModelFileError(
                    f"{node.shown} is {_title(due)} by its 'dtype', but contains {_title(held)}"
                )
            found = self._constants[node] = self.initializer(prefix + node.name, node, tensor)
        return found

    def number(self, name: str, array: np.ndarray) -> ir.Value:
        """Make an initializer of integers."""
        name = self.names.unique(name)
        value = ir.Value(
            name=name,
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            shape=ir.Shape(array.shape),
            const_value=ir.Tensor(array, name=name),
            metadata_props={KIND: "constant"},
        )
        self.graph.initializers.add(value)
        return value

    def initializer(self, name: str, node: Node, message: Any) -> ir.Value:
        """An initializer of a TensorProto, under a name that is unique."""
        array = array_of(message, node.shown, self._bounds)
        kind = onnx_type(message.dtype)
        name = self.names.unique(name)
        tensor: ir.TensorProtocol
        if array.dtype.hasobject:
            tensor = ir.StringTensor(array, name=name)
        elif isinstance(kind, ir.DataType):
            tensor = ir.Tensor(array, dtype=kind, name=name)
        else:
            tensor = ir.Tensor(array, name=name)
        weight = bool(array.ndim) and tensor.dtype in _FLOATS
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(array.shape),
            const_value=tensor,
            metadata_props={KIND: "parameter" if weight else "constant"},
        )
        self.graph.initializers.add(value)
        return value


def _title(kind: ir.DataType | str) -> str:
    return kind if isinstance(kind, str) else kind.name


class Scope:
    """Emits into one graph.

    Attributes:
        emitter: what it shares with other scopes.
        graph: where nodes are appended.
        flow: the loops and branches of TensorFlow 1 in the graph or body that is emitted, if it has any.
        prefix: what names of nodes begin with, in the body of a function.
        calls: the functions that it is inside of.
        values: the values of results.
    """

    def __init__(
        self,
        emitter: Emitter,
        graph: ir.Graph,
        flow: Flow | None,
        *,
        region: Region | None = None,
        slots: dict[Slot, None] | None = None,
        prefix: str = "",
        depth: int = 0,
        calls: tuple[str, ...] = (),
    ):
        """Begin a scope.

        Args:
            region: the part of a graph that a block has, and `slots` what the blocks of one operator take.
            depth: how deep it is in blocks and calls.
        """
        self.emitter = emitter
        self.graph = graph
        self.flow = flow
        self.prefix = prefix
        self.calls = calls
        self.values: dict[Edge, ir.Value] = {}
        self._region = region
        self._slots = slots if slots is not None else {}
        self._formals: dict[Slot, ir.Value] = {}
        self._taken: set[tuple[Edge, int]] = set()
        self._depth = depth
        if depth > MAXIMUM_DEPTH:
            raise CaptureError(f"loops, branches and calls are nested more than {MAXIMUM_DEPTH} deep")
        if graph is not emitter.graph:
            emitter.charge(None, _NODES_OF_GRAPH)

    def demand(self, edges: Sequence[Edge]) -> list[ir.Value]:
        """Return the values of results; emit all nodes that they depend on.

        Raises:
            ModelFileError: the graph is malformed.
            CaptureError: it has no ONNX form.
        """
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
                if unit.key in open_units:
                    raise self._circle(open_units)
                open_units[unit.key] = unit
                missing = [need for need in unit.needs if need not in self.values]
                if missing:
                    pending += reversed(missing)
                    continue
            if any(need not in self.values for need in unit.needs):
                raise self._circle(open_units)
            unit.build()
            del open_units[unit.key]
        return [self.values[edge] for edge in edges]

    def _begin(self, edge: Edge) -> Unit | None:
        slot = self._region.slot(edge) if self._region is not None and edge.node.op != "Const" else None
        if slot is not None:
            self.values[edge] = self.formal(slot)
            return None
        return self.emitter.begin(self, edge)

    def _circle(self, open_units: Iterable[object]) -> ModelFileError:
        return cycle_error([unit for unit in open_units if isinstance(unit, Node)])

    def formal(self, slot: Slot) -> ir.Value:
        """Return the block input of a slot."""
        found = self._formals.get(slot)
        if found is None:
            edge = slot.outer
            found = self._formals[slot] = self.value(f"{edge.shown}_in", edge.node.result_type(edge.output))
            self._slots.setdefault(slot)
        return found

    def take(self, predicate: Edge, branch: int) -> None:
        """Record that the block is a branch of a predicate."""
        self._taken.add((predicate, branch))

    def takes(self, predicate: Edge, branch: int) -> bool:
        """Whether the block is this branch of a predicate."""
        return (predicate, branch) in self._taken

    def value(self, name: str, kind: Any, shape: Sequence[int] | None = None) -> ir.Value:
        """A new value.

        Args:
            kind: its element type; text for one that ONNX lacks.
            shape: its sizes, -1 for those that are not known.
        """
        return ir.Value(
            name=self.emitter.names.unique(self.prefix + name),
            type=ir.TensorType(kind) if isinstance(kind, ir.DataType) else None,
            shape=None if shape is None else ir.Shape([None if size < 0 else size for size in shape]),
        )

    def block(
        self,
        name: str,
        flow: Flow | None,
        *,
        region: Region | None = None,
        slots: dict[Slot, None] | None = None,
    ) -> Scope:
        """A scope for a block of a node, with a graph of its own."""
        graph = ir.Graph([], [], nodes=[], name=self.emitter.names.unique(self.prefix + name))
        return Scope(
            self.emitter,
            graph,
            flow,
            region=region,
            slots=slots,
            prefix=self.prefix,
            depth=self._depth + 1,
            calls=self.calls,
        )

    def call(self, node: Node, function: str, flow: Flow | None, graph: ir.Graph | None = None) -> Scope:
        """Make a scope for the body of a called function; in this graph, unless another is given.

        Raises:
            CaptureError: the function is being called already.
        """
        if function in self.calls:
            raise CaptureError(
                f"function '{function}' calls itself at {node.shown}, which ONNX cannot express"
            )
        return Scope(
            self.emitter,
            self.graph if graph is None else graph,
            flow,
            prefix=f"{self.prefix}{node.name}/",
            depth=self._depth + 1,
            calls=(*self.calls, function),
        )

    def close(self, formals: Iterable[ir.Value], results: Iterable[ir.Value]) -> ir.Graph:
        """Give the scope's block its inputs and outputs.

        An output that is a constant of the model becomes a result of the block.
        """
        self.graph.inputs.extend(formals)
        for value in results:
            self.graph.outputs.append(self.copied(value) if value.is_initializer() else value)
        return self.graph

    def transposed(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Transpose a value."""
        name = self.emitter.names.unique(f"{value.name}_transposed")
        permutation = self.emitter.number(f"{name}/perm", np.asarray(order, dtype=np.int32))
        result = ir.Value(name=name, type=value.type)
        given = {"x": value, "perm": permutation, "T": value.dtype, "Tperm": permutation.dtype}
        self.graph.append(source_node("tf::Transpose", given, outputs=[result], node_name=name))
        return result

    def copied(self, value: ir.Value) -> ir.Value:
        """The result of an Identity."""
        copy = ir.Value(
            name=self.emitter.names.unique(f"{value.name}_copy"), type=value.type, shape=value.shape
        )
        self.graph.append(source_node("tf::Identity", {"input": value, "T": value.dtype}, outputs=[copy]))
        return copy

    def add(
        self,
        node: Node,
        arguments: dict[str, Any],
        outputs: Sequence[ir.Value],
        *,
        op: str | None = None,
        blocks: dict[str, ir.Graph] | None = None,
    ) -> None:
        """Append a source node.

        Args:
            op: its operator, unless it is the node's own.
            blocks: the graphs of its blocks by attribute.
        """
        self.emitter.charge(node)
        name = self.prefix + node.name
        graphs = [ir.Attr(key, ir.AttributeType.GRAPH, graph) for key, graph in (blocks or {}).items()]
        metadata = {MODULE: name}
        if node.device:
            metadata[DEVICE] = node.device
        made = source_node(
            f"tf::{op or node.op}",
            arguments,
            outputs=outputs,
            node_name=name,
            attributes=graphs,
            metadata_props=metadata,
        )
        self.graph.append(made)

    def define(self, node: Node, values: Iterable[ir.Value]) -> None:
        """Give a node's results their values."""
        for index, value in enumerate(values):
            self.values.setdefault(Edge(node, index), value)

    def emit(self, node: Node) -> None:
        """Append the source node of an operator."""
        given = [self.values[edge] for edge in node.inputs]
        arguments = self._inputs(node, given) | attributes_of(node, self._stored)
        kinds = node.results() if node.definition is not None else [None] * (node.highest + 1)
        shapes = _stated_shapes(node)
        outputs = [
            self.value(Edge(node, index).shown, kind, shapes[index] if index < len(shapes) else None)
            for index, kind in enumerate(kinds)
        ]
        self.add(node, arguments, outputs)
        self.define(node, outputs)

    def _stored(self, node: Node, name: str, message: Any) -> ir.Value:
        return self.emitter.initializer(f"{self.prefix}{node.name}/{name}", node, message)

    def _inputs(self, node: Node, given: Sequence[ir.Value]) -> dict[str, Any]:
        """The inputs of a node by the names of its OpDef."""
        if node.definition is None:
            return {"inputs": list(given)}
        found: dict[str, Any] = {}
        position = 0
        for each in node.definition.input_arg:
            kinds = node.types(each)
            part = given[position : position + len(kinds)]
            for edge, kind in zip(node.inputs[position:], kinds, strict=False):
                check_type(node, edge, kind)
            listed = bool(each.number_attr or each.type_list_attr)
            found[each.name] = list(part) if listed else part[0] if part else None
            position += len(kinds)
        if position != len(given):
            raise ModelFileError(f"{node.shown} has {len(given)} inputs instead of {position}")
        return found


def check_type(node: Node, edge: Edge, kind: Any) -> None:
    """Check that a node's input has the type of the result that it reads.

    Raises:
        ModelFileError: it has another element type.
    """
    held = edge.node.result_type(edge.output)
    if held != kind and held is not None and kind is not None:
        raise ModelFileError(f"{node.shown} reads '{edge.shown}' as {_title(kind)}, but it is {_title(held)}")


def _stated_shapes(node: Node) -> list[list[int] | None]:
    """The shapes of a node's results that the file states."""
    if "_output_shapes" not in node.stored:
        return []
    return [shape_of(message) for message in node.attribute("_output_shapes").list.shape]
