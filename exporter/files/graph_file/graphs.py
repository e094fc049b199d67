"""Converts source graphs to `GraphProto` and back."""

from __future__ import annotations

import json
import struct
from collections import ChainMap
from collections.abc import Callable, MutableMapping

import onnx
import onnx_ir as ir
from onnx_ir import serde

from ....registration import GraphError, ModelFileError
from ....registration.arguments import ATTRIBUTE, arguments
from ....registration.json_text import parse_json
from .initializer_contents import tensor_message, tensor_of
from .layout import FLOATS, NAME, OPERATOR_VERSION, check_fields, naming, read_metadata, write_metadata
from .values import file_names, original_name, read_value, write_values

Scope = MutableMapping[str, ir.Value]
MAXIMUM_DEPTH = 28
"""Bound on the nesting of blocks: each takes three message levels, and protobuf reads a hundred."""
_FLOATS = (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS)
_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


class GraphWriter:
    """Writes a graph and its sub-graphs.

    Attributes:
        names: the name of each value in the file; these are unique, unlike those in memory.
    """

    def __init__(self, graph: ir.Graph, digests: dict[ir.Value, str] | None = None):
        self._graph = graph
        self._digests = digests or {}
        self.names = file_names(graph)

    def write(self, target: onnx.GraphProto, *, with_tensors: bool = True) -> None:
        """Write the graph, with or without the contents of its initializers.

        Raises:
            ModelFileError: the format cannot store part of the graph.
        """
        self._write(target, self._graph, with_tensors, 0)

    def _write(self, target: onnx.GraphProto, graph: ir.Graph, with_tensors: bool, depth: int) -> None:
        if depth > MAXIMUM_DEPTH:
            raise ModelFileError(
                f"blocks are nested more than {MAXIMUM_DEPTH} deep, the limit of the source format"
            )
        if graph.name is not None:
            target.name = graph.name
        if graph.doc_string is not None:
            target.doc_string = graph.doc_string
        write_metadata(target.metadata_props, graph.metadata_props, {})
        # Inputs and results have descriptions of their own, so `value_info` leaves them out.
        formal, results = set(graph.inputs), set(graph.outputs)
        # Names in memory need not be unique; those in the file are, and `names` maps one to the other.
        for name, value in graph.initializers.items():
            if with_tensors:
                target.initializer.append(tensor_message(value, self.names[value]))
            if name != value.name:
                raise ModelFileError(f"initializer '{name}' is called '{value.name}'")
        self._describe(target.input, graph.inputs)
        self._describe(target.value_info, (v for v in graph.initializers.values() if v not in formal))
        for node in graph:
            with naming(f"node '{node.name}'"):
                self._write_node(target.node.add(), node, depth)
            self._describe(target.value_info, (v for v in node.outputs if v not in results))
        self._describe(target.output, graph.outputs)

    def _describe(self, target: object, source: object) -> None:
        write_values(target, source, self.names, self._digests)  # type: ignore[arg-type]

    def _write_node(self, target: onnx.NodeProto, node: ir.Node, depth: int) -> None:
        target.op_type = node.op_type
        if node.domain:
            target.domain = node.domain
        if node.overload:
            target.overload = node.overload
        if node.doc_string is not None:
            target.doc_string = node.doc_string
        format_metadata = {}
        if node.name is None:
            format_metadata[NAME] = "null"
        else:
            target.name = node.name
        if node.version is not None:
            format_metadata[OPERATOR_VERSION] = str(node.version)
        target.input.extend("" if value is None else self._name(value) for value in node.inputs)
        target.output.extend(self._name(value) for value in node.outputs)
        floats = {}
        for attribute in node.attributes.values():
            self._write_attribute(target.attribute.add(), attribute, depth)
            if attribute.type in _FLOATS and not attribute.is_ref():
                # AttributeProto has single precision, and Python floats have double.
                single = attribute.type == ir.AttributeType.FLOAT
                numbers = [attribute.value] if single else attribute.value
                floats[attribute.name] = [struct.pack(">d", number).hex() for number in numbers]
        if floats:
            format_metadata[FLOATS] = json.dumps(floats)
        write_metadata(target.metadata_props, node.metadata_props, format_metadata)

    def _name(self, value: ir.Value) -> str:
        if value not in self.names:
            raise ModelFileError(f"value '{value.name}' is used, but nothing in the graph defines it")
        return self.names[value]

    def _write_attribute(self, target: onnx.AttributeProto, attribute: ir.Attr, depth: int) -> None:
        if attribute.is_ref() or isinstance(attribute.value, bytes):
            reason = "a reference" if attribute.is_ref() else "of bytes, not of text"
            raise ModelFileError(
                f"attribute '{attribute.name}' is {reason}, which the source format does not support"
            )
        if attribute.type not in _GRAPHS:
            serde.serialize_attribute_into(target, attribute)
            return
        target.name = attribute.name
        if attribute.doc_string is not None:
            target.doc_string = attribute.doc_string
        if attribute.type == ir.AttributeType.GRAPH:
            target.type = onnx.AttributeProto.GRAPH
            self._write(target.g, attribute.as_graph(), True, depth + 1)
            return
        target.type = onnx.AttributeProto.GRAPHS
        for graph in attribute.as_graphs():
            self._write(target.graphs.add(), graph, True, depth + 1)


