"""The nodes of a graph or function body by name, with their inputs, as their messages state them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ....registration import ModelFileError
from ...files.reading.names import quoted
from .messages import AttrValue, FunctionDef, NodeDef, message_type

ENTER = frozenset({"Enter", "RefEnter"})
EXIT = frozenset({"Exit", "RefExit"})
MERGE = frozenset({"Merge", "RefMerge"})
SWITCH = frozenset({"Switch", "RefSwitch"})
NEXT_ITERATION = frozenset({"NextIteration", "RefNextIteration"})
IDENTITIES = frozenset({"Identity", "RefIdentity"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
"""Operators that call the function of their attribute `f`."""
PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
OPTIONAL_PLACEHOLDER = "PlaceholderWithDefault"


class ResultName(NamedTuple):
    """A result of a node, or a function's argument.

    The port is "" or "1" in a graph, "output:0" in the body of a function, and "" for an argument.
    """

    node: str
    port: str

    def __str__(self) -> str:
        return f"{self.node}:{self.port}" if self.port else self.node


class MessageNode(NamedTuple):
    """A NodeDef with the results that it takes, in order, and the nodes that it runs after."""

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


def argument_names(function: FunctionDef) -> list[str]:
    """The names of a function's arguments, in order."""
    return [argument.name for argument in function.signature.input_arg]


def parse_node(message: NodeDef, in_function: bool) -> MessageNode:
    """Parse the inputs of a node message."""
    inputs: list[ResultName] = []
    controls: list[str] = []
    for text in message.input:
        if text.startswith("^"):
            controls.append(text[1:].partition(":")[0])
            continue
        # TensorFlow demands that control inputs are last.
        if controls or text.endswith(":"):
            problem = " after its control inputs" if controls else ", which names no result"
            raise ModelFileError(
                f"{MessageNode(message, (), ()).label} has the input {quoted(text)}{problem}"
            )
        inputs.append(parse_result_name(text, in_function=in_function))
    return MessageNode(message, tuple(inputs), tuple(controls))


class MessageScope:
    """A graph, or the body of a function: its nodes by name, and the names of the function's arguments."""

    def __init__(self, messages: Iterable[NodeDef], label: str, arguments: Sequence[str] | None = None):
        """Make a scope of NodeDefs; a graph, unlike a function, has None as its arguments."""
        self.label = label
        self.is_function = arguments is not None
        self.arguments = frozenset(arguments or ())
        self.nodes: dict[str, MessageNode] = {}
        for message in messages:
            if message.name in self.nodes or message.name in self.arguments:
                raise ModelFileError(f"two nodes of {label} have the name {quoted(message.name)}")
            self.nodes[message.name] = parse_node(message, self.is_function)

    @classmethod
    def of_function(cls, function: FunctionDef) -> MessageScope:
        """The body of a function."""
        label = f"the function {quoted(function.signature.name)}"
        return cls(function.node_def, label, argument_names(function))

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
