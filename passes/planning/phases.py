"""The phases of a training graph, and the execution order that follows from them.

Engines that train on devices run a graph in four phases. For each layer with trainable parameters, from the
last layer to the first, they compute the gradients of its parameters, then the derivative for the layer
before it, and then apply the gradients, which frees their memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx_ir as ir

from ...registration import MODULE, PLAN_PHASE
from .order import execution_order, reads

FORWARD = "forward"
CALC_GRADIENT = "calc_gradient"
CALC_DERIVATIVE = "calc_derivative"
APPLY_GRADIENT = "apply_gradient"
PHASES = (FORWARD, CALC_GRADIENT, CALC_DERIVATIVE, APPLY_GRADIENT)


def order_by_phase(graph: ir.Graph, forward: Collection[str], gradients: Collection[str]) -> None:
    """Write the phase of each node of a training graph as metadata, and sort the nodes by phase.

    Nodes that update parameters already have the phase `apply_gradient`, and all nodes have the path of their
    module. A layer is a module with parameter gradients. Nodes of the layer that a gradient depends on get
    the phase of gradients; the other nodes of the backward pass get the phase of derivatives.

    Args:
        forward: names of the graph outputs of the forward pass.
        gradients: names of the graph outputs that are gradients.
    """
    nodes = list(graph)
    applying = {node for node in nodes if node.metadata_props.get(PLAN_PHASE) == APPLY_GRADIENT}
    outputs = {value.name: value for value in graph.outputs}
    ahead = _ancestors(outputs[name] for name in forward if name in outputs)
    layers: dict[ir.Node, str] = {}
    for node in nodes:
        if node in ahead:
            phase = FORWARD
        elif node in applying:
            phase = APPLY_GRADIENT
        else:
            phase = CALC_DERIVATIVE
        node.metadata_props[PLAN_PHASE] = phase
    gradient_values = [outputs[name] for name in gradients if name in outputs]
    # A gradient that an update consumes need not be an output of the graph.
    gradient_values += [value for node in nodes if node in applying for value in reads(node)]
    for value in gradient_values:
        producer = value.producer()
        if producer is not None and producer.metadata_props[PLAN_PHASE] in (CALC_GRADIENT, CALC_DERIVATIVE):
            _mark(producer, layers)
    ranks = _ranks(nodes, set(layers.values()))
    ordered = execution_order(graph, ranks)
    if ordered != nodes:
        for node in ordered:
            graph.remove(node)
        graph.extend(ordered)


def _ancestors(values: Iterable[ir.Value]) -> set[ir.Node]:
    """The nodes that values depend on."""
    ancestors: set[ir.Node] = set()
    waiting = [value.producer() for value in values]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in ancestors:
            ancestors.add(node)
            waiting.extend(value.producer() for value in reads(node))
    return ancestors


def _mark(producer: ir.Node, layers: dict[ir.Node, str]) -> None:
    """Mark the nodes that compute a gradient within the module of its last node."""
    layer = producer.metadata_props.get(MODULE, "")
    waiting: list[ir.Node | None] = [producer]
    while waiting:
        node = waiting.pop()
        if node is None or node in layers or node.metadata_props.get(MODULE, "") != layer:
            continue
        if node.metadata_props.get(PLAN_PHASE) not in (CALC_GRADIENT, CALC_DERIVATIVE):
            continue
        layers[node] = layer
        node.metadata_props[PLAN_PHASE] = CALC_GRADIENT
        waiting.extend(value.producer() for value in reads(node))


def _ranks(nodes: list[ir.Node], layers: Collection[str]) -> dict[ir.Node, tuple[int, ...]]:
    """Return the rank of each node: the forward pass, then the layers in the order of their gradients."""
    slots: dict[str, int] = {}
    for index, node in enumerate(nodes):
        layer = node.metadata_props.get(MODULE, "")
        if layer in layers and node.metadata_props[PLAN_PHASE] in (CALC_GRADIENT, CALC_DERIVATIVE):
            slots[layer] = index
    ranks: dict[ir.Node, tuple[int, ...]] = {}
    needed = _first_needed(nodes)
    for index, node in enumerate(nodes):
        phase = PHASES.index(node.metadata_props[PLAN_PHASE])
        layer = node.metadata_props.get(MODULE, "")
        # Nodes that all updates share come before the first update.
        shared = node.metadata_props[PLAN_PHASE] == APPLY_GRADIENT and layer not in slots
        slot = -1 if shared else slots.get(layer, index)
        ranks[node] = (1, slot, phase) if phase else (0, needed.get(node, index))
    return ranks


def _first_needed(nodes: list[ir.Node]) -> dict[ir.Node, int]:
    """Return the rank of the first reader for nodes without a module that read only inputs."""
    needed: dict[ir.Node, int] = {}
    for index, node in enumerate(nodes):
        for value in reads(node):
            producer = value.producer()
            if producer is None or MODULE in producer.metadata_props:
                continue
            if all(read.producer() is None for read in reads(producer)):
                needed.setdefault(producer, index)
    return needed
