"""BFLOAT16 below 13, where Cast does not support it: stored as FLOAT, rounded after every operator."""

import math

import numpy as np

from ...registration import (
    DataType,
    GraphContext,
    Value,
    dtypes,
    facts_of,
    held_in,
    holder_of,
    onnx_symbolic,
    state,
)

_BITS = 8
"""Bits of the significand, the hidden one included."""
_SMALLEST_NORMAL = 2.0**-126


@onnx_symbolic("onnx::Cast")
def cast(g: GraphContext, input: Value, to: int, saturate: int = 1) -> Value:
    dtype = dtypes.element_type(to)
    content = g.constant_value(input) if g.is_foldable(input) else None
    if g.dtype(input) == DataType.BFLOAT16:
        holder = holder_of(input)
        if holder is None and content is not None:
            holder = g.constant(content.astype(np.float32))
        if holder is None:
            raise g.refuse("inputs, outputs and sub-graphs in BFLOAT16 cannot be replaced by FLOAT")
        return g.cast(holder, dtype)
    if dtype != DataType.BFLOAT16:
        raise g.refuse(f"a Cast to {dtype.name} cannot be composed of other operators")
    if content is not None:
        return g.constant(content.astype(np.float32).astype(dtype.numpy()))
    return held_in(_round_to_bfloat16(g, g.cast(input, DataType.FLOAT)), dtype)


_MOVING = frozenset(
    "Concat Expand Flatten Gather Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split()
)


def _is_rounded(value: Value, depth: int = 8) -> bool:
    """Whether BFLOAT16 is known to represent all elements of a FLOAT tensor."""
    if facts_of(value).exact_in == DataType.BFLOAT16:
        return True
    node = value.producer()
    if node is None or depth == 0 or node.op_type not in _MOVING:
        return False
    sources = [source for source in node.inputs if source is not None and source.dtype == DataType.FLOAT]
    return all(_is_rounded(source, depth - 1) for source in sources)


def _round_to_bfloat16(g: GraphContext, value: Value) -> Value:
    """Round FLOAT to the nearest BFLOAT16, half to even, by adding and subtracting a large number.

    The large number is 1.5 times the power of two whose addition leaves a DOUBLE with the precision of
    BFLOAT16. For the power of two below a number see Rump, "Ultimately fast accurate summation", algorithm
    3.5.
    """
    # Operators that only move elements need no second rounding.
    if _is_rounded(value):
        return value
    x = g.cast(value, DataType.DOUBLE)
    scaled = g.op("Mul", x, 2.0**52 + 1)
    # Not scaled * (1 - 2**-53), because onnxruntime reads that factor as 1.
    below = g.op("Sub", scaled, g.op("Mul", scaled, 2.0**-53))
    power = g.op("Abs", g.op("Sub", scaled, below))
    power = g.op("Where", g.op("Less", power, _SMALLEST_NORMAL), _SMALLEST_NORMAL, power)
    large = g.op("Mul", power, 1.5 * 2.0 ** (53 - _BITS))
    nearest = g.op("Sub", g.op("Add", x, large), large)
    # Zero keeps its sign; infinity and NaN stay.
    signed = g.op("Where", g.op("Less", g.op("Abs", nearest), 2.0**-140), g.op("Mul", x, 0.0), nearest)
    finite = g.op("Less", g.op("Abs", x), math.inf)
    result = g.cast(g.op("Where", finite, signed, x), DataType.FLOAT)
    result.shape = value.shape
    return state(result, exact_in=DataType.BFLOAT16)
