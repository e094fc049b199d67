"""ONNX pass: annotates each node whose result may overwrite one of its operands.

A node gets the annotation `opsetta.may_overwrite`, `0:1` for "output 0 over input 1", where

1. the operator can work in place on that input (`memory_sharing`), with the same element type and size;
2. the input was computed by a node of the same graph, or is an input that the caller gives up; it is no other
   graph input, initializer, constant or output;
3. no later node in the graph's order, sub-graphs included, reads the input;
4. the same holds for every value that may share the input's memory: views (Reshape, Identity, ...), and
   values that If, Loop, Scan and sequences may pass by reference;
5. no function and no operator of another domain takes or returns any of them, because it may keep a
   reference.

Existing annotations are replaced. The time is linear in the size of the model.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from ....registration import INPLACE, MAY_OVERWRITE
from ....registration.arguments import blocks
from ..disjoint_sets import DisjointSets
from . import memory_sharing

_Graph = ir.Graph | ir.Function


class AnnotateInplace(ir.passes.InPlacePass):
    """Annotates every graph and function of a finished model.

    Args:
        consumed: names of inputs of the main graph that may be overwritten, each with the output that is its
            next value. Where operands differ in this only, the one in the memory of that input is chosen.
    """

    def __init__(self, consumed: Mapping[str, str] | None):
        super().__init__()
        self._consumed = dict(consumed or {})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Annotate the nodes and report whether anything changed."""
        opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 0))
        modified = _annotate(model.graph, opset, model.functions, self._consumed)
        for function in model.functions.values():
            modified |= _annotate(function, function.opset_imports.get("", 0), model.functions, {})
        return ir.passes.PassResult(model, modified)


def annotate_inplace(model: ir.Model, consumed: Mapping[str, str] | None = None) -> bool:
    """Annotate a finished ONNX model in place; return whether anything changed. See `AnnotateInplace`."""
    return AnnotateInplace(consumed).call(model).modified


def record_inplace(
    source: ir.Node, results: Iterable[ir.Value | None], values: Mapping[ir.Value, ir.Value]
) -> None:
    """Mark the ONNX nodes that compute the results of an in-place source node.

    Args:
        values: the ONNX values of the source node's inputs; a result among them was not computed.
    """
    if INPLACE not in source.metadata_props:
        return
    operands = {values.get(value) for value in source.inputs if value is not None}
    for result in results:
        producer = None if result is None or result in operands else result.producer()
        if producer is not None:
            producer.metadata_props[INPLACE] = "true"


def _annotate(
    graph: _Graph, opset: int, functions: Iterable[ir.OperatorIdentifier], consumed: Mapping[str, str]
) -> bool:
    lifetimes = _Lifetimes(functions, consumed)
    lifetimes.define(graph, 0)
    lifetimes.find_last_readers(graph, 0)
    return _write_annotations(graph, 0, opset, lifetimes)


def _write_annotations(graph: _Graph, depth: int, opset: int, lifetimes: _Lifetimes) -> bool:
    modified = False
    for position, node in enumerate(graph):
        input_index = _overwritable_input(node, position, depth, opset, lifetimes)
        annotation = None if input_index is None else f"0:{input_index}"
        if node.metadata_props.get(MAY_OVERWRITE) != annotation:
            modified = True
            if annotation is None:
                del node.metadata_props[MAY_OVERWRITE]
            else:
                node.metadata_props[MAY_OVERWRITE] = annotation
        if input_index is not None:
            lifetimes.move_memory(node.inputs[input_index], node.outputs[0])
        for block in lifetimes.blocks.get(node, ()):
            modified |= _write_annotations(block, depth + 1, opset, lifetimes)
    return modified


