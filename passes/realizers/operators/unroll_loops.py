"""Unrolls Loop and Scan into the nodes of each iteration, which share the weights of the body.

1. The trip count of a Loop must be constant: M is constant, and the condition is constant or unchanged by
   the body. The length of the sequences of a Scan must be known.
2. The nodes of the body are repeated; its initializers move to the main graph, once.
3. Nested loops are unrolled from the outside in; loops in the branches of an If are unrolled too.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration import GraphError
from ....registration.arguments import blocks, every_node, graphs_of
from ....registration.schemas import operator_schema
from ...onnx_graph.simplification.unused_nodes import RemoveUnused
from ..rewriting import Rewriter, attribute, constant_of, is_onnx, title

_BATCHED_SCAN = 8
"""The version of Scan that has a batch dimension and sequence lengths."""


class UnrollLoops(ir.passes.InPlacePass):
    """Unrolls the loops of the main graph and its sub-graphs."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model and report whether anything changed.

        Raises:
            GraphError: a trip count is unknown.
        """
        rewriter = Rewriter(model)
        modified = _unroll_in(rewriter, model.graph)
        if modified:
            RemoveUnused()(model)
        return ir.passes.PassResult(model, modified)


def _unroll_in(rewriter: Rewriter, graph: ir.Graph) -> bool:
    modified = False
    # Unrolling a loop copies the loops of its body into this graph, so search again.
    while loops := [node for node in graph if is_onnx(node, "Loop", "Scan")]:
        for node in loops:
            (_unroll_loop if node.op_type == "Loop" else _unroll_scan)(rewriter, node)
        modified = True
    for node in list(graph):
        for block in blocks(node):
            modified |= _unroll_in(rewriter, block)
    return modified


def _unroll_loop(rewriter: Rewriter, node: ir.Node) -> None:
    [body] = blocks(node)
    count = _trip_count(node, body)
    state = [value for value in node.inputs[2:] if value is not None]
    size = len(state)
    if len(body.inputs) != 2 + size:
        raise GraphError(f"the body of {title(node)} has {len(body.inputs)} inputs instead of {2 + size}")
    collected: list[list[ir.Value]] = [[] for _ in body.outputs[1 + size :]]
    if not count and any(value.uses() or value.is_graph_output() for value in node.outputs[size:]):
        raise GraphError(f"{title(node)} has no iterations, but its scan outputs are used")
    iterations = _Iterations(rewriter, node, body, count)
    for number in range(count):
        with rewriter.before(node) as g:
            # Bodies declare the iteration number and the condition as scalars or as tensors of one element.
            shapes = [() if value.shape is None else (1,) * len(value.shape) for value in body.inputs[:2]]
            index = g.constant(np.full(shapes[0], number, np.int64))
            condition = g.constant(np.full(shapes[1], True))
        results = iterations.repeat([index, condition, *state])
        state = results[1 : 1 + size]
        for values, value in zip(collected, results[1 + size :], strict=True):
            values.append(value)
    _finish(rewriter, node, state, collected, [0] * len(collected))


def _trip_count(node: ir.Node, body: ir.Graph) -> int:
    """The number of iterations of a Loop.

    Raises:
        GraphError: it depends on the data.
    """
    initial = _constant_condition(node.inputs[1] if len(node.inputs) > 1 else None)
    following = body.outputs[0]
    while is_onnx(following.producer(), "Identity"):
        following = following.producer().inputs[0]  # type: ignore[union-attr, assignment]
    next_condition = initial if following is body.inputs[1] else _constant_condition(following)
    if initial is False:
        return 0
    limit = node.inputs[0] if node.inputs else None
    limit_tensor = constant_of(limit)
    if initial is None or next_condition is None:
        raise GraphError(f"the condition of {title(node)} depends on the data: it cannot be unrolled")
    if next_condition is False and (limit is None or limit_tensor is not None):
        return 1 if limit_tensor is None else min(1, int(limit_tensor.numpy().item()))
    if limit_tensor is None:
        raise GraphError(f"the trip count of {title(node)} is unknown: it cannot be unrolled")
    return max(0, int(limit_tensor.numpy().item()))


def _constant_condition(value: ir.Value | None) -> bool | None:
    if value is None:
        return True
    tensor = constant_of(value)
    return None if tensor is None else bool(tensor.numpy().item())


def _unroll_scan(rewriter: Rewriter, node: ir.Node) -> None:
    schema = operator_schema("Scan", rewriter.opset)
    if schema is not None and schema.since_version <= _BATCHED_SCAN:
        raise GraphError(
            f"{title(node)} is of opset 8, which is not supported: convert the model to opset 9 or higher "
            "first"
        )
    [body] = blocks(node)
    inputs = [value for value in node.inputs if value is not None]
    size = len(inputs) - attribute(node, "num_scan_inputs", 0)
    scanned, outputs = inputs[size:], len(body.outputs) - size
    axes = attribute(node, "scan_input_axes") or [0] * len(scanned)
    backward = attribute(node, "scan_input_directions") or [0] * len(scanned)
    count = _scan_length(node, scanned, axes)
    if not count:
        raise GraphError(f"{title(node)} has an empty sequence, which cannot be unrolled")
    state = inputs[:size]
    collected: list[list[ir.Value]] = [[] for _ in range(outputs)]
    iterations = _Iterations(rewriter, node, body, count)
    for number in range(count):
        with rewriter.before(node) as g:
            slices = [
                g.op("Gather", value, count - 1 - number if reverse else number, axis=axis)
                for value, axis, reverse in zip(scanned, axes, backward, strict=True)
            ]
        results = iterations.repeat([*state, *slices])
        state = results[:size]
        for values, value in zip(collected, results[size:], strict=True):
            values.append(value)
    for values, reverse in zip(
        collected, attribute(node, "scan_output_directions") or [0] * outputs, strict=True
    ):
        if reverse:
            values.reverse()
    along = attribute(node, "scan_output_axes") or [0] * outputs
    _finish(rewriter, node, state, collected, along)


def _scan_length(node: ir.Node, scanned: list[ir.Value], axes: list[int]) -> int:
    for value, axis in zip(scanned, axes, strict=True):
        size = None if value.shape is None else value.shape[axis]
        if isinstance(size, int):
            return size
    raise GraphError(f"{title(node)} scans a dimension of unknown length: give the input a fixed size")


def _finish(
    rewriter: Rewriter,
    node: ir.Node,
    state: list[ir.Value],
    collected: list[list[ir.Value]],
    axes: list[int],
) -> None:
    """Replace a loop by its last state, and by what its iterations collected along new dimensions."""
    with rewriter.before(node) as g:
        stacked: list[ir.Value | None] = []
        outputs = node.outputs[len(state) :]
        for output, values, axis in zip(outputs, collected, axes, strict=True):
            if not (output.uses() or output.is_graph_output()):
                stacked.append(None)
                continue
            # The axis counts in the stacked output, which has one dimension more than the collected values.
            if axis < 0 and output.shape is not None:
                axis += len(output.shape)
            stacked.append(g.op("Concat", *[g.op("Unsqueeze", v, axes=[axis]) for v in values], axis=axis))
    rewriter.replace(node, [*state, *stacked])


class _Iterations:
    """Repeats the body of a loop before its node."""

    def __init__(self, rewriter: Rewriter, node: ir.Node, body: ir.Graph, count: int):
        self._rewriter = rewriter
        self._node = node
        self._body = body
        self._number = 0
        rewriter.count(count * max(1, len(every_node(body))), node)
        for graph in graphs_of(body):
            self._copy_outer_outputs(graph)
            rewriter.lift_initializers(graph, node.name or node.op_type)

    def _copy_outer_outputs(self, graph: ir.Graph) -> None:
        """Let a body return copies of values that it does not compute; onnx-ir cannot clone it otherwise."""
        for output_index, value in enumerate(graph.outputs):
            producer = value.producer()
            if producer is not None and producer.graph is graph:
                continue
            copy = ir.node("Identity", [value], name=self._rewriter.unique("returned"))
            copy.outputs[0].name = self._rewriter.unique("returned_output")
            copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
            graph.append(copy)
            graph.outputs[output_index] = copy.outputs[0]

    def repeat(self, arguments: list[ir.Value]) -> list[ir.Value]:
        """Insert the nodes of one iteration; the values of the body's outputs."""
        copy = self._body.clone(allow_outer_scope_values=True)
        path = f"{self._node.name or self._node.op_type}/iteration_{self._number}"
        self._number += 1
        results = list(copy.outputs)
        copy.outputs.clear()
        for formal, actual in zip(copy.inputs, arguments, strict=True):
            formal.replace_all_uses_with(self._rewriter.use(actual))
        for graph in graphs_of(copy):
            self._rename(graph, path)
        nodes = list(copy)
        copy.remove(nodes)
        assert self._node.graph is not None
        self._node.graph.insert_before(self._node, nodes)
        # Skip the copies that `_copy_outer_outputs` inserted; they become unused and are removed at the end.
        passed = dict(zip(results, results, strict=True))
        for node in nodes:
            if is_onnx(node, "Identity") and node.outputs[0] in passed:
                passed[node.outputs[0]] = node.inputs[0] or node.outputs[0]
        return [passed[value] for value in results]

    def _rename(self, graph: ir.Graph, path: str) -> None:
        for value in graph.inputs:
            value.name = self._rewriter.unique(f"{path}/{value.name}")
        for node in graph:
            node.name = self._rewriter.unique(f"{path}/{node.name or node.op_type}")
            for value in node.outputs:
                if value.name:
                    value.name = self._rewriter.unique(f"{path}/{value.name}")
