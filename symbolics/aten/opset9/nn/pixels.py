"""Rearrangements of channels and pixels: pixel_shuffle, pixel_unshuffle, channel_shuffle."""

from collections.abc import Sequence

import numpy as np

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import Size, compute, product, sizes_of


@onnx_symbolic("aten::pixel_shuffle")
def pixel_shuffle(g: GraphContext, self: Value, upscale_factor: int) -> Value:
    """DepthToSpace, where there is a kernel."""
    [*batch, channels, height, width] = sizes_of(g, self)
    r = upscale_factor
    depth = compute(g, "floordiv", channels, r * r)
    sizes = [depth, compute(g, "mul", height, r), compute(g, "mul", width, r)]
    if not g.has_kernel("DepthToSpace", self) or isinstance(channels, Value):
        blocks = g.call("aten::reshape", self=self, shape=[product(g, batch), depth, r, r, height, width])
        blocks = g.op("Transpose", blocks, perm=[0, 1, 4, 2, 5, 3])
        return g.call("aten::reshape", self=blocks, shape=[*batch, *sizes])
    result = g.op("DepthToSpace", _as_images(g, self), blocksize=r, mode="CRD")
    return _from_images(g, result, batch, sizes)


@onnx_symbolic("aten::pixel_unshuffle")
def pixel_unshuffle(g: GraphContext, self: Value, downscale_factor: int) -> Value:
    """SpaceToDepth, where there is a kernel."""
    [*batch, channels, height, width] = sizes_of(g, self)
    r = downscale_factor
    depth = compute(g, "mul", channels, r * r)
    sizes = [depth, compute(g, "floordiv", height, r), compute(g, "floordiv", width, r)]
    if not g.has_kernel("SpaceToDepth", self) or isinstance(channels, Value):
        shape = [product(g, batch), channels, sizes[1], r, sizes[2], r]
        blocks = g.call("aten::reshape", self=self, shape=shape)
        blocks = g.op("Transpose", blocks, perm=[0, 1, 3, 5, 2, 4])
        return g.call("aten::reshape", self=blocks, shape=[*batch, *sizes])
    result = g.op("SpaceToDepth", _as_images(g, self), blocksize=r)
    g.reserve(channels, r, r)
    # SpaceToDepth puts the position in the block before the channel, and torch after it.
    order = np.arange(channels * r * r).reshape(r, r, channels).transpose(2, 0, 1).reshape(-1)
    result = g.op("Gather", result, order.tolist(), axis=1)
    return _from_images(g, result, batch, sizes)


def _as_images(g: GraphContext, self: Value) -> Value:
    """The value reshaped to exactly one batch dimension."""
    sizes = sizes_of(g, self)
    if len(sizes) == 3:
        return g.op("Unsqueeze", self, axes=[0])
    return self if len(sizes) == 4 else g.call("aten::reshape", self=self, shape=[-1, *sizes[-3:]])


def _from_images(g: GraphContext, images: Value, batch: Sequence[Size], sizes: Sequence[Size]) -> Value:
    if len(batch) == 0:
        return g.op("Squeeze", images, axes=[0])
    return images if len(batch) == 1 else g.call("aten::reshape", self=images, shape=[*batch, *sizes])


@onnx_symbolic(["aten::channel_shuffle", "aten::native_channel_shuffle"])
def channel_shuffle(g: GraphContext, self: Value, groups: int | Value) -> Value:
    """Interleave the channels of all groups."""
    if isinstance(groups, int) and groups < 1:
        raise g.refuse(f"it has {groups} groups")
    [batch, channels, *spatial] = sizes_of(g, self)
    inner = product(g, spatial)
    parts = [batch, groups, compute(g, "floordiv", channels, groups), inner]
    swapped = g.op("Transpose", g.call("aten::reshape", self=self, shape=parts), perm=[0, 2, 1, 3])
    return g.call("aten::reshape", self=swapped, shape=[batch, channels, *spatial])
