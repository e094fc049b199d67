"""Values that operator versions imply for an argument that they lack, if these differ from its default.

Each entry follows from the text of the operator's versions. Arguments that are not listed here were checked
too: `tests/symbolics/test_implied_arguments.py` lists every argument that some version added or removed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....registration import GraphContext, Value, default_registry


def _any_value(g: GraphContext, inputs: Sequence[Any], value: Any) -> bool:
    """For arguments without effect in the element types and modes of the versions that lack them."""
    return True


def _ones(g: GraphContext, inputs: Sequence[Any], value: Any) -> bool:
    """For steps along each axis, which are 1 in versions without them."""
    array = g.constant_value(value) if isinstance(value, Value) else np.asarray(value)
    return array is not None and bool(np.all(array == 1))


def _of_one_scale(g: GraphContext, inputs: Sequence[Any], value: Any) -> bool:
    """For the axis of quantization, which has no meaning if there is one scale for the whole tensor."""
    scale = inputs[1] if len(inputs) > 1 else None
    return not isinstance(scale, (list, tuple, np.ndarray)) and (
        not isinstance(scale, Value) or g.rank(scale) == 0
    )


def _false(g: GraphContext, inputs: Sequence[Any], value: Any) -> bool:
    """For a switch without a default, which is off in versions without it."""
    array = g.constant_value(value) if isinstance(value, Value) else np.asarray(value)
    return array is not None and not np.any(array)


imply = default_registry.imply

# Before 16 coordinates of regions are not shifted by half a pixel.
imply("RoiAlign", "coordinate_transformation_mode", "output_half_pixel")

# At 10 coordinates are scaled from the corner. The text does not define the nearest pixel; `before11::Resize`
# does, and no value of `nearest_mode` is known to be the same.
imply("Resize", "coordinate_transformation_mode", "asymmetric")
imply("Resize", "nearest_mode", accepts=lambda g, inputs, value: False)

# Before 13 there is one scale for the whole tensor.
imply("QuantizeLinear", "axis", accepts=_of_one_scale)
imply("DequantizeLinear", "axis", accepts=_of_one_scale)

# These apply to 8-bit floats, which the versions without them do not have.
imply("Cast", "saturate", accepts=_any_value)
imply("Cast", "round_mode", accepts=_any_value)
imply("CastLike", "saturate", accepts=_any_value)
imply("CastLike", "round_mode", accepts=_any_value)
imply("QuantizeLinear", "saturate", accepts=_any_value)

# Without them the step along each axis is 1.
imply("AveragePool", "dilations", accepts=_ones)
imply("LpPool", "dilations", accepts=_ones)
imply("MaxPool", "dilations", accepts=_ones)
imply("Slice", "steps", accepts=_ones)

# Versions 7 to 11 of Dropout drop nothing, so they need no seed.
imply("Dropout", "training_mode", accepts=_false)
imply("Dropout", "seed", accepts=_any_value)

# Later versions without these are for inference only.
imply("BatchNormalization", "is_test", 1)
imply("Dropout", "is_test", 1)

# Later versions always broadcast, and return each named output.
imply("Gemm", "broadcast", accepts=_any_value)
imply("GRU", "output_sequence", accepts=_any_value)
imply("LSTM", "output_sequence", accepts=_any_value)
imply("RNN", "output_sequence", accepts=_any_value)
