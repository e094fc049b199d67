"""The smallest values allowed for attributes that are sizes, steps or counts, by ONNX's documentation."""

from __future__ import annotations

from typing import Any

_WINDOWS = (
    "AveragePool Conv ConvInteger ConvTranspose DeformConv LpPool MaxPool MaxUnpool QLinearConv".split()
)
_OF_WINDOWS = {"dilations": 1, "group": 1, "kernel_shape": 1, "p": 1, "strides": 1}
_LEAST: dict[str, dict[str, int]] = {
    **dict.fromkeys(_WINDOWS, _OF_WINDOWS),
    "ConvTranspose": {**_OF_WINDOWS, "output_padding": 0, "output_shape": 0},
    "Col2Im": {"dilations": 1, "pads": 0, "strides": 1},
    "DeformConv": {**_OF_WINDOWS, "offset_group": 1},
    "DepthToSpace": {"blocksize": 1},
    "GRU": {"hidden_size": 1},
    "GatherND": {"batch_dims": 0},
    "GlobalLpPool": {"p": 1},
    "GroupNormalization": {"num_groups": 1},
    "LRN": {"size": 1},
    "LSTM": {"hidden_size": 1},
    "LpNormalization": {"p": 1},
    "MaxRoiPool": {"pooled_shape": 1},
    "Multinomial": {"sample_size": 1},
    "RNN": {"hidden_size": 1},
    "RoiAlign": {"output_height": 1, "output_width": 1, "sampling_ratio": 0},
    "RotaryEmbedding": {"num_heads": 0, "rotary_embedding_dim": 0},
    "SpaceToDepth": {"blocksize": 1},
    "Split": {"num_outputs": 1, "split": 0},
}


def least_number(op_type: str, attribute: str) -> int | None:
    """The least number that an attribute may be, or have in a list; None if there is none."""
    return _LEAST.get(op_type, {}).get(attribute)


def is_below(value: Any, least: int) -> bool:
    """Whether an attribute is a number below another, or has such numbers."""
    return min((value,) if isinstance(value, (int, float)) else value, default=least) < least
