"""Gradients of normalizations."""

from collections.abc import Sequence

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.moments import along_channels, cast_like, group_channels, trailing_axes, widen_halves
from ....compositions.size_arithmetic import known_rank, product, sizes_of


def select_gradients(mask: Sequence[bool], *gradients: Value | None) -> list[Value]:
    """The gradients that the mask selects; a captured operator has only these as results."""
    return [
        value for value, is_selected in zip(gradients, mask, strict=True) if is_selected and value is not None
    ]


def _through_moments(
    g: GraphContext, gradient: Value, normalised: Value, inverse: Value, axes: list[int]
) -> Value:
    """The gradient of the input from that of the normalised values; the moments depend on the input."""
    mean = g.op("ReduceMean", gradient, axes=axes, keepdims=1)
    product = g.op("ReduceMean", g.op("Mul", gradient, normalised), axes=axes, keepdims=1)
    # The mean and the deviation depend on every element, which takes their shares from the gradient.
    centred = g.op("Sub", g.op("Sub", gradient, mean), g.op("Mul", normalised, product))
    return g.op("Mul", centred, inverse)


def _sum_over(g: GraphContext, value: Value, axes: list[int]) -> Value:
    return g.op("ReduceSum", value, axes=axes, keepdims=0) if axes else value


@onnx_symbolic("aten::native_layer_norm_backward")
def native_layer_norm_backward(
    g: GraphContext,
    grad_out: Value,
    input: Value,
    normalized_shape: list[int | Value],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    output_mask: Sequence[bool],
) -> list[Value]:
    wide, (gradient, center, inverse, scale) = widen_halves(g, input, grad_out, mean, rstd, weight)
    assert gradient is not None
    assert inverse is not None
    rank, count = known_rank(g, input), len(normalized_shape)
    normalised = g.op("Mul", g.op("Sub", wide, center), inverse)
    outer = list(range(rank - count))
    of_weight = _sum_over(g, g.op("Mul", gradient, normalised), outer) if output_mask[1] else None
    of_bias = _sum_over(g, gradient, outer) if output_mask[2] else None
    of_input = None
    if output_mask[0]:
        scaled = gradient if scale is None else g.op("Mul", gradient, scale)
        of_input = _through_moments(g, scaled, normalised, inverse, trailing_axes(g, input, count))
    gradients = [
        None if value is None else cast_like(g, value, input) for value in (of_input, of_weight, of_bias)
    ]
    return select_gradients(output_mask, *gradients)


@onnx_symbolic("aten::native_batch_norm_backward")
def native_batch_norm_backward(
    g: GraphContext,
    grad_out: Value,
    input: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_invstd: Value | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> list[Value]:
    wide, (gradient, scale) = widen_halves(g, input, grad_out, weight)
    dtype = g.dtype(wide) or DataType.FLOAT
    if train:
        mean, inverse = save_mean, save_invstd
    else:
        assert running_var is not None
        mean = running_mean
        inverse = g.op("Reciprocal", g.op("Sqrt", g.op("Add", g.cast(running_var, dtype), eps)))
    if mean is None or inverse is None or gradient is None:
        raise g.refuse("the mean and the standard deviation must be given")
    axes = [axis for axis in range(known_rank(g, input)) if axis != 1]
    inverse = along_channels(g, g.cast(inverse, dtype), input)
    centred = g.op("Sub", wide, along_channels(g, g.cast(mean, dtype), input))
    normalised = g.op("Mul", centred, inverse)
    of_bias = g.op("ReduceSum", gradient, axes=axes, keepdims=0)
    of_weight = g.op("ReduceSum", g.op("Mul", gradient, normalised), axes=axes, keepdims=0)
    of_input = gradient
    if train:
        count = product(g, [size for axis, size in enumerate(sizes_of(g, input)) if axis != 1])
        number = g.cast(count, dtype) if isinstance(count, Value) else float(count)
        shares = [along_channels(g, g.op("Div", total, number), input) for total in (of_bias, of_weight)]
        # Running statistics are constants; those of the batch have their own gradients.
        of_input = g.op("Sub", g.op("Sub", gradient, shares[0]), g.op("Mul", normalised, shares[1]))
    if scale is not None:
        inverse = g.op("Mul", inverse, along_channels(g, scale, input))
    of_input = g.op("Mul", of_input, inverse)
    like = input if weight is None else weight
    gradients = cast_like(g, of_input, input), cast_like(g, of_weight, like), cast_like(g, of_bias, like)
    # Unlike other normalizations, this one has a result for a gradient that it need not compute, too.
    if g.node is not None and len(g.node.outputs) == len(gradients):
        return list(gradients)
    return select_gradients(output_mask, *gradients)


@onnx_symbolic("aten::native_group_norm_backward")
def native_group_norm_backward(
    g: GraphContext,
    grad_out: Value,
    input: Value,
    mean: Value,
    rstd: Value,
    weight: Value | None,
    N: int | Value,
    C: int | Value,
    HxW: int | Value,
    group: int,
    output_mask: Sequence[bool],
) -> list[Value]:
    wide, (gradient, *statistics, scale) = widen_halves(g, input, grad_out, mean, rstd, weight)
    assert gradient is not None
    center, inverse = (g.op("Unsqueeze", value, axes=[2]) for value in statistics)
    normalised = g.op("Mul", g.op("Sub", group_channels(g, wide, group), center), inverse)
    axes = [axis for axis in range(known_rank(g, input)) if axis != 1]
    of_weight = None
    if output_mask[1]:
        restored = g.call("aten::reshape_as", self=normalised, other=input)
        of_weight = cast_like(
            g, g.op("ReduceSum", g.op("Mul", gradient, restored), axes=axes, keepdims=0), input
        )
    of_bias = (
        cast_like(g, g.op("ReduceSum", gradient, axes=axes, keepdims=0), input) if output_mask[2] else None
    )
    of_input = None
    if output_mask[0]:
        scaled = gradient if scale is None else g.op("Mul", gradient, along_channels(g, scale, input))
        grouped_gradient = _through_moments(g, group_channels(g, scaled, group), normalised, inverse, [2])
        of_input = cast_like(g, g.call("aten::reshape_as", self=grouped_gradient, other=input), input)
    return select_gradients(output_mask, of_input, of_weight, of_bias)


@onnx_symbolic("aten::_weight_norm_interface_backward")
def _weight_norm_interface_backward(
    g: GraphContext, grad_w: Value, saved_v: Value, saved_g: Value, saved_norms: Value, dim: int
) -> list[Value]:
    """The gradients of `v` and `g` in `g * v / norm(v)`."""
    rank = known_rank(g, saved_v)
    axes = [axis for axis in range(rank) if axis != dim % rank]
    along = g.op("ReduceSum", g.op("Mul", grad_w, saved_v), axes=axes, keepdims=1)
    of_g = g.op("Div", along, saved_norms)
    orthogonal = g.op("Sub", grad_w, g.op("Mul", g.op("Div", saved_v, saved_norms), of_g))
    return [g.op("Mul", g.op("Div", saved_g, saved_norms), orthogonal), of_g]
