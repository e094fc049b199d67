"""Sizes, bounds and axes that a file has as numbers, where operators take vectors.

ONNX's checker does not look at the rank of such an input, and onnxruntime takes numbers for some of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx_ir import Value

from ....registration import GraphContext
from ....registration.emission.folding import MAXIMUM_ELEMENTS

_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
VECTORS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys([f"Reduce{name}" for name in _REDUCTIONS], (1,)),
    "AffineGrid": (1,),
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "MaxUnpool": (2,),
    "Pad": (1, 3),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""The positions of inputs that are vectors."""


def with_vectors(g: GraphContext, op_type: str, inputs: Sequence[Value | None]) -> list[Value | None]:
    """The inputs of an operator, with a number in the place of a vector as a vector of one element."""
    result = list(inputs)
    for position in VECTORS.get(op_type, ()):
        value = inputs[position] if position < len(inputs) else None
        if value is not None and value.shape is not None and len(value.shape) == 0:
            result[position] = _vector(g, value)
    return result


def _vector(g: GraphContext, value: Value) -> Value:
    if value.const_value is not None and value.const_value.size <= MAXIMUM_ELEMENTS:
        return g.constant(np.atleast_1d(value.const_value.numpy()))
    return g.op("Reshape", value, [1])
