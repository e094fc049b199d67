"""The nodes of a graph or function body by name, with their inputs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .....registration import ModelFileError
from ....files.reading.names import quoted
from ..messages import message_type

NEXT_ITERATION = frozenset({"NextIteration", "RefNextIteration"})
MERGE = frozenset({"Merge", "RefMerge"})


class Reference(NamedTuple):
    """A result of a node.

    Attributes:
        node: the node's name, or the name of a function's argument.
        port: which result: "" and "1" in a graph, "output:0" in the body of a function, "" for an argument.
    """

    node: str
    port: str

    def __str__(self) -> str:
        return f"{self.node}:{self.port}" if self.port else self.node


class Node(NamedTuple):
    """A node with its inputs.

    Attributes:
        message: the NodeDef.
        inputs: the results that it takes, in order.
        controls: the nodes that it runs after.
    """

    message: Any
    inputs: tuple[Reference, ...]
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
    def shown(self) -> str:
        """Its name in errors."""
        return f"node {quoted(self.name)} ({self.op})"

    def attribute(self, name: str) -> Any:
        """The AttrValue of an attribute; an empty one if the node does not state it."""
        # Reading a missing entry of a map would add it to the message.
        attributes = self.message.attr
        return attributes[name] if name in attributes else message_type("AttrValue")()


def reference(text: str, *, in_function: bool = False) -> Reference:
    """Parse the name of a result; `name:0` of a graph is `name`."""
    name, _, port = text.partition(":")
    return Reference(name, "" if port == "0" and not in_function else port)


def _node_of(message: Any, in_function: bool) -> Node:
    """A node message with its inputs taken apart."""
    inputs = tuple(
        reference(text, in_function=in_function) for text in message.input if not text.startswith("^")
    )
    controls = tuple(text[1:].partition(":")[0] for text in message.input if text.startswith("^"))
    return Node(message, inputs, controls)


class Scope:
    """A graph, or the body of a function.

    Attributes:
        nodes: its nodes by name.
        arguments: the names of the function's arguments.
        is_function: whether it is the body of a function.
        shown: what errors call it.

    Raises:
        ModelFileError: two nodes have one name, or a node reads what does not exist.
    """

    def __init__(self, messages: Iterable[Any], shown: str, arguments: Sequence[str] | None = None):
        """Make a scope of nodes.

        Args:
            messages: the NodeDefs.
            shown: what errors call the scope.
            arguments: the names of the function's arguments; None for a graph.
        """
        self.shown = shown
        self.is_function = arguments is not None
        self.arguments = frozenset(arguments or ())
        self.nodes: dict[str, Node] = {}
        for message in messages:
            if message.name in self.nodes or message.name in self.arguments:
                raise ModelFileError(f"{shown} has two nodes with the name {quoted(message.name)}")
            self.nodes[message.name] = _node_of(message, self.is_function)

    def order(self, wanted: Iterable[str]) -> list[Node]:
        """The nodes that results depend on, also through control inputs, in topological order.

        A Merge comes before the NextIteration that it reads.

        Raises:
            ModelFileError: a node reads itself, or what the scope does not have.
        """
        reached = self._ancestors(wanted)
        waiting: dict[str, int] = {}
        readers: dict[str, list[str]] = {}
        for name in reached:
            read = self._predecessors(self.nodes[name])
            waiting[name] = len(read)
            for other in read:
                readers.setdefault(other, []).append(name)
        # The order is that of the file where possible, so that the same file gives the same bytes.
        position = {name: index for index, name in enumerate(self.nodes)}
        ready = [(position[name], name) for name, count in waiting.items() if not count]
        heapq.heapify(ready)
        found = []
        while ready:
            _, name = heapq.heappop(ready)
            found.append(self.nodes[name])
            for reader in readers.get(name, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, (position[reader], reader))
        if len(found) < len(reached):
            stuck = min((name for name, count in waiting.items() if count), key=position.__getitem__)
            raise ModelFileError(f"{self.shown} has a cycle through {self.nodes[stuck].shown}")
        return found

    def _ancestors(self, wanted: Iterable[str]) -> dict[str, None]:
        pending = [(name, "an output") for name in wanted]
        reached: dict[str, None] = {}
        while pending:
            name, reader = pending.pop()
            if name in reached or name in self.arguments:
                continue
            if name not in self.nodes:
                raise ModelFileError(f"{self.shown} has no node {quoted(name)}, which {reader} names")
            reached[name] = None
            node = self.nodes[name]
            pending += [(other, node.shown) for other in (*(r.node for r in node.inputs), *node.controls)]
        return reached

    def _predecessors(self, node: Node) -> set[str]:
        """The nodes that come before a node."""
        found = {r.node for r in node.inputs} | set(node.controls)
        if node.op in MERGE:
            found = {n for n in found if n not in self.nodes or self.nodes[n].op not in NEXT_ITERATION}
        return found - self.arguments
