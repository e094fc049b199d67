"""How many windows of a pooling there are with `ceil_mode`, which versions of onnx infer differently.

The text of the operators, onnxruntime and ATen leave out a window that begins in the padding at the end.
onnx's inference counts it below opset 22.
"""

from collections.abc import Collection, Sequence

import onnx_ir as ir

_COUNTS_ALL_BELOW = 22
WINDOWS = frozenset(("AveragePool", "LpPool", "MaxPool"))
"""Operators with `ceil_mode`."""


def end_padding(kernel: int, stride: int, pad: int, dilation: int) -> int:
    """The padding at the end with which rounding down counts the windows of `ceil_mode`, for any size.

    Args:
        pad: the padding at the end with `ceil_mode`.
    """
    # Less than a stride more completes the last window; less than a window more begins none in the padding.
    return min(dilation * (kernel - 1), pad + stride - 1)


def may_miscount(
    op_type: str, inputs: Sequence[ir.Value | None], attribute_names: Collection[str], opset: int
) -> bool:
    """Whether onnx may infer a size with more windows than a pooling has."""
    if op_type not in WINDOWS or opset >= _COUNTS_ALL_BELOW or "ceil_mode" not in attribute_names:
        return False
    shape = inputs[0].shape if inputs and inputs[0] is not None else None
    return shape is not None and any(isinstance(size, int) for size in shape[2:])
