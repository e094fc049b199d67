"""Nodes of a GraphDef or of a function's body, with their inputs resolved and their attributes completed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .....registration import ModelFileError
from ..element_types import ElementType, onnx_type
from ..messages import ArgDef, AttrValue, NodeDef, OpDef
from ..node_messages import MessageScope, ResultName, parse_result_name

Define = Callable[[str], "OpDef | None"]
"""Finds the OpDef of an operator by its name; returns None for an unknown operator."""
ARGUMENT = "_Arg"
"""The operator of the nodes that represent the arguments of a function."""
TABLES = frozenset(
    "HashTable HashTableV2 AnonymousHashTable MutableHashTable MutableHashTableV2 "
    "AnonymousMutableHashTable".split()
)
"""The operators that create a lookup table."""
PROBLEM = "_problem"
"""The attribute with the reason why the contents of a table are not known."""


class Edge(NamedTuple):
    """One result of a node."""

    node: GraphNode
    output: int

    @property
    def label(self) -> str:
        """Its name in TensorFlow: `name` for the first result, `name:1` for the second."""
        return f"{self.node.name}:{self.output}" if self.output else self.node.name


@dataclasses.dataclass(eq=False, slots=True, repr=False)
class GraphNode:
    """A node.

    Attributes:
        name: its name, unique in its graph or function.
        op: its operator, or the function that it calls.
        definition: the operator's OpDef; None for an unknown operator.
        stated_attributes: the attributes that its NodeDef states, AttrValue messages by name.
        bindings: the attributes of the call, for a node in the body of a function.
        device: the device on which TensorFlow places it.
        inputs: the results that it reads, in order.
        controls: the nodes that it runs after.
        highest_read_output: the highest index of its results that another node reads.
    """

    name: str
    op: str
    definition: OpDef | None
    stated_attributes: Mapping[str, AttrValue]
    bindings: Mapping[str, AttrValue]
    device: str = ""
    inputs: list[Edge] = dataclasses.field(default_factory=list)
    controls: list[GraphNode] = dataclasses.field(default_factory=list)
    highest_read_output: int = 0
    _results: list[ElementType] | None = None

    @property
    def label(self) -> str:
        """Its description in errors."""
        return f"node '{self.name}' ({self.op})"

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.op!r})"

    def has(self, name: str) -> bool:
        """Whether it states an attribute or the operator has a default for it."""
        return name in self.stated_attributes or self._default(name) is not None

    def attribute(self, name: str) -> AttrValue:
        """The AttrValue of an attribute, the operator's default if the node does not state it."""
        value = self.stated_attributes[name] if name in self.stated_attributes else self._default(name)
        if value is None:
            raise ModelFileError(f"{self.label} lacks attribute '{name}', which has no default")
        # In the body of a generic function, an attribute may refer to an attribute of the call.
        if value.HasField("placeholder"):
            if value.placeholder not in self.bindings:
                raise ModelFileError(
                    f"{self.label} refers to '{value.placeholder}' of the function's caller as its attribute "
                    f"'{name}', but the caller does not have it"
                )
            return self.bindings[value.placeholder]
        return value

    def _default(self, name: str) -> AttrValue | None:
        for attribute in self.definition.attr if self.definition is not None else ():
            if attribute.name == name and attribute.HasField("default_value"):
                return attribute.default_value
        return None

    def result_types(self) -> list[ElementType]:
        """The element type of each of its results, by its OpDef; empty for an unknown operator."""
        # Each reader of the node asks for its types.
        if self._results is None:
            arguments = () if self.definition is None else self.definition.output_arg
            self._results = [element_type for argument in arguments for element_type in self.types(argument)]
        return self._results

    def types(self, argument: ArgDef) -> list[ElementType]:
        """The element types of the values of an argument: `onnx_ir.DataType`, or text if ONNX lacks it."""
        if argument.type_list_attr:
            return [onnx_type(number) for number in self.attribute(argument.type_list_attr).list.type]
        number = self.attribute(argument.type_attr).type if argument.type_attr else argument.type
        if not argument.number_attr:
            return [onnx_type(number)]
        return [onnx_type(number)] * self.count(argument.number_attr)

    def count(self, name: str) -> int:
        """The attribute that states how many values an argument has."""
        count = int(self.attribute(name).i)
        if not 0 <= count <= _MAXIMUM_VALUES:
            raise ModelFileError(f"{self.label} has the number {count} as its attribute '{name}'")
        return count

    def result_type(self, index: int) -> ElementType | None:
        """The element type of one result; None if it is not known."""
        if self.definition is None:
            return None
        types = self.result_types()
        if not index < len(types):
            raise ModelFileError(
                f"a node reads result {index} of {self.label}, which has {len(types) or 'no'} results"
            )
        return types[index]

    def offset(self, argument: str) -> int | None:
        """The index of the first value of an output argument; None if the operator does not have it."""
        index = 0
        for output in self.definition.output_arg if self.definition is not None else ():
            if output.name == argument:
                return index
            index += len(self.types(output))
        return None


