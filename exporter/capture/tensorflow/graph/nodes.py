"""Nodes of a GraphDef or of a function's body, with their inputs resolved and their attributes completed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .....registration import ModelFileError
from ..element_types import onnx_type

Definition = Any
"""An OpDef message."""
Define = Callable[[str], "Definition | None"]
"""The OpDef of an operator by its name; None for an operator that is not known."""
ARGUMENT = "_Arg"
"""The operator of the nodes that stand for the arguments of a function."""


class Edge(NamedTuple):
    """One result of a node."""

    node: Node
    output: int

    @property
    def shown(self) -> str:
        """Its name as TensorFlow has it: `name` for the first result, else `name:1`."""
        return f"{self.node.name}:{self.output}" if self.output else self.node.name


@dataclasses.dataclass(eq=False, slots=True, repr=False)
class Node:
    """A node.

    Attributes:
        name: its name, unique in its graph or function.
        op: its operator, or the function that it calls.
        definition: the operator's OpDef; None for an operator that is not known.
        stored: the attributes that it states, AttrValue messages by name.
        bindings: the attributes of the call, for a node in the body of a function.
        device: where TensorFlow placed it.
        inputs: the results that it reads, in order.
        controls: the nodes that it runs after.
        highest: the highest index of its results that another node reads.
    """

    name: str
    op: str
    definition: Definition | None
    stored: Mapping[str, Any]
    bindings: Mapping[str, Any]
    device: str = ""
    inputs: list[Edge] = dataclasses.field(default_factory=list)
    controls: list[Node] = dataclasses.field(default_factory=list)
    highest: int = 0
    _results: list[Any] | None = None

    @property
    def shown(self) -> str:
        """What errors call it."""
        return f"node '{self.name}' ({self.op})"

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.op!r})"

    def has(self, name: str) -> bool:
        """Whether it states an attribute or the operator has a default for it."""
        return name in self.stored or self._default(name) is not None

    def attribute(self, name: str) -> Any:
        """The AttrValue of an attribute, the operator's default if the node does not state it.

        Raises:
            ModelFileError: it has neither.
        """
        found = self.stored[name] if name in self.stored else self._default(name)
        if found is None:
            raise ModelFileError(f"{self.shown} lacks attribute '{name}', which has no default")
        if found.WhichOneof("value") == "placeholder":
            if found.placeholder not in self.bindings:
                raise ModelFileError(
                    f"{self.shown} refers to '{found.placeholder}' of the function's caller as its attribute "
                    f"'{name}', but the caller does not have it"
                )
            return self.bindings[found.placeholder]
        return found

    def _default(self, name: str) -> Any:
        for each in self.definition.attr if self.definition is not None else ():
            if each.name == name and each.HasField("default_value"):
                return each.default_value
        return None

    def results(self) -> list[Any]:
        """The element type of each of its results, by its OpDef; empty for an unknown operator."""
        if self._results is None:
            arguments = () if self.definition is None else self.definition.output_arg
            self._results = [kind for argument in arguments for kind in self.types(argument)]
        return self._results

    def types(self, argument: Any) -> list[Any]:
        """The element types of the values of an argument: `onnx_ir.DataType`, or text for what ONNX lacks."""
        if argument.type_list_attr:
            return [onnx_type(number) for number in self.attribute(argument.type_list_attr).list.type]
        number = self.attribute(argument.type_attr).type if argument.type_attr else argument.type
        if not argument.number_attr:
            return [onnx_type(number)]
        return [onnx_type(number)] * self.count(argument.number_attr)

    def count(self, name: str) -> int:
        """An attribute that says how many values an argument has.

        Raises:
            ModelFileError: the node does not have as many inputs, or it is absurd.
        """
        count = int(self.attribute(name).i)
        if not 0 <= count <= _MAXIMUM_VALUES:
            raise ModelFileError(f"{self.shown} has the number {count} as its attribute '{name}'")
        return count

    def result_type(self, index: int) -> Any:
        """The element type of one result; None if it is not known.

        Raises:
            ModelFileError: the operator has no such result.
        """
        if self.definition is None:
            return None
        types = self.results()
        if not index < len(types):
            raise ModelFileError(
                f"a node reads result {index} of {self.shown}, which has {len(types) or 'no'} results"
            )
        return types[index]

    def offset(self, argument: str) -> int | None:
        """The index of the first value of an output argument; None if the operator does not have it."""
        index = 0
        for each in self.definition.output_arg if self.definition is not None else ():
            if each.name == argument:
                return index
            index += len(self.types(each))
        return None


_MAXIMUM_VALUES = 2**20
"""Bound on the values of one argument; a message that says more is not taken at its word."""


def nodes_of(
    messages: Iterable[Any],
    define: Define,
    *,
    arguments: Sequence[Node] = (),
    bindings: Mapping[str, Any] | None = None,
    where: str = "",
) -> dict[str, Node]:
    """The nodes of a graph, or of the body of a function, by name, with their inputs resolved.

    Args:
        messages: NodeDef messages.
        arguments: the nodes that stand for the arguments of a function.
        where: what errors append, " of function 'f'".

    Raises:
        ModelFileError: two nodes have one name, or an input names a node or a result that does not exist.
    """
    nodes = {node.name: node for node in arguments}
    made: list[tuple[Node, Sequence[str]]] = []
    for message in messages:
        if message.name in nodes:
            raise ModelFileError(f"two nodes{where} have the name '{message.name}'")
        node = Node(
            message.name, message.op, define(message.op), message.attr, bindings or {}, message.device
        )
        nodes[message.name] = node
        made.append((node, message.input))
    in_function = bool(where)
    for node, references in made:
        _resolve(node, references, nodes, in_function)
    return nodes


def _resolve(node: Node, references: Sequence[str], nodes: Mapping[str, Node], in_function: bool) -> None:
    for reference in references:
        if reference.startswith("^"):
            node.controls.append(_find_node(reference[1:], nodes, node))
        elif node.controls:
            raise ModelFileError(f"{node.shown} has the input '{reference}' after its control inputs")
        else:
            node.inputs.append(resolved(reference, nodes, node, in_function))


def _find_node(name: str, nodes: Mapping[str, Node], reader: Node) -> Node:
    found = nodes.get(name)
    if found is None:
        raise ModelFileError(f"{reader.shown} reads '{name}', which does not exist")
    return found


def resolved(reference: str, nodes: Mapping[str, Node], reader: Node, in_function: bool) -> Edge:
    """The result that a reference names: `name`, `name:1`, or in a function `name:output_argument:0`."""
    name, *rest = reference.split(":")
    node = _find_node(name, nodes, reader)
    number = rest.pop() if rest and rest[-1].isdecimal() and rest[-1].isascii() else "0"
    if len(number) > 9 or len(rest) > (1 if in_function else 0):
        raise ModelFileError(f"{reader.shown} has the input '{reference}', which names no result")
    first = node.offset(rest[0]) if rest else 0
    if first is None and node.definition is not None:
        raise ModelFileError(f"{reader.shown} reads '{reference}', but {node.shown} has no '{rest[0]}'")
    edge = Edge(node, (first or 0) + int(number))
    node.highest = max(node.highest, edge.output)
    return edge


def edge_of(name: str, nodes: Mapping[str, Node]) -> Edge | None:
    """The result that a user names, `name` or `name:1`; None if there is no such node."""
    stem, _, number = name.partition(":")
    node = nodes.get(stem)
    if node is None or (number and not (number.isascii() and number.isdecimal())):
        return None
    return Edge(node, int(number or 0))


def ancestors(edges: Iterable[Edge], cut: frozenset[Edge], *, controls: bool) -> Iterator[Node]:
    """The nodes that results depend on, each once.

    Args:
        cut: results that are given, behind which the search does not go.
        controls: whether to follow control inputs too.
    """
    seen: set[Node] = set()
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
