"""Packed sequences: packing, padding, and recurrent layers over them.

A packed sequence has the elements of several sequences, time first, the longest sequence first, and
`batch_sizes`, the number of sequences that reach each step (torch.nn.utils.rnn). ONNX has no packed
sequences; its recurrent operators take padded sequences and lengths, as the domain `packed` does. The pass
`fuse_packed_sequences` rewrites most uses to that domain; the others are composed here.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ....compositions.size_arithmetic import (
    Size,
    compute,
    dimension,
    fold_size,
    known_rank,
    same_size,
    where_true,
)


@onnx_symbolic("packed::longest")
def longest(g: GraphContext, lengths: Value) -> Value:
    """The length of the longest sequence, as a number."""
    return g.op("ReduceMax", lengths, axes=[0], keepdims=0)


@onnx_symbolic("packed::positions")
def positions(g: GraphContext, count: int | Value) -> Value:
    """The numbers from 0 to `count - 1`, INT64 `[count]`."""
    count = fold_size(g, count)
    if isinstance(count, int):
        g.reserve(count)
        return g.constant(np.arange(count, dtype=np.int64))
    return g.call("sym::range", start=0, end=count)


@onnx_symbolic("packed::mask")
def mask(g: GraphContext, lengths: Value, count: int | Value) -> Value:
    """A mask of the elements that are not padding, BOOL `[count, batch]`."""
    steps = g.call("packed::positions", count=count)
    if not g.has("Less", dtype=DataType.INT64):
        steps, lengths = g.cast(steps, DataType.DOUBLE), g.cast(lengths, DataType.DOUBLE)
    return g.op("Less", g.op("Unsqueeze", steps, axes=[1]), g.op("Unsqueeze", lengths, axes=[0]))


@onnx_symbolic("packed::chosen")
def chosen(g: GraphContext, mask: Value, self: Value, other: Value | Number) -> Value:
    """`self` where the mask is true, else `other`.

    Opsets without Where multiply by 1 and 0, so both must be finite.
    """
    if g.has("Where"):
        return g.op("Where", mask, self, g.constant(other, g.dtype(self)))
    dtype = g.dtype(self) or DataType.FLOAT
    masked = g.op("Mul", self, g.cast(mask, dtype))
    if not isinstance(other, Value) and other == 0:
        return masked
    replacement = g.op("Mul", g.cast(g.op("Not", mask), dtype), g.constant(other, dtype))
    return g.op("Add", masked, replacement)


@onnx_symbolic("packed::head")
def head(g: GraphContext, self: Value, count: Value) -> Value:
    """The first elements along the first dimension, which has at least as many."""
    if g.has("Slice", "steps"):
        return g.op("Slice", self, starts=[0], ends=[count], axes=[0])
    return g.op("Gather", self, g.call("packed::positions", count=count), axis=0)


def _resize(g: GraphContext, self: Value, count: Size) -> Value:
    """Crop or extend the first dimension to a size; the new elements are arbitrary."""
    size, shape = g.size(self, 0), g.shape(self)
    if shape is not None and same_size(shape[0], dimension(count)):
        return self
    if isinstance(size, int) and isinstance(count, int):
        g.reserve(count)
        return g.op("Gather", self, np.minimum(np.arange(count), size - 1), axis=0)
    return g.call("packed::resized", self=self, count=count)


@onnx_symbolic("packed::resized")
def composed_resize(g: GraphContext, self: Value, count: int | Value) -> Value:
    """Crop the first dimension to a size, or extend it by repeating its elements."""
    if not g.has("Where"):
        first = g.op("Slice", self, starts=[0], ends=[1], axes=[0])
        # `count` copies are enough whatever the size is.
        added = g.op("Tile", first, [count, *[1] * (known_rank(g, self) - 1)])
        return g.call("packed::head", self=g.op("Concat", self, added, axis=0), count=g.constant(count))
    steps = g.call("packed::positions", count=count)
    last = g.constant(compute(g, "sub", g.size(self, 0), 1), DataType.INT64)
    return g.op("Gather", self, g.op("Where", g.op("Less", steps, last), steps, last), axis=0)


def _swap_if(g: GraphContext, self: Value, swap: bool) -> Value:
    """The value, with its first two dimensions swapped on request."""
    if not swap:
        return self
    return g.op("Transpose", self, perm=[1, 0, *range(2, known_rank(g, self))])


@onnx_symbolic("packed::pad")
def pad(
    g: GraphContext,
    input: Value,
    lengths: Value,
    batch_first: bool,
    padding_value: Number,
    total_length: int | Value | None,
) -> Value:
    """Crop or extend time-major padded sequences, and replace the padding: `pad_packed_sequence`.

    Without `total_length` the result has the length of the longest sequence.
    """
    if total_length is None:
        count: Size = g.call("packed::longest", lengths=lengths)
        input = g.call("packed::head", self=input, count=count)
    else:
        count = fold_size(g, total_length)
        input = _resize(g, input, count)
    valid = g.call("packed::mask", lengths=lengths, count=count)
    trailing_axes = list(range(2, known_rank(g, input)))
    valid = g.op("Unsqueeze", valid, axes=trailing_axes) if trailing_axes else valid
    result = g.call("packed::chosen", mask=valid, self=input, other=padding_value)
    return _swap_if(g, result, batch_first)


def _gather_valid(g: GraphContext, padded: Value, mask: Value) -> Value:
    """The elements of time-major sequences at which a mask `[length, batch]` is true."""
    flat = g.call("aten::flatten", self=padded, start_dim=0, end_dim=1)
    return g.op("Gather", flat, where_true(g, g.op("Reshape", mask, [-1])), axis=0)


@onnx_symbolic("aten::_pack_padded_sequence")
def _pack_padded_sequence(g: GraphContext, input: Value, lengths: Value, batch_first: bool) -> list[Value]:
    padded = _swap_if(g, input, batch_first)
    valid = g.call("packed::mask", lengths=lengths, count=g.size(padded, 0))
    sizes = g.op("ReduceSum", g.cast(valid, DataType.INT64), axes=[1], keepdims=0)
    sizes = g.call("packed::head", self=sizes, count=g.call("packed::longest", lengths=lengths))
    return [_gather_valid(g, padded, valid), sizes]


def _unpack(g: GraphContext, data: Value, batch_sizes: Value) -> tuple[Value, Value, Value]:
    """The time-major padded sequences, their lengths, and the mask of elements that are not padding."""
    batch = g.op("Squeeze", g.op("Gather", batch_sizes, [0], axis=0), axes=[0])
    numbers = g.op("Unsqueeze", g.call("packed::positions", count=batch), axes=[0])
    valid = g.op("Less", numbers, g.op("Unsqueeze", batch_sizes, axes=[1]))
    lengths = g.op("ReduceSum", g.cast(valid, DataType.INT64), axes=[0], keepdims=0)
    before = g.op("Sub", g.call("aten::cumsum", self=batch_sizes, dim=0), batch_sizes)
    # A packed sequence has the elements of a step side by side, after all earlier steps.
    index = g.op("Add", g.op("Unsqueeze", before, axes=[1]), numbers)
    # Padding reads element 0, which always exists, because an index must not be out of range.
    padded = g.op("Gather", data, g.op("Where", valid, index, 0), axis=0)
    return padded, lengths, valid


@onnx_symbolic("aten::_pad_packed_sequence")
def _pad_packed_sequence(
    g: GraphContext,
    data: Value,
    batch_sizes: Value,
    batch_first: bool,
    padding_value: Number,
    total_length: int | Value,
) -> list[Value]:
    padded, lengths, _ = _unpack(g, data, batch_sizes)
    return [g.call("packed::pad", padded, lengths, batch_first, padding_value, total_length), lengths]


def _over_packed(name: str) -> Callable[..., list[Value]]:
    def recurrent(
        g: GraphContext, data: Value, batch_sizes: Value, hx: Value | list[Value], **layers: Any
    ) -> list[Value]:
        padded, lengths, valid = _unpack(g, data, batch_sizes)
        output, *states = g.call_outputs(f"packed::{name}", input=padded, lengths=lengths, hx=hx, **layers)
        return [_gather_valid(g, output, valid), *states]

    return recurrent


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    onnx_symbolic(f"aten::{_name}.data")(_over_packed(_name))
