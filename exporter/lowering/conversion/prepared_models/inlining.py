"""Inlines calls of a model's functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import onnx_ir as ir
from onnx_ir import Value

from .....registration import GraphError, names_of
from .....registration.arguments import blocks
from ..file_nodes.binding import resolve_references

MAXIMUM_NODES = 1_000_000
"""The most inlined nodes; stops the inlining of recursive functions."""
_MAXIMUM_COPIES = 20_000_000
"""The most copied inputs, because onnx-ir copies all inputs of a node to replace one."""


class _NumberedNames:
    """Makes unique names: the name itself, or with the lowest free number from 2 on."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self._next: dict[str, Iterator[int]] = {}

    def unique(self, stem: str) -> str:
        name = stem
        numbers = self._next.setdefault(stem, itertools.count(2)) if name in self.used else iter(())
        while name in self.used:
            name = f"{stem}_{next(numbers)}"
        self.used.add(name)
        return name


def inline_functions(model: ir.Model) -> None:
    """Inline every function call, also in sub-graphs; the model has no functions afterwards.

    onnx-ir's pass takes time quadratic in the number of calls, because it tries all numbers for a name.

    Raises:
        GraphError: there are too many nodes, for instance because functions call each other.
    """
    _Inlining(model).graph(model.graph)
    model.functions.clear()


class _Inlining:
    def __init__(self, model: ir.Model):
        self._functions = dict(model.functions)
        self._imports = model.graph.opset_imports
        self._nodes, self._values = _NumberedNames(), _NumberedNames()
        self._inlined_nodes = 0
        self._copied_inputs = 0

    def graph(self, graph: ir.Graph) -> None:
        """Inline the calls in a graph, and in the inlined nodes."""
        self._values.used.update(names_of(graph))
        self._nodes.used.update(node.name for node in graph if node.name)
        for node in graph:
            function = self._functions.get(node.op_identifier())
            if function is not None:
                # Inserted nodes follow in the walk, so calls in the body are inlined too.
                nodes, results = self._body(function, node)
                readers = (reader for output in node.outputs for reader, _ in output.uses())
                self._copied_inputs += len(node.inputs) ** 2 + sum(len(reader.inputs) for reader in readers)
                if self._copied_inputs > _MAXIMUM_COPIES:
                    raise GraphError("calls of functions, or nodes that read them, have too many inputs")
                ir.convenience.replace_nodes_and_values(
                    graph, node, [node], nodes, list(node.outputs), results[: len(node.outputs)]
                )
                continue
            for inner in blocks(node):
                self.graph(inner)

    def _body(self, function: ir.Function, call: ir.Node) -> tuple[list[ir.Node], list[Value]]:
        """Copy a function's nodes with the inputs of a call; return the nodes and the results."""
        self._inlined_nodes += len(function)
        if self._inlined_nodes > MAXIMUM_NODES:
            raise GraphError(f"the model has more than {MAXIMUM_NODES} nodes when its functions are inlined")
        for domain, version in function.opset_imports.items():
            self._imports.setdefault(domain, version)
        # The call's own attributes win over the function's defaults.
        defaults = {name: a for name, a in function.attributes.items() if a.value is not None}
        attributes = {**defaults, **call.attributes}
        actuals = [*call.inputs, *[None] * (len(function.inputs) - len(call.inputs))]
        values: dict[Value, Value | None] = dict(zip(function.inputs, actuals, strict=True))
        nodes = []
        for node in function:
            copy = ir.Node(
                node.domain,
                node.op_type,
                [None if value is None else values[value] for value in node.inputs],
                resolve_references(node.attributes, attributes).values(),
                overload=node.overload,
                num_outputs=len(node.outputs),
                version=node.version,
                name=self._nodes.unique(node.name or "node"),
                doc_string=node.doc_string,
                metadata_props={**call.metadata_props, **node.metadata_props},
            )
            for value, output in zip(node.outputs, copy.outputs, strict=True):
                output.name = self._values.unique(value.name or "val")
                output.type, output.doc_string = value.type, value.doc_string
                output.shape = value.shape.copy() if value.shape is not None else None
                output.metadata_props.update(value.metadata_props)
                values[value] = output
            nodes.append(copy)
        results = [values[value] for value in function.outputs]
        if any(value is None for value in results):
            raise GraphError(f"a call of '{function.name}' leaves out an input that the function returns")
        return nodes, [value for value in results if value is not None]
