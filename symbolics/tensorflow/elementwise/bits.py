"""The number of bits that are set in integers."""

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import known_rank

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
