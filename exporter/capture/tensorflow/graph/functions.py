"""The function library of a GraphDef: bodies with the attributes of a call bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .....registration import ModelFileError
from .nodes import ARGUMENT, Define, Edge, Node, nodes_of, resolved

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
"""Operators that call the function of their attribute `f`."""


@dataclasses.dataclass(eq=False)
class Body:
    """The body of a function, for one set of attributes.

    Attributes:
        name: the function's name.
        nodes: its nodes by name, those of its arguments among them.
        arguments: a result for each value that a call gives.
        results: what it returns, in order.
    """

    name: str
    nodes: dict[str, Node]
    arguments: list[Edge]
    results: list[Edge]


class Library:
    """The functions and the operators of a GraphDef."""

    def __init__(self, messages: Any, define: Define):
        """Make a library of FunctionDef messages and OpDefs."""
        self._functions: dict[str, Any] = {}
        self._define = define
        self._bodies: dict[tuple[str, bytes], Body] = {}
        for message in messages:
            if message.signature.name in self._functions:
                raise ModelFileError(f"two functions have the name '{message.signature.name}'")
            self._functions[message.signature.name] = message

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def define(self, op: str) -> Any:
        """The OpDef of an operator, or the signature of a function."""
        function = self._functions.get(op)
        return self._define(op) if function is None else function.signature

    def called(self, node: Node) -> tuple[str, Mapping[str, Any]] | None:
        """The function that a node calls, with the attributes of the call; None if it calls none."""
        if node.op in self._functions:
            return node.op, node.stored
        if node.op in CALLS:
            return self.function_of(node, "f")
        return None

    def function_of(self, node: Node, attribute: str) -> tuple[str, Mapping[str, Any]]:
        """The function that an attribute of a node names, with its attributes."""
        return self._named(node, node.attribute(attribute).func)

    def functions_of(self, node: Node, attribute: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The functions that a list of a node names, each with its attributes."""
        return [self._named(node, each) for each in node.attribute(attribute).list.func]

    def _named(self, node: Node, function: Any) -> tuple[str, Mapping[str, Any]]:
        bound = dict(function.attr)
        for name, value in bound.items():
            if value.WhichOneof("value") == "placeholder" and value.placeholder in node.bindings:
                bound[name] = node.bindings[value.placeholder]
        return function.name, bound

    def body(self, name: str, bindings: Mapping[str, Any], caller: Node) -> Body:
        """The body of a function; equal calls share one.

        Raises:
            ModelFileError: there is no such function, or its body is malformed.
        """
        function = self._functions.get(name)
        if function is None:
            raise ModelFileError(f"{caller.shown} calls function '{name}', which the library does not have")
        relevant = {each.name for each in function.signature.attr}
        bound = {
            each.name: each.default_value
            for each in function.signature.attr
            if each.HasField("default_value")
        }
        bound |= {key: value for key, value in bindings.items() if key in relevant}
        missing = next((name for name in sorted(relevant) if name not in bound), None)
        if missing is not None:
            raise ModelFileError(f"{caller.shown} does not give attribute '{missing}' of function '{name}'")
        signature = b"".join(
            key.encode() + b"\0" + bound[key].SerializeToString(deterministic=True) for key in sorted(bound)
        )
        found = self._bodies.get((name, signature))
        if found is None:
            found = self._bodies[name, signature] = self._instantiated(function, bound)
        return found

    def _instantiated(self, function: Any, bindings: Mapping[str, Any]) -> Body:
        name = function.signature.name
        formal = [
            Node(each.name, ARGUMENT, _definition_of(each), bindings, {})
            for each in function.signature.input_arg
        ]
        nodes = nodes_of(
            function.node_def,
            self.define,
            arguments=formal,
            bindings=bindings,
            where=f" of function '{name}'",
        )
        given = [Edge(node, index) for node in formal for index in range(len(node.results()))]
        returning = Node("return", "_Return", None, {}, {})
        results = []
        for each in function.signature.output_arg:
            reference = function.ret.get(each.name)
            if reference is None:
                raise ModelFileError(f"function '{name}' does not define its result '{each.name}'")
            first = resolved(reference, nodes, returning, True)
            count = len(Node(name, name, None, bindings, {}).types(each))
            results += [Edge(first.node, first.output + index) for index in range(count)]
        return Body(name, nodes, given, results)


@dataclasses.dataclass(frozen=True)
class _Signature:
    """The OpDef of a function."""

    output_arg: list[Any]
    attr: tuple[Any, ...] = ()
    input_arg: tuple[Any, ...] = ()


def _definition_of(argument: Any) -> _Signature:
    return _Signature([argument])
