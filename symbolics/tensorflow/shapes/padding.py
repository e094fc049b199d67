"""Padding with a constant and with mirrored elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ...compositions.size_arithmetic import Size, compute, known_rank
from .._common import elements, integers


def _amounts(g: GraphContext, paddings: Value) -> list[int] | Value:
    """Convert paddings to ONNX's pads: all begins, then all ends."""
    known = integers(g, paddings)
    if known is not None:
        return [*known[::2], *known[1::2]]
    return g.op("Reshape", g.op("Transpose", g.cast(paddings, DataType.INT64), perm=[1, 0]), [-1])


def _padded(g: GraphContext, input: Value, paddings: Value, filler: Value | Number) -> Value:
    amounts = _amounts(g, paddings)
    if isinstance(amounts, list) and not any(amounts):
        return input
    dtype = g.dtype(input)
    if dtype is not None and not g.has_kernel("Pad", input):
        wide = _padded(
            g, g.cast(input, DataType.INT32), paddings, g.cast(g.constant(filler, dtype), DataType.INT32)
        )
        return g.cast(wide, dtype)
    return g.op("Pad", input, pads=amounts, constant_value=filler, mode="constant")


def _plain(g: GraphContext, value: Value) -> Any:
    """The number in a constant; a computed one is returned unchanged."""
    array = g.constant_value(value)
    return value if array is None else array.reshape(()).item()


@onnx_symbolic("tf::Pad")
def pad(g: GraphContext, input: Value, paddings: Value) -> Value:
    zero: Number = (
        False if g.dtype(input) == DataType.BOOL else 0 if g.dtype(input) in dtypes.INTEGERS else 0.0
    )
    return _padded(g, input, paddings, zero)


@onnx_symbolic("tf::PadV2")
def pad_v2(g: GraphContext, input: Value, paddings: Value, constant_values: Value) -> Value:
    return _padded(g, input, paddings, _plain(g, constant_values))


@onnx_symbolic("tf::MirrorPad")
def mirror_pad(g: GraphContext, input: Value, paddings: Value, mode: str) -> Value:
    """REFLECT does not repeat the edge; SYMMETRIC does, which no mode of Pad supports."""
    amounts = _amounts(g, paddings)
    if isinstance(amounts, list) and not any(amounts):
        return input
    if mode == "REFLECT" and g.dtype(input) in dtypes.FLOATS:
        return g.op("Pad", input, pads=amounts, mode="reflect")
    rank = known_rank(g, input)
    pairs = elements(g, g.op("Reshape", paddings, [-1]), 2 * rank)
    assert pairs is not None
    for at in range(rank):
        before, behind = pairs[2 * at], pairs[2 * at + 1]
        if before == 0 and behind == 0:
            continue
        places = _mirrored(g, g.size(input, at), before, behind, int(mode == "REFLECT"))
        input = g.op("Gather", input, places, axis=at)
    return input


def _mirrored(g: GraphContext, size: Size, before: Size, behind: Size, edge: int) -> Value:
    """The source positions of the elements; `edge` is 1 if the edge is not repeated."""
    if all(isinstance(item, int) for item in (size, before, behind)):
        g.reserve(max(0, int(before) + int(size) + int(behind)))  # type: ignore[arg-type]
        numbers = np.arange(-int(before), int(size) + int(behind))  # type: ignore[arg-type]
        numbers = np.where(numbers < 0, -1 + edge - numbers, numbers)
        return g.constant(np.where(numbers >= size, 2 * int(size) - 1 - edge - numbers, numbers))  # type: ignore[arg-type,operator]
    start = compute(g, "mul", before, -1)
    places = g.call("sym::range", start=start, end=compute(g, "add", size, behind))
    places = g.op("Where", g.op("Less", places, 0), g.op("Sub", g.constant(edge - 1), places), places)
    end = compute(g, "sub", compute(g, "mul", size, 2), 1 + edge)
    beyond = g.op("Greater", places, g.constant(compute(g, "sub", size, 1)))
    return g.op("Where", beyond, g.op("Sub", g.constant(end), places), places)
