"""Operators that join tensors: cat, stack, hstack, pad_sequence. A list of unknown length is one value."""

import functools
from collections.abc import Sequence

import onnx_ir as ir

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.list_values import KnownList, element_shape, is_sequence, merge_dimensions
from ....compositions.size_arithmetic import axis, compute, known_rank, static_size


def _known_elements(tensors: list[Value] | Value) -> list[Value] | Value:
    """The elements of a list if they are known, else the list."""
    return tensors if isinstance(tensors, list) or not isinstance(tensors, KnownList) else tensors.items


def _rank(g: GraphContext, tensors: Value) -> int:
    shape = element_shape(tensors)
    if shape is None:
        raise g.refuse("the rank of the elements of the list is unknown")
    return len(shape)


def _stack_list(g: GraphContext, tensors: Value, dim: int) -> Value:
    """Stack the elements of a list along a new dimension."""
    if is_sequence(tensors):
        shape = element_shape(tensors)
        result = g.op("ConcatFromSequence", tensors, axis=dim, new_axis=1)
        if shape is not None:
            position = dim % (len(shape) + 1)
            result.shape = ir.Shape([*shape[:position], None, *shape[position:]])
        return result
    if dim == 0:
        return tensors
    return g.call("aten::movedim", self=tensors, source=0, destination=dim % (_rank(g, tensors) + 1))


def _concatenate_list(g: GraphContext, tensors: Value, dim: int) -> Value:
    """Concatenate the elements of a list along an existing dimension."""
    if is_sequence(tensors):
        shape = element_shape(tensors)
        result = g.op("ConcatFromSequence", tensors, axis=dim, new_axis=0)
        if shape is not None:
            dimension = dim % len(shape)
            result.shape = ir.Shape([*shape[:dimension], None, *shape[dimension + 1 :]])
        return result
    dimension = dim % _rank(g, tensors) if dim else 0
    return merge_dimensions(g, _stack_list(g, tensors, dimension), dimension)


@onnx_symbolic(["aten::cat", "aten::concat", "aten::concatenate"])
def cat(g: GraphContext, tensors: list[Value] | Value, dim: int = 0) -> Value:
    """An empty one-dimensional tensor can be joined with tensors of any rank, and is ignored."""
    tensors = _known_elements(tensors)
    if not isinstance(tensors, list):
        return _concatenate_list(g, tensors, dim)
    if len(tensors) == 1:
        return tensors[0]
    # ATen ignores them; ONNX would refuse the different rank.
    nonempty = [tensor for tensor in tensors if g.shape(tensor) != (0,)] or tensors[:1]
    dimension = axis(g, nonempty[0], dim)
    # A tensor without elements along the dim adds nothing, and would keep Concat in the graph.
    nonempty = [tensor for tensor in nonempty if static_size(g, tensor, dimension) != 0] or nonempty[:1]
    return nonempty[0] if len(nonempty) == 1 else g.op("Concat", *nonempty, axis=dimension)


@onnx_symbolic("aten::stack")
def stack(g: GraphContext, tensors: list[Value] | Value, dim: int = 0) -> Value:
    tensors = _known_elements(tensors)
    if isinstance(tensors, Value):
        return _stack_list(g, tensors, dim)
    dimension = dim if dim >= 0 else dim + known_rank(g, tensors[0]) + 1
    expanded = [g.op("Unsqueeze", tensor, axes=[dimension]) for tensor in tensors]
    return expanded[0] if len(expanded) == 1 else g.op("Concat", *expanded, axis=dimension)


@onnx_symbolic("aten::pad_sequence")
def pad_sequence(
    g: GraphContext,
    sequences: list[Value] | Value,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Value:
    """The longest sequence is computed in the graph; a decomposition would take that of the example."""
    sequences = _known_elements(sequences)
    if isinstance(sequences, Value):
        raise g.refuse("the number of sequences is unknown")
    sizes = [g.size(sequence, 0) for sequence in sequences]
    longest = functools.reduce(lambda size, other_size: compute(g, "max", size, other_size), sizes)
    # All results have the element type of the first sequence.
    dtype = g.dtype(sequences[0])
    padded = []
    for sequence, size in zip(sequences, sizes, strict=True):
        missing = compute(g, "sub", longest, size)
        pad: list[int | Value] = [0, 0] * (known_rank(g, sequence) - 1)
        pad += [missing, 0] if padding_side == "left" else [0, missing]
        typed_sequence = sequence if dtype is None else g.cast(sequence, dtype)
        padded.append(g.call("aten::constant_pad_nd", self=typed_sequence, pad=pad, value=padding_value))
    return g.call("aten::stack", tensors=padded, dim=0 if batch_first else 1)


def _raise_ranks(g: GraphContext, rank: int, tensors: Sequence[Value]) -> list[Value]:
    return [g.call(f"aten::atleast_{rank}d", self=tensor) for tensor in tensors]


def _join_list(g: GraphContext, tensors: Value, dim: int) -> Value:
    """The tensors of a list joined along a dim; those of a lower rank are stacked along it."""
    rank = _rank(g, tensors)
    if rank > dim:
        return _concatenate_list(g, tensors, dim)
    stacked = _stack_list(g, tensors, rank)
    return stacked if rank == dim else g.op("Unsqueeze", stacked, axes=list(range(dim - rank)))


@onnx_symbolic("aten::hstack")
def hstack(g: GraphContext, tensors: list[Value] | Value) -> Value:
    tensors = _known_elements(tensors)
    if isinstance(tensors, Value):
        rank = _rank(g, tensors)
        return _stack_list(g, tensors, 0) if rank == 0 else _concatenate_list(g, tensors, min(rank - 1, 1))
    vectors = _raise_ranks(g, 1, tensors)
    return g.call("aten::cat", tensors=vectors, dim=0 if g.rank(vectors[0]) == 1 else 1)


@onnx_symbolic(["aten::vstack", "aten::row_stack"])
def vstack(g: GraphContext, tensors: list[Value] | Value) -> Value:
    tensors = _known_elements(tensors)
    if isinstance(tensors, Value):
        rank = _rank(g, tensors)
        if rank >= 2:
            return _concatenate_list(g, tensors, 0)
        stacked = _stack_list(g, tensors, 0)
        return stacked if rank == 1 else g.op("Unsqueeze", stacked, axes=[1])
    return g.call("aten::cat", tensors=_raise_ranks(g, 2, tensors), dim=0)


@onnx_symbolic("aten::dstack")
def dstack(g: GraphContext, tensors: list[Value] | Value) -> Value:
    tensors = _known_elements(tensors)
    if isinstance(tensors, Value):
        return _join_list(g, tensors, 2)
    return g.call("aten::cat", tensors=_raise_ranks(g, 3, tensors), dim=2)


@onnx_symbolic("aten::column_stack")
def column_stack(g: GraphContext, tensors: list[Value] | Value) -> Value:
    tensors = _known_elements(tensors)
    if isinstance(tensors, Value):
        return _join_list(g, tensors, 1)
    columns = [
        g.call("aten::reshape", self=tensor, shape=[-1, 1]) if known_rank(g, tensor) < 2 else tensor
        for tensor in tensors
    ]
    return g.call("aten::cat", tensors=columns, dim=1)