Tensor = Callable[[onnx.TensorProto, "dict[str, str]"], ir.TensorProtocol]
"""Returns the contents of an initializer, from its message and the file's metadata of its value."""


class GraphReader:
    """Reads a graph and its sub-graphs."""

    def __init__(self, tensor: Tensor | None = None):
        self._tensor = tensor or (lambda proto, format_metadata: tensor_of(proto))
        self._unnamed: list[ir.Value | ir.Node] = []
        self._seen: set[ir.Value] = set()

    def read_graph(self, source: onnx.GraphProto, opset_imports: dict[str, int] | None = None) -> ir.Graph:
        """The graph of a message.

        Raises:
            ModelFileError: the message contradicts itself.
        """
        graph = self._read_scope(source, ChainMap(), opset_imports or {})
        for item in self._unnamed:
            # onnx_ir.Graph names its unnamed inputs; restore the missing names.
            item.name = None
        self._unnamed.clear()
        return graph

    def _read_scope(
        self, source: onnx.GraphProto, outer: ChainMap[str, ir.Value], opset_imports: dict[str, int]
    ) -> ir.Graph:
        # A file of a later release may have fields that this one would lose.
        check_fields(source)
        scope = outer.new_child()
        inputs = [self._declare(scope, info.name) for info in source.input]
        # An initializer may be the default of an input, and then has the same name.
        initializers = [
            scope[tensor.name] if tensor.name in scope.maps[0] else self._declare(scope, tensor.name)
            for tensor in source.initializer
        ]
        # Declare all outputs first, because a node may use the value of a later one.
        for node in source.node:
            for name in node.output:
                self._declare(scope, name)
        format_metadata: dict[str, dict[str, str]] = {}
        for info in (*source.input, *source.value_info, *source.output):
            self._describe(scope, info, format_metadata)
        for value, tensor in zip(initializers, source.initializer, strict=True):
            value.const_value = self._tensor(tensor, format_metadata.get(tensor.name, {}))
            self._check_tensor(value)
        nodes = [self._node(node, scope) for node in source.node]
        metadata, _ = read_metadata(source.metadata_props)
        return ir.Graph(
            inputs,
            [self._find(scope, info.name) for info in source.output],
            nodes=nodes,
            initializers=initializers,
            doc_string=source.doc_string if source.HasField("doc_string") else None,
            opset_imports=opset_imports,
            name=source.name if source.HasField("name") else None,
            metadata_props=metadata,
        )

    @staticmethod
    def _declare(scope: ChainMap[str, ir.Value], name: str) -> ir.Value:
        if not name or name in scope:
            reason = f"value '{name}' is defined twice" if name else "a value has no name"
            raise ModelFileError(f"it does not follow the source format: {reason}")
        scope[name] = value = ir.Value(name=name)
        return value

    @staticmethod
    def _find(scope: Scope, name: str) -> ir.Value:
        value = scope.get(name)
        if value is None:
            raise ModelFileError(f"value '{name}' is used, but nothing in the file defines it")
        return value

    def _describe(
        self, scope: Scope, info: onnx.ValueInfoProto, format_metadata: dict[str, dict[str, str]]
    ) -> None:
        value = self._find(scope, info.name)
        if value in self._seen:
            # An input that is returned too has an entry among the inputs and among the outputs.
            return
        self._seen.add(value)
        format_metadata[info.name] = read_value(info, value)
        name = original_name(format_metadata[info.name], info.name)
        if name is None:
            self._unnamed.append(value)
        else:
            value.name = name

    @staticmethod
    def _check_tensor(value: ir.Value) -> None:
        tensor = value.const_value
        assert tensor is not None
        # The default of an input with dynamic sizes has one of the shapes that the input may have.
        declared = value.shape is None or (
            len(value.shape) == len(tensor.shape)
            and all(
                dim == size or not isinstance(dim, int)
                for dim, size in zip(value.shape, tensor.shape, strict=True)
            )
        )
        if not declared or (value.dtype is not None and value.dtype != tensor.dtype):
            raise ModelFileError(
                f"initializer '{value.name}' is {tensor.dtype.name}{list(tensor.shape)}, but the file "
                f"declares {value.type}{value.shape}"
            )

    def _node(self, source: onnx.NodeProto, scope: ChainMap[str, ir.Value]) -> ir.Node:
        with naming(f"node '{source.name}'"):
            check_fields(source)
            metadata, format_metadata = read_metadata(source.metadata_props)
            floats = parse_json(format_metadata.get(FLOATS, "{}"))
            version = format_metadata.get(OPERATOR_VERSION)
            node = ir.Node(
                source.domain,
                source.op_type,
                [self._find(scope, name) if name else None for name in source.input],
                [self._attribute(attribute, scope, floats) for attribute in source.attribute],
                overload=source.overload,
                # Only this scope: an outer value of the same name is not an output of the node.
                outputs=[self._find(scope.maps[0], name) for name in source.output],
                version=None if version is None else int(version),
                name=source.name,
                doc_string=source.doc_string if source.HasField("doc_string") else None,
                metadata_props=metadata,
            )
            if original_name(format_metadata, source.name) is None:
                self._unnamed.append(node)
            if ATTRIBUTE in node.attributes:
                try:
                    arguments(node)  # Refuses invalid arguments when the file is read.
                except GraphError as error:
                    raise ModelFileError(f"node '{source.name}': {error}") from error
        return node

    def _attribute(
        self, source: onnx.AttributeProto, scope: ChainMap[str, ir.Value], floats: dict[str, list[str]]
    ) -> ir.Attr:
        check_fields(source)
        attribute_type = ir.AttributeType(source.type)
        text = source.doc_string if source.HasField("doc_string") else None
        if attribute_type == ir.AttributeType.GRAPH:
            return ir.AttrGraph(source.name, self._read_scope(source.g, scope, {}), doc_string=text)
        if attribute_type == ir.AttributeType.GRAPHS:
            graphs = [self._read_scope(graph, scope, {}) for graph in source.graphs]
            return ir.AttrGraphs(source.name, graphs, doc_string=text)
        if attribute_type == ir.AttributeType.STRING:
            return ir.AttrString(source.name, source.s.decode(), doc_string=text)
        if source.name in floats:
            # The exact doubles; the attribute itself has them in single precision.
            numbers = [struct.unpack(">d", bytes.fromhex(bits))[0] for bits in floats[source.name]]
            single = attribute_type == ir.AttributeType.FLOAT
            return ir.Attr(source.name, attribute_type, numbers[0] if single else numbers, doc_string=text)
        return serde.deserialize_attribute(source)
