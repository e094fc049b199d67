"""Finds the values whose dimension a consumer without batches takes for the batch.

Such a consumer removes the batch from the data of convolutions, poolings and the like, and computes one
element of it. It takes the same dimension of every value that is joined to such data for the batch, up to a
Reshape that changes its size, and reads the first element of it only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx_ir as ir

_DATA_POSITIONS = {"Gather": 1}
"""The position of the input whose first dimension is the batch, where it is not the first one."""
_AXES = {"GRU": (1, 2), "LSTM": (1, 2), "RNN": (1, 2)}
"""The axes of the batch in the data and in the first output, where they are not the first ones."""


def find_batch_axes(nodes: Iterable[ir.Node], batch_operators: Collection[str]) -> dict[ir.Value, int]:
    """The axis that is taken for the batch, by value.

    Args:
        nodes: the nodes of a graph.
        batch_operators: the operators whose data have a batch.
    """
    axes: dict[ir.Value, int] = {}
    pending: list[ir.Value] = []

    def mark(value: ir.Value, axis: int) -> None:
        if value not in axes and value.const_value is None and not _is_vector(value):
            axes[value] = axis
            pending.append(value)

    for node in nodes:
        if node.op_type in batch_operators:
            axis_of_data, axis_of_output = _AXES.get(node.op_type, (0, 0))
            data = node.inputs[_DATA_POSITIONS.get(node.op_type, 0)]
            # Of Gather only the rows of a table at computed positions have a batch.
            if data is not None and data.const_value is None and not _is_vector(data):
                mark(data, axis_of_data)
                mark(node.outputs[0], axis_of_output)
    while pending:
        value = pending.pop()
        neighbours = [value.producer(), *(reader for reader, _ in value.uses())]
        for neighbour in neighbours:
            if neighbour is not None and neighbour.op_type not in batch_operators:
                for joined_value, axis in _joined_values(neighbour, value, axes[value]):
                    if joined_value is not None:
                        mark(joined_value, axis)
    return axes


def sizes_along_batch(node: ir.Node, axes: Mapping[ir.Value, int]) -> set[int]:
    """The sizes that the values of a node have along the axis that is taken for the batch, where known."""
    sizes = (_size(value, axes[value]) for value in _values_with_batch(node, axes))
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
