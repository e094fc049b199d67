"""Cuts the part of a model between named values."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ....registration import GraphError
from ....registration.arguments import blocks, every_node


class SliceGraph(ir.passes.FunctionalPass):
    """Makes a model of the nodes that compute some values from others.

    Args:
        inputs: names of values that become the inputs, in order.
        outputs: names of values that become the outputs, in order.
    """

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]):
        self._inputs = list(inputs)
        self._outputs = list(outputs)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Make the model, and report whether it is less than the whole.

        Raises:
            GraphError: there is no such value, an output needs an input that is not named, or no output
                depends on an input that is.
        """
        graph = model.graph
        inputs = [_find_value(graph, name) for name in _distinct(self._inputs, "input")]
        outputs = [_find_value(graph, name) for name in _distinct(self._outputs, "output")]
        if not outputs:
            raise GraphError("slice needs at least one output")
        used, missing = _needed_values(inputs, outputs)
        if missing:
            raise GraphError(
                f"the outputs also depend on {_quote_names(missing)}: add them to the inputs, or cut "
                "elsewhere"
            )
        unused = [value.name for value in inputs if value not in used]
        if unused:
            raise GraphError(f"no output of the slice depends on input {_quote_names(unused)}")
        untyped = [value.name for value in (*inputs, *outputs) if value.type is None]
        if untyped:
            raise GraphError(f"the element type of {_quote_names(untyped)} is unknown")
        part = ir.convenience.extract(graph, inputs, outputs)
        # The same interface with all nodes is the whole model.
        modified = len(part) != len(graph) or not (
            [v.name for v in part.inputs] == [v.name for v in graph.inputs]
            and [v.name for v in part.outputs] == [v.name for v in graph.outputs]
        )
        sliced = ir.Model(
            part,
            ir_version=model.ir_version,
            producer_name=model.producer_name,
            producer_version=model.producer_version,
            domain=model.domain,
            model_version=model.model_version,
            doc_string=model.doc_string,
            functions=[function.clone() for function in model.functions.values()],
            metadata_props=dict(model.metadata_props),
        )
        return ir.passes.PassResult(sliced, modified)


def slice_graph(model: ir.Model, inputs: Sequence[str], outputs: Sequence[str]) -> ir.Model:
    """The part of a model between named values, as a new model that shares the weights.

    Raises:
        GraphError: see `SliceGraph`.
    """
    return SliceGraph(inputs, outputs)(model).model


def _distinct(names: list[str], role: str) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise GraphError(f"{role} '{name}' is named twice")
    return names


def _find_value(graph: ir.Graph, name: str) -> ir.Value:
    for values in (graph.inputs, *(node.outputs for node in graph), graph.initializers.values()):
        for value in values:
            if value.name == name:
                return value
    raise GraphError(f"the graph has no value '{name}'")


def _needed_values(inputs: list[ir.Value], outputs: list[ir.Value]) -> tuple[set[ir.Value], list[str | None]]:
    """The values that the outputs need, and the names of inputs of the graph that are not given."""
    needed: set[ir.Value] = set()
    missing: dict[str | None, None] = {}
    cut_values = set(inputs)
    pending = list(reversed(outputs))
    while pending:
        value = pending.pop()
        if value in needed:
            continue
        needed.add(value)
        if value in cut_values:
            continue
        node = value.producer()
        if node is None:
            if value.is_graph_input() and not value.is_initializer() and not _is_inner(value, outputs):
                missing[value.name] = None
            continue
        pending += [read for read in node.inputs if read is not None]
        # A sub-graph may read any outer value without listing it as an input.
        for block in blocks(node):
            pending += list(block.outputs)
            pending += [read for inner in every_node(block) for read in inner.inputs if read is not None]
    return needed, list(missing)


def _is_inner(value: ir.Value, outputs: list[ir.Value]) -> bool:
    """Whether a value is an input of a sub-graph."""
    return value.graph is not outputs[0].graph


def _quote_names(names: list[str | None]) -> str:
    return ", ".join(f"'{name}'" for name in names)
