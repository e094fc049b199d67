"""Removes the parts that only training needs: Dropout, and losses with everything that depends on them.

1. A Dropout is replaced by its input, and by a mask of ones if something reads the mask. Before opset 12,
   which defines the mask, a used mask is refused.
2. SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss are removed with every output that depends on the
   loss. The scores that the loss reads become an output at the index of the first removed one, unless
   they, or values computed from them, remain outputs.
3. The log-probabilities, the second output of SoftmaxCrossEntropyLoss, are computed by LogSoftmax.
4. Outputs that the caller names as losses are removed, with every output that depends on them: a loss that
   is composed of other operators cannot be told from a result.
5. Inputs that only removed nodes read, such as the labels, are removed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ...registration import GraphContext, GraphError
from ...registration.arguments import blocks, every_node, graphs_of
from ...registration.schemas import operator_schema
from ..onnx_graph.simplification.unused_nodes import RemoveUnused
from .rewriting import Rewriter, is_onnx, title

_LOSSES = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
_OF_ONE_DIMENSION = 13
"""The version of LogSoftmax that works along one dimension; older ones flatten the tensor into a matrix."""


class StripTraining(ir.passes.InPlacePass):
    """Removes losses of the main graph, and Dropout everywhere."""

    def __init__(self, losses: Sequence[str] = ()):
        """Make the pass.

        Args:
            losses: names of outputs that are losses, besides those of ONNX's operators for losses.
        """
        super().__init__()
        self._losses = losses

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model and report whether anything changed.

        Raises:
            GraphError: a sub-graph has a loss, a loss is computed for the model's other outputs alone, or a
                name is that of no output.
        """
        rewriter = Rewriter(model)
        modified = False
        # Inputs that nothing read from the start are part of the interface and stay.
        read = {value for value in model.graph.inputs if value.uses()}
        for graph in graphs_of(model.graph):
            for node in list(graph):
                if is_onnx(node, "Dropout"):
                    _remove_dropout(rewriter, node)
                    modified = True
                elif is_onnx(node, *_LOSSES) and graph is not model.graph:
                    raise GraphError(f"{title(node)} is in a sub-graph, where losses are not removed")
        losses = [node for node in model.graph if is_onnx(node, *_LOSSES)]
        if losses:
            _remove_losses(rewriter, losses)
            modified = True
        if self._losses:
            _remove_outputs(model.graph, self._losses)
            modified = True
        if modified:
            RemoveUnused()(model)
            for value in list(model.graph.inputs):
                if value in read and not value.uses() and not value.is_graph_output():
                    model.graph.inputs.remove(value)
        return ir.passes.PassResult(model, modified)


def _remove_dropout(rewriter: Rewriter, node: ir.Node) -> None:
    data = node.inputs[0]
    assert data is not None
    mask: ir.Value | None = None
    if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        schema = operator_schema("Dropout", rewriter.opset)
        if schema is None or "training_mode" not in schema.input_index:
            raise GraphError(
                f"{title(node)} cannot be removed: its mask is used, and this opset does not define its "
                "contents"
            )
        with rewriter.before(node) as g:
            mask = g.op("ConstantOfShape", g.op("Shape", data), value=ir.Tensor(np.ones(1, dtype=bool)))
    rewriter.replace(node, [data, mask][: len(node.outputs)])


def _remove_losses(rewriter: Rewriter, losses: list[ir.Node]) -> None:
    graph = rewriter.model.graph
    for node in losses:
        if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
            scores = node.inputs[0]
            assert scores is not None
            with rewriter.before(node) as g:
                logarithms = _log_softmax(g, scores)
            old = node.outputs[1]
            logarithms.type, logarithms.shape = old.type, old.shape
            old.replace_all_uses_with(logarithms, replace_graph_outputs=True)
            logarithms.name, old.name = old.name, rewriter.unique(f"{old.name}_removed")
    lost = _dependents({node.outputs[0] for node in losses}, graph)
    lost_indices = [index for index, value in enumerate(graph.outputs) if value in lost]
    remaining = [value for value in graph.outputs if value not in lost]
    new_outputs: list[ir.Value] = []
    for node in losses:
        scores = node.inputs[0]
        assert scores is not None
        dependents = _dependents({scores}, graph) | {scores}
        if not dependents.intersection(remaining) and scores not in new_outputs:
            new_outputs.append(scores)
    if any(value.is_graph_input() or value.is_initializer() for value in new_outputs):
        raise GraphError(
            f"{title(losses[0])} reads an input of the model directly: nothing remains without the loss"
        )
    first_lost = lost_indices[0] if lost_indices else len(remaining)
    outputs = list(graph.outputs)
    before = [value for value in outputs[:first_lost] if value not in lost]
    graph.outputs[:] = [*before, *new_outputs, *remaining[len(before) :]]


def _remove_outputs(graph: ir.Graph, names: Sequence[str]) -> None:
    """Remove outputs by name, and those that depend on them."""
    outputs = {value.name: value for value in graph.outputs}
    missing = [name for name in names if name not in outputs]
    if missing:
        raise GraphError(f"the graph has no output '{missing[0]}'; it has {', '.join(map(repr, outputs))}")
    lost = _dependents({outputs[name] for name in names}, graph)
    remaining = [value for value in graph.outputs if value not in lost]
    if not remaining:
        raise GraphError(f"output '{names[0]}' is the only output: slice the model to keep its scores")
    graph.outputs[:] = remaining


def _log_softmax(g: GraphContext, scores: ir.Value) -> ir.Value:
    """The logarithms of the softmax over dimension 1."""
    rank = g.rank(scores)
    schema = operator_schema("LogSoftmax", g.opset)
    assert schema is not None
    flattens = schema.since_version < _OF_ONE_DIMENSION
    if rank == 2 or not flattens:
        return g.op("LogSoftmax", scores, axis=1)
    if rank is None:
        raise GraphError(f"the rank of '{scores.name}' is unknown: its LogSoftmax cannot be written")
    # An older LogSoftmax normalizes over all dimensions from the axis on, so dimension 1 must come last.
    last = [0, *range(2, rank), 1]
    back = [0, rank - 1, *range(1, rank - 1)]
    moved = g.op("LogSoftmax", g.op("Transpose", scores, perm=last), axis=rank - 1)
    return g.op("Transpose", moved, perm=back)


def _dependents(values: set[ir.Value], graph: ir.Graph) -> set[ir.Value]:
    """Everything that is computed from values."""
    dependents = set(values)
    for node in graph:
        read = {value for value in node.inputs if value is not None}
        for block in blocks(node):
            read.update(v for inner in every_node(block) for v in inner.inputs if v is not None)
            read.update(block.outputs)
        if not dependents.isdisjoint(read):
            dependents.update(node.outputs)
    return dependents
