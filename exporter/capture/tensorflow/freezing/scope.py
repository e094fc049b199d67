"""The nodes of a graph or function body by name, with their inputs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .....registration import ModelFileError
from ....files.reading.names import quoted
from ..messages import AttrValue, NodeDef, message_type

NEXT_ITERATION = frozenset({"NextIteration", "RefNextIteration"})
MERGE = frozenset({"Merge", "RefMerge"})


class ResultName(NamedTuple):
    """A result of a node.

    Attributes:
        node: the node's name, or the name of a function's argument.
        port: the result: "" or "1" in a graph, "output:0" in the body of a function, "" for an argument.
    """

    node: str
    port: str

    def __str__(self) -> str:
        return f"{self.node}:{self.port}" if self.port else self.node


class MessageNode(NamedTuple):
    """A node with its inputs.

    Attributes:
        message: the NodeDef.
        inputs: the results that it takes, in order.
        controls: the nodes that it runs after.
    """

    message: NodeDef
    inputs: tuple[ResultName, ...]
    controls: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.message.name)

    @property
    def op(self) -> str:
        """Its operator."""
        return str(self.message.op)

    @property
    def label(self) -> str:
        """Its description in errors."""
        return f"node {quoted(self.name)} ({self.op})"

    def attribute(self, name: str) -> AttrValue:
        """The AttrValue of an attribute; an empty one if the node does not state it."""
        # Reading a missing entry of a map would add it to the message.
        attributes = self.message.attr
        return attributes[name] if name in attributes else message_type("AttrValue")()


def parse_result_name(text: str, *, in_function: bool = False) -> ResultName:
    """Parse the name of a result; `name:0` of a graph is `name`."""
    name, _, port = text.partition(":")
    return ResultName(name, "" if port == "0" and not in_function else port)


def parse_node(message: NodeDef, in_function: bool) -> MessageNode:
    """Parse the inputs of a node message."""
    inputs = tuple(
        parse_result_name(text, in_function=in_function) for text in message.input if not text.startswith("^")
    )
    controls = tuple(text[1:].partition(":")[0] for text in message.input if text.startswith("^"))
    return MessageNode(message, inputs, controls)


class MessageScope:
    """A graph, or the body of a function.

    Attributes:
        nodes: its nodes by name.
        arguments: the names of the function's arguments.
        is_function: whether it is the body of a function.
        label: its description in errors.
    """

    def __init__(self, messages: Iterable[NodeDef], label: str, arguments: Sequence[str] | None = None):
        """Make a scope of nodes.

        Args:
            messages: the NodeDefs.
            label: its description in errors.
            arguments: the names of the function's arguments; None for a graph.
        """
        self.label = label
        self.is_function = arguments is not None
        self.arguments = frozenset(arguments or ())
        self.nodes: dict[str, MessageNode] = {}
        for message in messages:
            if message.name in self.nodes or message.name in self.arguments:
                raise ModelFileError(f"{label} has two nodes with the name {quoted(message.name)}")
            self.nodes[message.name] = parse_node(message, self.is_function)

    def order(self, result_nodes: Iterable[str]) -> list[MessageNode]:
        """The nodes that results depend on, also through control inputs, in topological order.

        A Merge comes before the NextIteration that it reads.
        """
        reached = self._find_ancestors(result_nodes)
        waiting: dict[str, int] = {}
        readers: dict[str, list[str]] = {}
        for name in reached:
            predecessors = self._predecessor_names(self.nodes[name])
            waiting[name] = len(predecessors)
            for predecessor in predecessors:
                readers.setdefault(predecessor, []).append(name)
        # The order is that of the file where possible, so that the same file gives the same bytes.
        position = {name: index for index, name in enumerate(self.nodes)}
        ready = [(position[name], name) for name, count in waiting.items() if not count]
        heapq.heapify(ready)
        order = []
        while ready:
            _, name = heapq.heappop(ready)
            order.append(self.nodes[name])
            for reader in readers.get(name, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, (position[reader], reader))
        if len(order) < len(reached):
            stuck = min((name for name, count in waiting.items() if count), key=position.__getitem__)
            raise ModelFileError(f"{self.label} has a cycle through {self.nodes[stuck].label}")
        return order

    def _find_ancestors(self, result_nodes: Iterable[str]) -> dict[str, None]:
        pending = [(name, "an output") for name in result_nodes]
        reached: dict[str, None] = {}
        while pending:
            name, reader = pending.pop()
            if name in reached or name in self.arguments:
                continue
            if name not in self.nodes:
                raise ModelFileError(f"{self.label} has no node {quoted(name)}, which {reader} names")
            reached[name] = None
            node = self.nodes[name]
            pending += [
                (predecessor, node.label) for predecessor in (*(r.node for r in node.inputs), *node.controls)
            ]
        return reached

    def _predecessor_names(self, node: MessageNode) -> set[str]:
        """The names of the nodes that must run before a node."""
        predecessors = {r.node for r in node.inputs} | set(node.controls)
        if node.op in MERGE:
            predecessors = {
                n for n in predecessors if n not in self.nodes or self.nodes[n].op not in NEXT_ITERATION
            }
        return predecessors - self.arguments
