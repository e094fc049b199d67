"""Converts scalars to vectors where an operator needs a vector of sizes, bounds or axes.

ONNX's checker does not check the rank of such inputs, and onnxruntime accepts scalars for some of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx_ir import Value

from .....registration import GraphContext
from .....registration.inference.folding import MAXIMUM_ELEMENTS
from .....registration.validity.ranks import VECTORS


def with_vectors(g: GraphContext, op_type: str, inputs: Sequence[Value | None]) -> list[Value | None]:
    """Return the inputs of an operator; a scalar that should be a vector becomes a vector of one element."""
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