_MAXIMUM_VALUES = 2**20
"""Maximum number of values of one argument: bounds the memory that a malformed message makes us take."""


def nodes_of(
    messages: Iterable[NodeDef],
    define: Define,
    label: str,
    arguments: Sequence[GraphNode] | None = None,
    bindings: Mapping[str, AttrValue] | None = None,
) -> dict[str, GraphNode]:
    """The nodes of a graph, or of the body of a function, by name, with their inputs resolved.

    Args:
        messages: NodeDef messages.
        label: the description of the graph or function in errors.
        arguments: the nodes that represent the arguments of a function; None for a graph.
    """
    in_function = arguments is not None
    nodes = {node.name: node for node in arguments or ()}
    scope = MessageScope(messages, label, list(nodes) if in_function else None)
    for parsed in scope.nodes.values():
        message = parsed.message
        nodes[parsed.name] = GraphNode(
            parsed.name, parsed.op, define(parsed.op), message.attr, bindings or {}, message.device
        )
    # A node may read nodes that follow it in the file.
    for parsed in scope.nodes.values():
        node = nodes[parsed.name]
        node.controls = [_find_node(name, nodes, node) for name in parsed.controls]
        node.inputs = [resolve_edge(result, nodes, node, in_function) for result in parsed.inputs]
    return nodes


def _find_node(name: str, nodes: Mapping[str, GraphNode], reader: GraphNode) -> GraphNode:
    node = nodes.get(name)
    if node is None:
        raise ModelFileError(f"{reader.label} reads '{name}', which does not exist")
    return node


def resolve_edge(
    result: ResultName, nodes: Mapping[str, GraphNode], reader: GraphNode, in_function: bool
) -> Edge:
    """The result with a name: `name`, `name:1`, or in a function `name:output_argument:0`."""
    node = _find_node(result.node, nodes, reader)
    port = result.port.split(":") if result.port else []
    # str.isdecimal() also accepts the digits of other scripts.
    number = port.pop() if port and port[-1].isdecimal() and port[-1].isascii() else "0"
    # No node has that many results, and int() takes quadratic time for long texts.
    if len(number) > 9 or len(port) > (1 if in_function else 0):
        raise ModelFileError(f"{reader.label} has the input '{result}', which names no result")
    first = node.offset(port[0]) if port else 0
    if first is None and node.definition is not None:
        raise ModelFileError(f"{reader.label} reads '{result}', but {node.label} has no '{port[0]}'")
    edge = Edge(node, (first or 0) + int(number))
    node.highest_read_output = max(node.highest_read_output, edge.output)
    return edge


def edge_of(name: str, nodes: Mapping[str, GraphNode]) -> Edge | None:
    """The result that a user names, `name` or `name:1`; None if there is no such node."""
    result = parse_result_name(name)
    node = nodes.get(result.node)
    if node is None or (result.port and not (result.port.isascii() and result.port.isdecimal())):
        return None
    return Edge(node, int(result.port or 0))


def ancestors(edges: Iterable[Edge], cut: frozenset[Edge], *, controls: bool) -> Iterator[GraphNode]:
    """The nodes that results depend on, each once; the search does not go behind the results in `cut`."""
    seen: set[GraphNode] = set()
    pending = [edge.node for edge in edges if edge not in cut]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        pending += [edge.node for edge in node.inputs if edge not in cut]
        if controls:
            pending += node.controls
