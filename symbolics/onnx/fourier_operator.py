"""DFT: a computed axis, the axis as an attribute below 20, and a product with a matrix below 17."""

from collections.abc import Callable
from typing import Any

from ...registration import GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import known_rank
from .support import below, by_axis, integers


@below("DFT", 20)
def dft(
    g: GraphContext,
    input: Value,
    dft_length: Value | None = None,
    axis: Value | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    """Below 20: only a constant axis."""
    axes = [-2] if axis is None else integers(g, axis)
    if axes is None:
        return _dft_by_axis(g, dft, input, dft_length, axis, inverse, onesided)
    [dim] = axes
    rank = g.rank(input)
    if dim < 0:
        if rank is None:
            raise g.refuse(
                "the rank of its input is unknown, and its axis counts from the end", first_opset=20
            )
        dim += rank
    return g.op("DFT", input, dft_length, axis=dim, inverse=inverse, onesided=onesided)


@onnx_symbolic("before20::DFT")
def dft_17(
    g: GraphContext, input: Value, dft_length: Value | None = None, axis: int = 1, **attributes: Any
) -> Value:
    """Its axis is an input since 20, with another default."""
    result: Value = g.op("DFT", input, dft_length, g.constant(axis), **attributes)
    return result


@below("DFT", 17)
def composed_dft(
    g: GraphContext,
    input: Value,
    dft_length: Value | None = None,
    axis: Value | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    """Below 17: a product with the matrix of the transform."""
    rank = known_rank(g, input)
    axes = [-2] if axis is None else integers(g, axis)
    if axes is None:
        return _dft_by_axis(g, composed_dft, input, dft_length, axis, inverse, onesided)
    dim = g.axis(axes[0], rank)
    input_shape = g.shape(input)
    if input_shape is None or input_shape[-1] not in (1, 2):
        raise g.refuse("the last dimension must be known: 1 for real, 2 for complex numbers", first_opset=17)
    length = integers(g, dft_length) if dft_length is not None else None
    if dft_length is not None and length is None:
        raise g.refuse("its length must be constant", first_opset=17)
    count = length[0] if length is not None else g.size(input, dim)
    exchanged = g.call("aten::movedim", self=input, source=dim, destination=rank - 2)
    if length is not None:
        exchanged = _fit_length(g, exchanged, rank - 2, length[0])
    if onesided and inverse:
        raise g.refuse("the inverse transform of a one-sided spectrum is not supported", first_opset=17)
    variant = "r2c" if input_shape[-1] == 1 else "c2c"
    power = -1.0 if inverse else 0.0
    if variant == "r2c":
        zeros = g.op("Mul", exchanged, 0.0)
        # The composition takes pairs; real numbers have an imaginary part of 0.
        exchanged = g.op("Concat", exchanged, zeros, axis=rank - 1)
    result = g.call("composed::dft", exchanged, count, "c2c", bool(inverse), power, bool(onesided))
    return g.call("aten::movedim", self=result, source=rank - 2, destination=dim)


def _dft_by_axis(
    g: GraphContext,
    transform: Callable[..., Value],
    input: Value,
    dft_length: Value | None,
    axis: Value | None,
    inverse: int,
    onesided: int,
) -> Value:
    """Transform along each axis, and select the result of the computed one."""
    if onesided or dft_length is not None or axis is None:
        raise g.refuse("its axis must be constant", first_opset=20)
    count = known_rank(g, input) - 1
    candidates = [transform(g, input, None, g.constant(dim), inverse) for dim in range(count)]
    return by_axis(g, g.op("Where", g.op("Less", axis, 0), g.op("Add", axis, 1), axis), candidates)


def _fit_length(g: GraphContext, value: Value, dim: int, length: int) -> Value:
    """Crop or zero-pad one dimension."""
    size = g.size(value, dim)
    if not isinstance(size, int):
        raise g.refuse("the size of the transformed dimension must be known", first_opset=17)
    if size >= length:
        return g.call("aten::slice", self=value, dim=dim, start=0, end=length)
    rank = known_rank(g, value)
    ends = [length - size if i == dim else 0 for i in range(rank)]
    return g.call("composed::pad", self=value, begins=[0] * rank, ends=ends, value=0.0)
