"""Finds the values whose dimension a consumer without batches takes for the batch.

Such a consumer removes the batch from the data of convolutions, poolings and the like, and computes one
element of it. It takes the same dimension of every value that is joined to such data for the batch, up to a
Reshape that changes its size, and reads the first element of it only.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx_ir as ir

from ....registration.inference.constant_integers import argument

_DATA_POSITIONS = {"Gather": 1}
"""The position of the input whose first dimension is the batch, where it is not the first one."""
_AXES = {"GRU": (1, 2), "LSTM": (1, 2), "RNN": (1, 2)}
"""The axes of the batch in the data and in the first output, where they are not the first ones."""
_MOVES_AXES = ("Reshape", "Squeeze", "Transpose", "Unsqueeze")
_AXIS_OF_STATES = 1
"""The axis of the batch in the states of recurrent layers, and in their sequences without the direction."""


def find_batch_axes(nodes: Iterable[ir.Node], batch_operators: Collection[str]) -> dict[ir.Value, int]:
    """The axis that is taken for the batch, by value.

    Args:
        nodes: the nodes of a graph.
        batch_operators: the operators whose data have a batch.
    """
    axes: dict[ir.Value, int] = {}

    def mark(value: ir.Value | None, axis: int) -> bool:
        is_new = (
            value is not None and value not in axes and value.const_value is None and not _is_vector(value)
        )
        if is_new and value is not None:
            axes[value] = axis
        return is_new

    def spread(value: ir.Value, is_forward: bool) -> Iterator[tuple[ir.Value, bool]]:
        """Mark the values that a reader computes, or that the producer reads, and name each of them."""
        neighbours = [reader for reader, _ in value.uses()] if is_forward else [value.producer()]
        for neighbour in neighbours:
            if neighbour is None or neighbour.op_type in batch_operators:
                continue
            side = neighbour.outputs if is_forward else neighbour.inputs
            for joined_value, axis in _joined_values(neighbour, value, axes[value]):
                if joined_value is not None and joined_value in side and mark(joined_value, axis):
                    yield joined_value, is_forward

    graph_nodes = list(nodes)
    for node in graph_nodes:
        if node.op_type in batch_operators:
            axis_of_data, axis_of_output = _AXES.get(node.op_type, (0, 0))
            data = node.inputs[_DATA_POSITIONS.get(node.op_type, 0)]
            # Of Gather only the rows of a table at computed positions have a batch.
            if data is not None and data.const_value is None and not _is_vector(data):
                mark(data, axis_of_data)
                mark(node.outputs[0], axis_of_output)
            for state in _states(node):
                mark(state, _AXIS_OF_STATES)
    # The first axis that reaches a value stays, so the order is that of pnnx: depth first, node by node.
    for node in graph_nodes:
        sides = [(value, False) for value in node.inputs], [(value, True) for value in node.outputs]
        for first_value, is_forward in itertools.chain(*sides):
            pending = [spread(first_value, is_forward)] if first_value in axes else []
            while pending:
                value, is_forward = next(pending[-1], (None, is_forward))
                if value is None:
                    pending.pop()
                else:
                    pending += [spread(value, not is_forward), spread(value, is_forward)]
    return axes


def _states(node: ir.Node) -> Iterator[ir.Value]:
    """The states that a recurrent layer reads and computes, and its sequence behind a Squeeze."""
    if node.op_type in _AXES:
        yield from (value for value in (*node.inputs[5:7], *node.outputs[1:]) if value is not None)
        readers = [reader for reader, _ in node.outputs[0].uses()]
        yield from (reader.outputs[0] for reader in readers if reader.op_type == "Squeeze")


def sizes_along_batch(node: ir.Node, axes: Mapping[ir.Value, int]) -> set[int]:
    """The sizes that the values of a node have along the axis that is taken for the batch, where known.

    The consumer takes one axis of a node for the batch: where its values have different ones, each may be it.
    """
    values = list(_values_with_batch(node, axes))
    moves_axes = node.op_type in _MOVES_AXES or node.op_type in _AXES or node.op_type.startswith("Reduce")
    axes_of_node = {axes[value] for value in values}
    sizes = (
        _size(value, axis) for value in values for axis in ({axes[value]} if moves_axes else axes_of_node)
    )
    return {size for size in sizes if isinstance(size, int)}


def _values_with_batch(node: ir.Node, axes: Mapping[ir.Value, int]) -> Iterator[ir.Value]:
    shape = node.outputs[0].shape
    for value in (*node.inputs, *node.outputs):
        if value is None or value not in axes or value.shape is None or len(value.shape) < 2:
            continue
        # Arithmetic broadcasts an operand of lower rank rightly, a product loses its first dimension.
        if node.op_type == "MatMul" or shape is None or len(value.shape) >= len(shape):
            yield value


def _joined_values(node: ir.Node, value: ir.Value, axis: int) -> Iterator[tuple[ir.Value | None, int]]:
    """The other values of a node, with the axis that is the batch in them."""
    values = (*node.inputs, *node.outputs)
    if node.op_type == "Transpose":
        order = list(node.attributes["perm"].value) if "perm" in node.attributes else []
        if axis < len(order):
            is_input = value is node.inputs[0]
            yield values[is_input], order.index(axis) if is_input else order[axis]
    elif node.op_type in ("Squeeze", "Unsqueeze"):
        # The consumer knows which of the dimensions is the batch behind them.
        return
    elif node.op_type.startswith("Reduce") and not node.attributes.get_int("keepdims", 1):
        axes = argument(node, "axes", 1)
        rank = len(node.inputs[0].shape) if node.inputs[0] is not None and node.inputs[0].shape else 0
        if axes and rank:
            kept_axes = [number for number in range(rank) if number not in {axis % rank for axis in axes}]
            if value is node.outputs[0] and axis < len(kept_axes):
                yield node.inputs[0], kept_axes[axis]
            elif axis in kept_axes:
                yield node.outputs[0], kept_axes.index(axis)
    elif node.op_type == "Reshape":
        if all(_size(side, axis) == 1 for side in (node.inputs[0], node.outputs[0])):
            yield from ((side, axis) for side in (node.inputs[0], node.outputs[0]))
    else:
        yield from ((joined_value, axis) for joined_value in values)


def _is_vector(value: ir.Value) -> bool:
    """Whether a value has too few dimensions for a batch."""
    return value.shape is not None and len(value.shape) < 2


def _size(value: ir.Value | None, axis: int) -> object:
    shape = value.shape if value is not None else None
    return shape[axis] if shape is not None and axis < len(shape) else None
