"""Analyses lists in the source graph: how a list grows in a loop, and whether it is stacked later."""

from collections.abc import Iterator

import onnx_ir as ir

from ...registration import GraphContext, Value
from ...registration.arguments import arguments, qualified_name

_KEEP_ELEMENTS = frozenset({"list::append", "list::insert", "list::extend", "list::reverse", "aten::alias"})


def is_list(self: Value) -> bool:
    """Whether a source value is known to be a list of tensors; a list of unknown elements has no type."""
    return isinstance(self.type, ir.SequenceType)


def grows_evenly(body: ir.Graph, index: int) -> bool:
    """Whether every run of a loop's body only appends to a carried list, and equally often.

    Args:
        index: the index of the list among the carried values.
    """
    formal, result = body.inputs[index + 1], body.outputs[index + 1]
    if formal is result:
        return False
    while formal is not result:
        uses = list(formal.uses())
        if len(uses) != 1 or formal.is_graph_output() or uses[0].node.graph is not body:
            return False
        node = uses[0].node
        if not _appends(node, formal):
            return False
        [formal] = node.outputs
    return not formal.uses()


def _appends(node: ir.Node, items: Value) -> bool:
    name = qualified_name(node)
    if name == "aten::alias":
        return True
    if name not in ("list::append", "list::extend"):
        return False
    node_arguments = arguments(node)
    if node_arguments["self"] is not items:
        return False
    extension = node_arguments.get("other")
    producer = extension.producer() if isinstance(extension, Value) else None
    if name == "list::append":
        return True
    is_numbers = isinstance(items.type, ir.TensorType)
    return not is_numbers and producer is not None and qualified_name(producer) == "list::construct"


def is_stacked_later(g: GraphContext, self: Value) -> bool:
    """Whether the model always stacks all elements of a list, so that they must have the same shape."""
    seen: set[Value] = set()
    pending = [self]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        for use in value.uses():
            node = use.node
            if node.graph is value.graph and qualified_name(node) == "aten::stack":
                return True
            if node.graph is value.graph:
                pending.extend(_receivers(node, value))
        pending.extend(_results(g, value))
    return False


def _receivers(node: ir.Node, value: Value) -> Iterator[Value]:
    """The results of a reader that are lists with all elements of the given list."""
    name = qualified_name(node)
    if name in _KEEP_ELEMENTS:
        yield node.outputs[0]
    elif name == "prim::Loop":
        for item, result in zip(arguments(node)["carried"], node.outputs, strict=True):
            if item is value:
                yield result


def _results(g: GraphContext, value: Value) -> Iterator[Value]:
    """The results of an If or a Loop whose block returns a list."""
    graph = value.graph
    owner = g.owner(graph) if isinstance(graph, ir.Graph) else None
    if graph is None or owner is None or not value.is_graph_output():
        return
    operator_name = qualified_name(owner)
    if operator_name not in ("prim::If", "prim::Loop"):
        return
    # The first output of a Loop's body is its condition.
    first_carried = 1 if operator_name == "prim::Loop" else 0
    for index, output in enumerate(graph.outputs):
        if output is value and index >= first_carried and index - first_carried < len(owner.outputs):
            yield owner.outputs[index - first_carried]