def _overwritable_input(
    node: ir.Node, position: int, depth: int, opset: int, lifetimes: _Lifetimes
) -> int | None:
    """The first input that output 0 of a node may overwrite."""
    op_type, inputs = node.op_type, node.inputs
    candidates = memory_sharing.overwritable(op_type, opset, len(inputs))
    if not candidates or node.domain not in ("", "ai.onnx") or lifetimes.is_function(node):
        return None
    is_view = lifetimes.is_view(node)
    # The next value of an input that is given up belongs into the memory of that input.
    for input_index in sorted(candidates, key=lambda index: not lifetimes.continues(inputs[index], node)):
        value = inputs[input_index]
        if value is None:
            continue
        # A view shares the memory and may be read later; only the input itself must have no later reader.
        ended = lifetimes.is_alone(value, node) if is_view else lifetimes.ends(value, position, depth)
        if not ended or lifetimes.must_not_move(value, node):
            continue
        other_inputs = {i: v for i, v in enumerate(inputs) if v is not None and i != input_index}
        root = lifetimes.classes.root(value)
        # Overwriting would change another operand while it is still read.
        aliases = [v for v in other_inputs.values() if lifetimes.classes.root(v) is root]
        if aliases and not (memory_sharing.allows_twice(op_type) and all(v is value for v in aliases)):
            continue
        if _is_like(
            node, opset, input_index, value, {i: v for i, v in other_inputs.items() if v is not value}
        ):
            return input_index
    return None


def _is_like(
    node: ir.Node, opset: int, input_index: int, value: ir.Value, other_inputs: dict[int, ir.Value]
) -> bool:
    """Whether output 0 provably has the element type and the size of an input."""
    result = node.outputs[0]
    if any(v.type is not None and not isinstance(v.type, ir.TensorType) for v in (value, result)):
        return False
    if not memory_sharing.same_element_type(node.op_type, opset, input_index, value.dtype, result.dtype):
        return False
    if memory_sharing.keeps_size(node.op_type):
        return True
    shapes = {i: _dims(v) for i, v in ((input_index, value), *other_inputs.items())}
    return memory_sharing.same_size(node.op_type, input_index, shapes, _dims(result))


def _dims(value: ir.Value) -> memory_sharing.Dims | None:
    shape = value.shape
    return None if shape is None else tuple([d if isinstance(d, int) else d.value for d in shape.dims])


