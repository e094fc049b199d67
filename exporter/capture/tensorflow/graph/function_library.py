"""The function library of a GraphDef; resolves the body of a function for the attributes of a call."""

import dataclasses
from collections.abc import Iterable, Mapping

from .....registration import ModelFileError
from ..messages import ArgDef, AttrValue, FunctionDef, NameAttrList, OpDef
from ..node_messages import CALLS, parse_result_name
from .nodes import ARGUMENT, Define, Edge, GraphNode, nodes_of, resolve_edge


@dataclasses.dataclass(eq=False)
class FunctionBody:
    """The body of a function for one set of attributes; its nodes include those of its arguments."""

    name: str
    nodes: dict[str, GraphNode]
    arguments: list[Edge]
    results: list[Edge]


class Library:
    """The functions and the operators of a GraphDef."""

    def __init__(self, messages: Iterable[FunctionDef], define: Define):
        """Make a library of FunctionDef messages and OpDefs."""
        self._functions: dict[str, FunctionDef] = {}
        self._define = define
        self._bodies: dict[tuple[str, bytes], FunctionBody] = {}
        for message in messages:
            if message.signature.name in self._functions:
                raise ModelFileError(f"two functions have the name '{message.signature.name}'")
            self._functions[message.signature.name] = message

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def define(self, op: str) -> OpDef | None:
        """The OpDef of an operator, or the signature of a function."""
        function = self._functions.get(op)
        return self._define(op) if function is None else function.signature

    def callee(self, node: GraphNode) -> tuple[str, Mapping[str, AttrValue]] | None:
        """The function that a node calls, with the attributes of the call; None if it calls none."""
        if node.op in self._functions:
            return node.op, node.stated_attributes
        if node.op in CALLS:
            return self.function_of(node, "f")
        return None

    def function_of(self, node: GraphNode, attribute: str) -> tuple[str, Mapping[str, AttrValue]]:
        """The function that an attribute of a node names, with its attributes."""
        return self._bind_attributes(node, node.attribute(attribute).func)

    def functions_of(self, node: GraphNode, attribute: str) -> list[tuple[str, Mapping[str, AttrValue]]]:
        """The functions that a list of a node names, each with its attributes."""
        return [self._bind_attributes(node, function) for function in node.attribute(attribute).list.func]

    def _bind_attributes(
        self, node: GraphNode, function: NameAttrList
    ) -> tuple[str, Mapping[str, AttrValue]]:
        bound = dict(function.attr)
        for name, value in bound.items():
            if value.WhichOneof("value") == "placeholder" and value.placeholder in node.bindings:
                bound[name] = node.bindings[value.placeholder]
        return function.name, bound

    def body(self, name: str, bindings: Mapping[str, AttrValue], caller: GraphNode) -> FunctionBody:
        """The body of a function; equal calls share one.

        Raises:
            ModelFileError: there is no such function, or its body is malformed.
        """
        function = self._functions.get(name)
        if function is None:
            raise ModelFileError(f"{caller.label} calls function '{name}', which the library does not have")
        relevant = {attribute.name for attribute in function.signature.attr}
        bound = {
            attribute.name: attribute.default_value
            for attribute in function.signature.attr
            if attribute.HasField("default_value")
        }
        # The call's node has further attributes, such as Tin, which are not the function's.
        bound |= {key: value for key, value in bindings.items() if key in relevant}
        missing = next((name for name in sorted(relevant) if name not in bound), None)
        if missing is not None:
            raise ModelFileError(f"{caller.label} does not give attribute '{missing}' of function '{name}'")
        signature = b"".join(
            key.encode() + b"\0" + bound[key].SerializeToString(deterministic=True) for key in sorted(bound)
        )
        body = self._bodies.get((name, signature))
        if body is None:
            body = self._bodies[name, signature] = self._instantiate(function, bound)
        return body

    def _instantiate(self, function: FunctionDef, bindings: Mapping[str, AttrValue]) -> FunctionBody:
        name = function.signature.name
        formal = [
            GraphNode(argument.name, ARGUMENT, _Signature([argument]), bindings, {})
            for argument in function.signature.input_arg
        ]
        nodes = nodes_of(function.node_def, self.define, f"function '{name}'", formal, bindings)
        argument_edges = [Edge(node, index) for node in formal for index in range(len(node.result_types()))]
        return_node = GraphNode("return", "_Return", None, {}, {})
        results = []
        for argument in function.signature.output_arg:
            reference = function.ret.get(argument.name)
            if reference is None:
                raise ModelFileError(f"function '{name}' does not define its result '{argument.name}'")
            first = resolve_edge(parse_result_name(reference, in_function=True), nodes, return_node, True)
            # An output argument may be a list of several values.
            count = len(GraphNode(name, name, None, bindings, {}).types(argument))
            results += [Edge(first.node, first.output + index) for index in range(count)]
        return FunctionBody(name, nodes, argument_edges, results)


@dataclasses.dataclass(frozen=True)
class _Signature:
    """The part of an OpDef that the node of a function's argument needs: its one result."""

    output_arg: list[ArgDef]
    attr: tuple[()] = ()
    input_arg: tuple[()] = ()
