"""The bits of numbers: how many are set, and the same bits as another type."""

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.bits import reinterpret_bits
from ...compositions.integers import widen_integers
from ...compositions.size_arithmetic import Size, compute, known_rank, sizes_of

_BITS = 4
_COUNTS = [bin(digit).count("1") for digit in range(1 << _BITS)]


@onnx_symbolic("tf::PopulationCount")
def population_count(g: GraphContext, x: Value) -> Value:
    """Sum the bit counts of all 4-bit digits."""
    width = (g.dtype(x) or DataType.INT64).bitwidth
    rank = known_rank(g, x)
    digits = g.op("Unsqueeze", x, axes=[rank])
    shifts = g.constant(np.arange(0, width, _BITS), g.dtype(x))
    digits = g.call("aten::bitwise_right_shift", digits, shifts)
    # A shift keeps the sign of a negative number; the remainder makes its digits non-negative.
    digits = g.call("aten::remainder", g.cast(digits, DataType.INT64), 1 << _BITS)
    counts = g.op("Gather", g.constant(_COUNTS), digits)
    return g.cast(g.op("ReduceSum", counts, axes=[rank], keepdims=0), DataType.UINT8)


@onnx_symbolic("tf::CompareAndBitpack")
def compare_and_bitpack(g: GraphContext, input: Value, threshold: Value) -> Value:
    """One bit for each element, set if it is above the threshold; the first of eight is the highest bit."""
    rank = known_rank(g, input)
    sizes: list[Size] = sizes_of(g, input)
    first, second = (
        g.cast(value, DataType.INT32) if g.dtype(value) == DataType.BOOL else widen_integers(g, value)
        for value in (input, threshold)
    )
    is_above = g.call("aten::gt", first, second)
    octets = [*sizes[:-1], compute(g, "floordiv", sizes[-1], 8), 8]
    bits = g.call("aten::reshape", self=g.cast(is_above, DataType.INT32), shape=octets)
    weighted = g.op("Mul", bits, g.constant(1 << np.arange(7, -1, -1), DataType.INT32))
    return g.cast(g.op("ReduceSum", weighted, axes=[rank], keepdims=0), DataType.UINT8)


@onnx_symbolic("tf::Bitcast")
def bitcast(g: GraphContext, input: Value, type: DataType) -> Value:
    """The same bits as numbers of another type; a last dimension appears or disappears if widths differ."""
    return reinterpret_bits(g, input, type)