class _Lifetimes:
    """Classes of values that may share memory, and the last reader of each class.

    A class belongs to the outermost graph that has one of its values. Positions count the nodes of that
    graph; a node reads everything that its sub-graphs read.

    Attributes:
        blocks: the sub-graphs of every node that has some.
    """

    def __init__(self, functions: Iterable[ir.OperatorIdentifier], consumed: Mapping[str, str]):
        self._consumed = consumed
        self._memory_of: dict[ir.Value, str] = {}
        self.blocks: dict[ir.Node, list[ir.Graph]] = {}
        self._functions = frozenset(functions)
        self.classes = DisjointSets[ir.Value]()
        self._depth: dict[ir.Value, int] = {}
        self._never_overwritten: list[ir.Value] = []
        self._last: dict[ir.Value, int] = {}
        self._reads: Counter[ir.Value] = Counter()
        self._pinned: set[ir.Value] = set()
        self._path: list[int] = []

    def is_function(self, node: ir.Node) -> bool:
        """Whether a node calls a function of the model, which is not analysed."""
        return bool(self._functions) and node.op_identifier() in self._functions

    def ends(self, value: ir.Value, position: int, depth: int) -> bool:
        """Whether a value's memory belongs to this graph, and the node at `position` reads it last."""
        root = self.classes.root(value)
        return self._last[root] == position and self._depth[root] == depth and root not in self._pinned

    def move_memory(self, value: ir.Value | None, result: ir.Value) -> None:
        """Note that a result takes the memory of an operand."""
        if value in self._memory_of:
            self._memory_of[result] = self._memory_of[value]

    def continues(self, value: ir.Value | None, node: ir.Node) -> bool:
        """Whether an operand is in the memory of the input whose next value a node computes."""
        state = None if value is None else self._memory_of.get(value)
        return state is not None and self._consumed[state] == node.outputs[0].name

    def must_not_move(self, value: ir.Value, node: ir.Node) -> bool:
        """Whether a result would end in the memory of an input whose next value it is not."""
        is_output = self.classes.root(node.outputs[0]) in self._pinned
        return is_output and value in self._memory_of and not self.continues(value, node)

    def is_alone(self, value: ir.Value, reader: ir.Node) -> bool:
        """Whether a value's memory belongs to the reader's graph, holds only this value, has one reader."""
        producer = value.producer()
        if producer is None or producer.graph is not reader.graph:
            return False
        # The view keeps the memory alive, so nobody else may read it.
        if self._reads[value] > 1 or value.is_graph_output():
            return False
        if not self._is_standard(producer) or producer in self.blocks:
            return False
        if self.is_view(producer):
            return MAY_OVERWRITE in producer.metadata_props
        return producer.op_type not in memory_sharing.CONTAINERS and producer.op_type != "Constant"

    def is_view(self, node: ir.Node) -> bool:
        """Whether output 0 of a node may be a view of input 0."""
        if node.op_type not in memory_sharing.VIEWS:
            return False
        source = node.inputs[0] if node.inputs and node.outputs else None
        return (
            source is not None
            and self._is_standard(node)
            and memory_sharing.is_view(node.op_type, source.dtype, node.outputs[0].dtype)
        )

    def _is_standard(self, node: ir.Node) -> bool:
        return node.domain in memory_sharing.STANDARD_DOMAINS and not self.is_function(node)

    def define(self, graph: _Graph, depth: int) -> None:
        """Find the classes of the values of a graph and its sub-graphs."""
        constants = graph.initializers.values() if isinstance(graph, ir.Graph) else ()
        self._depth.update(dict.fromkeys((*graph.inputs, *constants), depth))
        self._never_overwritten.extend(constants)
        # Inputs of a sub-graph are bound to values of its node (see `_connect`).
        if depth == 0:
            for value in graph.inputs:
                if value.name is not None and value.name in self._consumed:
                    self._memory_of[value] = value.name
                else:
                    self._never_overwritten.append(value)
        for node in graph:
            for value in node.outputs:
                self._depth[value] = depth
            inner = blocks(node) if node.attributes.data else []
            if inner:
                self.blocks[node] = inner
                for block in inner:
                    self.define(block, depth + 1)
            self._connect(node, inner)

    def find_last_readers(self, graph: _Graph, depth: int) -> None:
        """Find the last reader of each class, and the classes that must never be overwritten."""
        if depth == 0:
            self._pinned = {self.classes.root(value) for value in self._never_overwritten}
        self._path.append(0)
        reads, last, depths, path = self._reads, self._last, self._depth, self._path
        for position, node in enumerate(graph):
            # A read inside a sub-graph counts at the node of the graph that owns the value.
            path[depth] = position
            for value in node.inputs:
                if value is not None:
                    reads[value] += 1
                    root = self.classes.root(value)
                    last[root] = path[depths[root]]
            for block in self.blocks.get(node, ()):
                self.find_last_readers(block, depth + 1)
        self._path.pop()
        for value in graph.outputs:
            root = self.classes.root(value)
            if self._depth[root] == depth:
                self._pinned.add(root)
            else:
                self._last[root] = self._path[self._depth[root]]

    def _connect(self, node: ir.Node, inner: list[ir.Graph]) -> None:
        """Join the values that may share memory because of a node."""
        # Most operators write new memory and connect nothing.
        standard, name = self._is_standard(node), node.op_type
        if standard and name not in memory_sharing.SHARING and not inner:
            return
        if standard and name == "Constant":
            self._never_overwritten.extend(node.outputs)
        elif self.is_view(node):
            self._join([node.inputs[0], node.outputs[0]])
        elif standard and name in memory_sharing.CONTROL_FLOW:
            for block in inner:
                for group in memory_sharing.bindings(
                    name, node.inputs, block.inputs, block.outputs, node.outputs
                ):
                    self._join(group)
                actuals = memory_sharing.bound_inputs(name, node.inputs, len(block.inputs))
                pairs = itertools.zip_longest(block.inputs, actuals[: len(block.inputs)])
                self._never_overwritten.extend(formal for formal, actual in pairs if actual is None)
        elif standard and not inner:
            if name in memory_sharing.CONTAINERS:
                self._join([*node.inputs, *node.outputs])
        else:
            bound = [value for block in inner for value in (*block.inputs, *block.outputs)]
            self._never_overwritten.extend(v for v in (*node.inputs, *node.outputs, *bound) if v is not None)

    def _join(self, values: Iterable[ir.Value | None]) -> None:
        roots = [self.classes.root(value) for value in values if value is not None]
        for root in roots[1:]:
            self.classes.join(root, roots[0])
            self._depth[roots[0]] = min(self._depth[roots[0]], self._depth[root])
