"""Finds a small part of a model that still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from ...registration import OpsettaError, UsageError
from ...registration.arguments import every_node
from ..editing.parts import extract_part
from ..files.reading import Bounds

_MOST_TRIALS = 1000


def reduce_model(model: ir.Model, fails: Callable[[ir.Model], bool], bounds: Bounds) -> ir.Model:
    """A part of a model for which `fails` is still true, and none of whose parts was found to fail.

    1. Cut behind a node: its results are the outputs, and only what they need stays. Halves come first.
    2. Cut in front of a node: values become inputs of the part.
    Both are repeated until no cut fails.

    Args:
        fails: whether a part fails; called up to 1,000 times.
        bounds: limits on the inference of shapes.

    Raises:
        UsageError: the whole model does not fail.
    """
    if not fails(model):
        raise UsageError("the whole model does not fail, so there is nothing to reduce")
    trials = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for inputs, outputs in _cuts(model.graph):
            if trials == _MOST_TRIALS:
                return model
            try:
                part = extract_part(model, inputs, outputs, bounds)
            # The values do not bound a part, or the type of an input is unknown.
            except OpsettaError:
                continue
            if part.graph.num_nodes() >= model.graph.num_nodes():
                continue
            trials += 1
            if fails(part):
                model, is_smaller = part, True
                break
    return model


def _cuts(graph: ir.Graph) -> Iterator[tuple[list[str], list[str]]]:
    """The inputs and outputs of parts to try, those that cut much away first; empty for the graph's own."""
    nodes = list(graph)
    for position in _spread(len(nodes)):
        yield [], [str(value.name) for value in nodes[position].outputs if value.name]
    outputs = [str(value.name) for value in graph.outputs]
    for position in reversed(_spread(len(nodes))):
        frontier = _frontier(graph, set(nodes[: position + 1]))
        if frontier:
            yield frontier, outputs
    # A single result may stand for a node between others that stay.
    own_inputs = [str(value.name) for value in graph.inputs if not value.is_initializer()]
    for node in nodes:
        yield [*own_inputs, *(str(value.name) for value in node.outputs if value.name)], outputs


def _spread(count: int) -> list[int]:
    """All positions below a number: the middle first, then those between."""
    positions, pending = [], [(0, count)]
    while pending:
        begin, end = pending.pop(0)
        if begin < end:
            middle = (begin + end) // 2
            positions.append(middle)
            pending += [(begin, middle), (middle + 1, end)]
    return positions


def _frontier(graph: ir.Graph, before: set[ir.Node]) -> list[str]:
    """The values that the remaining nodes read of nodes before a cut, and of the graph's inputs."""
    names: dict[str, None] = {}
    for node in every_node(graph):
        for value in () if node in before else node.inputs:
            if value is None or value.is_initializer():
                continue
            if value.producer() in before or value in graph.inputs:
                names[str(value.name)] = None
    return list(names)
