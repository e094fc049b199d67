"""Initial states of recurrent layers."""

import numpy as np

from ...registration import GraphContext, Value

_KEEPING_ZERO = frozenset(
    "Cast Expand Gather Identity Reshape Slice Squeeze Tile Transpose Unsqueeze".split()
)


def drop_zero_state(g: GraphContext, state: Value | None) -> Value | None:
    """An initial state; None if it is zero, which is ONNX's default."""
    if state is None:
        return None
    source: Value | None = state
    node = state.producer()
    # These operators turn zeros into zeros, so only the first value matters.
    while node is not None and node.op_type in _KEEPING_ZERO:
        source = node.inputs[0]
        node = None if source is None else source.producer()
    if node is not None and node.op_type == "ConstantOfShape":
        content = node.attributes.get("value")
        return state if content is not None and np.any(content.value.numpy()) else None
    array = g.constant_value(source) if source is not None and g.is_foldable(source) else None
    return state if array is None or np.any(array) else None
