"""Padding with a constant and with mirrored elements."""

import numpy as np

from ....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ...compositions.size_arithmetic import Size, compute, fold_size, known_rank, sizes_of
from .._common import flatten, integers, known_elements, range_vector


def _amounts(g: GraphContext, paddings: Value) -> list[int] | Value:
    """Convert paddings to ONNX's pads: all begins, then all ends."""
    constant_amounts = integers(g, paddings)
    if constant_amounts is not None:
        return [*constant_amounts[::2], *constant_amounts[1::2]]
    return g.op("Reshape", g.op("Transpose", g.cast(paddings, DataType.INT64), perm=[1, 0]), [-1])


def _pad(g: GraphContext, input: Value, paddings: Value, filler: Value | Number) -> Value:
    amounts = _amounts(g, paddings)
    if isinstance(amounts, list) and not any(amounts):
        return input
    dtype = g.dtype(input)
    # INT32, which runtimes do pad, holds all narrower integers and BOOL.
    if dtype is not None and not g.has_kernel("Pad", input):
        padded_int32 = _pad(
            g, g.cast(input, DataType.INT32), paddings, g.cast(g.constant(filler, dtype), DataType.INT32)
        )
        return g.cast(padded_int32, dtype)
    return g.op("Pad", input, pads=amounts, constant_value=filler, mode="constant")


@onnx_symbolic("tf::Pad")
def pad(g: GraphContext, input: Value, paddings: Value) -> Value:
    zero: Number = (
        False if g.dtype(input) == DataType.BOOL else 0 if g.dtype(input) in dtypes.INTEGERS else 0.0
    )
    return _pad(g, input, paddings, zero)


@onnx_symbolic("tf::PadV2")
def pad_v2(g: GraphContext, input: Value, paddings: Value, constant_values: Value) -> Value:
    array = g.constant_value(constant_values)
    if g.dtype(input) == DataType.STRING:
        # Runtimes do not pad strings: the positions of the elements are padded, and the filler comes last.
        flat = g.op("Concat", flatten(g, input), g.op("Reshape", constant_values, [1]), axis=0)
        last = g.op("Size", input)
        positions = g.call(
            "aten::reshape", self=range_vector(g, fold_size(g, last)), shape=sizes_of(g, input)
        )
        return g.op("Gather", flat, _pad(g, positions, paddings, last), axis=0)
    return _pad(g, input, paddings, constant_values if array is None else array.reshape(()).item())


@onnx_symbolic("tf::MirrorPad")
def mirror_pad(g: GraphContext, input: Value, paddings: Value, mode: str) -> Value:
    """REFLECT does not repeat the edge; SYMMETRIC does, which no mode of Pad supports."""
    amounts = _amounts(g, paddings)
    if isinstance(amounts, list) and not any(amounts):
        return input
    if mode == "REFLECT" and g.dtype(input) in dtypes.FLOATS:
        return g.op("Pad", input, pads=amounts, mode="reflect")
    rank = known_rank(g, input)
    pairs = known_elements(g, g.op("Reshape", paddings, [-1]), 2 * rank)
    for dim in range(rank):
        before, after = pairs[2 * dim], pairs[2 * dim + 1]
        if before == 0 and after == 0:
            continue
        positions = _mirror_positions(g, g.size(input, dim), before, after, int(mode == "REFLECT"))
        input = g.op("Gather", input, positions, axis=dim)
    return input


@onnx_symbolic("tf::MirrorPadGrad")
def mirror_pad_grad(g: GraphContext, input: Value, paddings: Value, mode: str) -> Value:
    """The gradients of all copies of an element are added."""
    rank = known_rank(g, input)
    pairs = known_elements(g, g.op("Reshape", paddings, [-1]), 2 * rank)
    for dim in range(rank):
        before, after = pairs[2 * dim], pairs[2 * dim + 1]
        if before == 0 and after == 0:
            continue
        sizes = sizes_of(g, input)
        sizes[dim] = compute(g, "sub", sizes[dim], compute(g, "add", before, after))
        positions = _mirror_positions(g, sizes[dim], before, after, int(mode == "REFLECT"))
        zeros = g.call("aten::zeros", size=sizes, dtype=g.dtype(input))
        input = g.call("aten::index_add", zeros, dim, positions, input)
    return input


def _mirror_positions(g: GraphContext, size: Size, before: Size, after: Size, edge: int) -> Value:
    """The source positions of the elements; `edge` is 1 if the edge is not repeated."""
    if all(isinstance(item, int) for item in (size, before, after)):
        # Bound the constants that a small file can ask for.
        g.reserve(max(0, int(before) + int(size) + int(after)))  # type: ignore[arg-type]
        numbers = np.arange(-int(before), int(size) + int(after))  # type: ignore[arg-type]
        numbers = np.where(numbers < 0, -1 + edge - numbers, numbers)
        return g.constant(np.where(numbers >= size, 2 * int(size) - 1 - edge - numbers, numbers))  # type: ignore[arg-type,operator]
    start = compute(g, "mul", before, -1)
    positions = g.call("sym::range", start=start, end=compute(g, "add", size, after))
    positions = g.op(
        "Where", g.op("Less", positions, 0), g.op("Sub", g.constant(edge - 1), positions), positions
    )
    end = compute(g, "sub", compute(g, "mul", size, 2), 1 + edge)
    beyond = g.op("Greater", positions, g.constant(compute(g, "sub", size, 1)))
    return g.op("Where", beyond, g.op("Sub", g.constant(end), positions), positions)
