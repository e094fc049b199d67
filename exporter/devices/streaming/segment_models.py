"""Makes a model of each segment, with the large weights as inputs.

Values are renamed in order of appearance, so that segments of equal structure become equal messages and
share one onnxruntime session. A small constant stays in the message if it is equal in all segments of a
structure; otherwise it becomes an input too, but is not streamed.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import onnx

from .value_types import ValueType

_SHAPING = frozenset({onnx.TensorProto.INT64, onnx.TensorProto.BOOL, onnx.TensorProto.STRING})
"""Element types of constants that onnxruntime may need to open a model, such as shapes and axes."""
Scope = collections.ChainMap[str, str]


@dataclasses.dataclass(frozen=True)
class GraphParts:
    """The parts of a model's main graph, by name.

    Attributes:
        proto: the model, for its nodes, functions and opsets.
        reads: for each node, the names that the node and its sub-graphs read.
        types: the types of inputs and results that are tensors of numbers.
        weights: the types of the large weights.
        constants: the other initializers.
        sparse: the sparse initializers.
        inputs: the declarations of the inputs.
    """

    proto: onnx.ModelProto
    reads: Sequence[Sequence[str]]
    types: Mapping[str, ValueType]
    weights: Mapping[str, ValueType]
    constants: Mapping[str, onnx.TensorProto]
    sparse: Mapping[str, onnx.SparseTensorProto]
    inputs: Mapping[str, onnx.ValueInfoProto]

    def declaration(self, name: str) -> onnx.ValueInfoProto:
        """Return the declaration of a value as an input of a segment."""
        value_type = self.weights.get(name) or self.types.get(name)
        if name in self.inputs and (value_type is None or value_type.dims is None):
            return self.inputs[name]
        assert value_type is not None
        return value_type.value_info(name)


@dataclasses.dataclass(frozen=True)
class Segment:
    """A part of a model.

    Attributes:
        index: the position in the order of execution.
        nodes: the number of nodes.
        weight_bytes: the bytes of memory that the large weights take.
        values: by name in the session, the name of each value that the segment reads.
        weights: by name in the session, the name of each large weight.
        constants: by name in the session, the name of each constant that differs between its segments.
        outputs: names of the values that other segments or the caller read, in the session's order.
        session: the number of the session.
    """

    index: int
    nodes: int
    weight_bytes: int
    values: Mapping[str, str]
    weights: Mapping[str, str]
    constants: Mapping[str, str]
    outputs: tuple[str, ...]
    session: int


class SegmentModel:
    """The model of a segment, with values renamed in order of appearance."""

    def __init__(self, parts: GraphParts, nodes: Sequence[onnx.NodeProto], later_reads: frozenset[str]):
        """Build the model of some nodes.

        Args:
            later_reads: names of values that later segments or the caller read.
        """
        self._parts = parts
        self.count = len(nodes)
        self.names: dict[str, str] = {}
        self._numbers = itertools.count()
        self.proto = onnx.ModelProto(ir_version=parts.proto.ir_version)
        self.proto.opset_import.extend(parts.proto.opset_import)
        self.proto.functions.extend(parts.proto.functions)
        graph = self.proto.graph
        graph.name = "segment"
        scope: Scope = collections.ChainMap(self.names)
        graph.node.extend(self._node(node, scope) for node in nodes)
        produced = {name for node in nodes for name in node.output if name}
        self.outputs = tuple(name for name in self.names if name in produced & later_reads)
        graph.output.extend(onnx.ValueInfoProto(name=self.names[name]) for name in self.outputs)
        read = [name for name in self.names if name not in produced]
        self.values = [name for name in read if name in parts.types or name in parts.inputs]
        self.weights = [name for name in read if name in parts.weights]
        self.constants = []
        for name in read:
            if name in parts.sparse:
                tensor = graph.sparse_initializer.add()
                tensor.CopyFrom(parts.sparse[name])
                tensor.values.name = self.names[name]
            elif name in parts.constants:
                constant = parts.constants[name]
                if constant.data_type in _SHAPING:
                    self._fix(name)
                else:
                    self.constants.append(name)
        for name in (*self.values, *self.weights):
            self._add_input(name, parts.declaration(name))

    def key(self) -> tuple[bytes, tuple[object, ...]]:
        """Return a key that is equal for segments that can share a session."""
        constants = [self._parts.constants[name] for name in self.constants]
        types = tuple((tensor.data_type, *tensor.dims) for tensor in constants)
        model_names = tuple(map(self.names.__getitem__, (*self.constants, *self.values, *self.weights)))
        return self.proto.SerializeToString(deterministic=True), (len(self.weights), types, model_names)

    def contents(self) -> list[bytes]:
        """Return the serialized constants whose contents may differ between segments of this structure."""
        contents = []
        for name in self.constants:
            tensor = onnx.TensorProto()
            tensor.CopyFrom(self._parts.constants[name])
            tensor.name = ""
            contents.append(tensor.SerializeToString(deterministic=True))
        return contents

    def original_names(self, names: Sequence[str]) -> dict[str, str]:
        """Map names in this model to names in the original graph."""
        return {self.names[name]: name for name in names}

    def finish(self, is_fed: Sequence[bool]) -> bytes:
        """Serialize the model; constants are inputs if they are fed, else initializers.

        Args:
            is_fed: for each constant, whether it is an input.
        """
        for name, fed in zip(self.constants, is_fed, strict=True):
            if fed:
                tensor = self._parts.constants[name]
                declaration = onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
                self._add_input(name, declaration)
            else:
                self._fix(name)
        result: bytes = self.proto.SerializeToString(deterministic=True)
        return result

    def _fix(self, name: str) -> None:
        tensor = self.proto.graph.initializer.add()
        tensor.CopyFrom(self._parts.constants[name])
        tensor.name = self.names[name]
        # Equal segments may have different documentation.
        tensor.ClearField("doc_string")

    def _add_input(self, name: str, declaration: onnx.ValueInfoProto) -> None:
        graph_input = self.proto.graph.input.add()
        graph_input.type.CopyFrom(declaration.type)
        graph_input.name = self.names[name]

    def _reference(self, name: str, scope: Scope) -> str:
        if name and name not in scope:
            self.names[name] = f"v{next(self._numbers)}"
        return scope[name] if name else ""

    def _define(self, name: str, scope: Scope) -> str:
        if not name:
            return ""
        scope.maps[0][name] = f"v{next(self._numbers)}"
        return scope[name]

    def _node(self, node: onnx.NodeProto, scope: Scope) -> onnx.NodeProto:
        renamed = onnx.NodeProto(op_type=node.op_type, domain=node.domain, overload=node.overload)
        renamed.input.extend(self._reference(name, scope) for name in node.input)
        # Sorted, so that equal nodes give equal bytes for any order of attributes in the file.
        for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
            copy = renamed.attribute.add()
            copy.CopyFrom(attribute)
            copy.ClearField("doc_string")
            if attribute.HasField("g"):
                copy.g.CopyFrom(self._graph(attribute.g, scope))
            if attribute.graphs:
                del copy.graphs[:]
                copy.graphs.extend(self._graph(graph, scope) for graph in attribute.graphs)
        renamed.output.extend(self._define(name, scope) for name in node.output)
        return renamed

    def _graph(self, graph: onnx.GraphProto, scope: Scope) -> onnx.GraphProto:
        """Rename the values of a sub-graph, which may read values of enclosing graphs by name."""
        inner = scope.new_child()
        renamed = onnx.GraphProto(name="graph")
        for declared in graph.input:
            renamed.input.add(name=self._define(declared.name, inner)).type.CopyFrom(declared.type)
        for tensor in graph.initializer:
            renamed.initializer.add().CopyFrom(tensor)
            renamed.initializer[-1].name = inner.maps[0].get(tensor.name) or self._define(tensor.name, inner)
        for sparse in graph.sparse_initializer:
            renamed.sparse_initializer.add().CopyFrom(sparse)
            renamed.sparse_initializer[-1].values.name = self._define(sparse.values.name, inner)
        renamed.node.extend(self._node(node, inner) for node in graph.node)
        for declared in graph.output:
            result = renamed.output.add(name=self._reference(declared.name, inner))
            if declared.HasField("type"):
                result.type.CopyFrom(declared.type)
        return renamed


def build_segments(
    models: Sequence[SegmentModel], weight_bytes: Sequence[int]
) -> tuple[list[Segment], list[bytes]]:
    """Return the segments, and the serialized model of each session that they share."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, model in enumerate(models):
        groups.setdefault(model.key(), []).append(index)
    segments: dict[int, Segment] = {}
    sessions: list[bytes] = []
    for members in groups.values():
        contents = zip(*(models[index].contents() for index in members), strict=True)
        # Constants that differ between the segments of a session are fed. Equal ones stay in the model,
        # where onnxruntime can fold them.
        is_fed = [len(set(variants)) > 1 for variants in contents]
        for index in members:
            model = models[index]
            fed = [name for name, flag in zip(model.constants, is_fed, strict=True) if flag]
            segments[index] = Segment(
                index,
                model.count,
                weight_bytes[index],
                model.original_names(model.values),
                model.original_names(model.weights),
                model.original_names(fed),
                model.outputs,
                len(sessions),
            )
        sessions.append(models[members[0]].finish(is_fed))
    return [segments[index] for index in range(len(models))], sessions
