"""Prepares a model for streaming: all weights become initializers of the main graph, in the order of use."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from ....registration.arguments import every_node
from ...files.reading.carried import attach, carried_by

STREAMED_FROM = 1025
"""Weights of at least this many bytes are streamed; smaller weights stay with the graph."""
_INITIALIZERS_ALONE = 4
"""The IR version from which initializers need not be inputs."""


def prepare_for_streaming(model: ir.Model, *, stored: bool = False) -> ir.Model:
    """Return a copy of a model that shares its tensors and is ready to be cut.

    Constants and the initializers of sub-graphs become initializers of the main graph, and initializers are
    not inputs. Nodes and initializers that nothing reads are removed.

    Args:
        stored: whether the weights will be written to a new file, so that they may be transposed.
    """
    copy = model.clone()
    # Packed weights are valid only for the original graph, and training information is not streamed.
    attach(copy, dataclasses.replace(carried_by(model), packed={}, training=[]))
    copy.ir_version = max(copy.ir_version, _INITIALIZERS_ALONE)
    passes: list[ir.passes.InPlacePass] = [
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
    ]
    for graph_pass in passes:
        graph_pass(copy)
    graph = copy.graph
    _remove_unread(graph)
    if stored:
        _transpose_weights(graph)
    initializers = set(graph.initializers.values())
    inputs = [value for value in graph.inputs if value not in initializers]
    graph.inputs.clear()
    graph.inputs.extend(inputs)
    _order(graph)
    return copy


def is_streamed(tensor: ir.TensorProtocol) -> bool:
    """Whether a weight is large enough, and of an element type that a file can hold."""
    return tensor.dtype != ir.DataType.STRING and tensor.nbytes >= STREAMED_FROM


def _remove_unread(graph: ir.Graph) -> None:
    """Remove nodes and initializers of a main graph that nothing reads.

    onnx-ir's pass also shortens the outputs of nodes; for that it loads the schemas of all operators.
    """
    # In reverse order, because removing a node may leave its operands unread.
    for node in reversed(graph):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            graph.remove(node, safe=True)
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            del graph.initializers[name]


def _transpose_weights(graph: ir.Graph) -> None:
    """Transpose weights whose only reader is a Transpose, which would copy them in each run."""
    for node in list(graph):
        if node.op_type != "Transpose" or node.domain not in ("", "ai.onnx"):
            continue
        [source], [result] = node.inputs, node.outputs
        tensor = None if source is None else source.const_value
        if source is None or tensor is None or not source.is_initializer() or not is_streamed(tensor):
            continue
        outward = any(value.is_graph_output() or value.is_graph_input() for value in (source, result))
        # Other readers need the untransposed weight, and elements smaller than a byte cannot be transposed
        # as bytes.
        if outward or len(source.uses()) > 1 or tensor.dtype.bitwidth < 8:
            continue
        order = node.attributes.get_ints("perm", list(reversed(range(len(tensor.shape)))))
        source.const_value = _transpose_lazily(tensor, order)
        source.shape = source.const_value.shape
        result.replace_all_uses_with(source)
        graph.remove(node, safe=True)


def _transpose_lazily(tensor: ir.TensorProtocol, order: Sequence[int]) -> ir.LazyTensor:
    """Return the transposed tensor, which is computed when it is written."""
    sizes = tensor.shape.numpy()
    shape = ir.Shape([sizes[axis] for axis in order])

    def compute() -> ir.Tensor[np.ndarray]:
        array = np.ascontiguousarray(tensor.numpy().transpose(order))
        return ir.Tensor(array, dtype=tensor.dtype, shape=shape, name=tensor.name)

    return ir.LazyTensor(compute, dtype=tensor.dtype, shape=shape, name=tensor.name)


def _order(graph: ir.Graph) -> None:
    """Sort the initializers by their first use."""
    first: dict[ir.Value, None] = {}
    for node in every_node(graph):
        first.update((value, None) for value in node.inputs if value is not None and value.is_initializer())
    ordered = dict.fromkeys([*first, *graph.initializers.values()])
    graph.initializers.clear()
    for value in ordered:
        graph.initializers.add(value)
