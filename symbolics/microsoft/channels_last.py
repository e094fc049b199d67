"""Operators on images with channels last, and those that onnxruntime fuses in diffusion models."""

from typing import Any

from ...registration import GraphContext, Value
from ..compositions.size_arithmetic import known_rank
from . import microsoft_symbolic


def move_channels(g: GraphContext, image: Value, first: bool) -> Value:
    """Move the last dimension behind the batch (`first`), or the second one to the end."""
    rank = known_rank(g, image)
    others = range(1, rank - 1) if first else range(2, rank)
    return g.op("Transpose", image, perm=[0, rank - 1, *others] if first else [0, *others, 1])


@microsoft_symbolic("NhwcConv")
def nhwc_conv(g: GraphContext, X: Value, W: Value, B: Value | None = None, **attributes: Any) -> Value:
    """The weight has its input channels last, as `onnxruntime/transformers/fusion_nhwc_conv.py` writes it."""
    image, weight = (move_channels(g, value, first=True) for value in (X, W))
    result: Value = g.op("Conv", image, weight, B, **attributes)
    return move_channels(g, result, first=False)


@microsoft_symbolic("NhwcMaxPool")
def nhwc_max_pool(g: GraphContext, x: Value, **attributes: Any) -> Value:
    pooled: Value = g.op("MaxPool", move_channels(g, x, first=True), **attributes)
    return move_channels(g, pooled, first=False)


@microsoft_symbolic("GroupNorm")
def group_norm(
    g: GraphContext,
    X: Value,
    gamma: Value,
    beta: Value,
    groups: int,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> Value:
    """The activation is 0 for none, or 1 for SiLU; scale and bias may be FLOAT for a half-precision image."""
    image = move_channels(g, X, first=True) if channels_last else X
    dtype = g.dtype(X)
    scale, bias = (value if dtype is None else g.cast(value, dtype) for value in (gamma, beta))
    normalised = g.op("GroupNormalization", image, scale, bias, num_groups=groups, epsilon=epsilon)
    if activation == 1:
        normalised = g.op("Mul", normalised, g.op("Sigmoid", normalised))
    return move_channels(g, normalised, first=False) if channels_last else normalised


@microsoft_symbolic("SkipGroupNorm")
def skip_group_norm(
    g: GraphContext,
    X: Value,
    gamma: Value,
    beta: Value,
    skip: Value,
    bias: Value | None = None,
    groups: int = 1,
    activation: int = 0,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> list[Value]:
    """The second output is the sum before the norm; a skip of rank 2 has a row for each batch entry."""
    if not channels_last:
        raise g.refuse("its image must have its channels last")
    if known_rank(g, skip) == 2:
        skip = g.op("Unsqueeze", skip, axes=[1, 2])
    total = g.op("Add", X, skip)
    if bias is not None:
        total = g.op("Add", total, bias)
    return [group_norm(g, total, gamma, beta, groups, activation, channels_last, epsilon), total]


@microsoft_symbolic("BiasAdd")
def bias_add(g: GraphContext, X: Value, bias: Value, skip: Value) -> Value:
    return g.op("Add", g.op("Add", X, bias), skip)


@microsoft_symbolic("BiasSplitGelu")
def bias_split_gelu(g: GraphContext, X: Value, bias: Value) -> Value:
    left, right = g.op("Split", g.op("Add", X, bias), axis=-1, num_outputs=2, outputs=2)
    return g.op("Mul", left, g.op("Gelu", right))
