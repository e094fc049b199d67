"""Operators whose meaning changed: older versions written with the newest operators, and the reverse."""

from collections.abc import Callable
from typing import Any

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ....registration.functions.results import listed
from ...compositions.size_arithmetic import compute, known_rank, sizes_of
from ..support import below, by_axis, integers


def _register_softmax(op_type: str) -> None:
    """Softmax, LogSoftmax and Hardmax: below 13 over all dimensions from the axis on."""

    @onnx_symbolic(f"before13::{op_type}")
    def over_rows(g: GraphContext, input: Value, axis: int = 1) -> Value:
        rank = g.rank(input)
        if rank is not None and axis in (-1, rank - 1):
            return g.op(op_type, input, axis=-1)
        # Below 13 the sum runs over all dimensions from the axis on, as over the row of a matrix.
        flat = g.op("Flatten", input, axis=axis)
        result = g.op("Reshape", g.op(op_type, flat, axis=-1), g.op("Shape", input))
        result.shape = input.shape
        return result


for _op_type in ("Softmax", "LogSoftmax", "Hardmax"):
    _register_softmax(_op_type)


@onnx_symbolic("before11::Scatter")
def scatter(g: GraphContext, data: Value, indices: Value, updates: Value, axis: int = 0) -> Value:
    """ScatterElements since 11."""
    return g.op("ScatterElements", data, indices, updates, axis=axis)


@onnx_symbolic([f"before{opset}::BatchNormalization" for opset in (7, 9, 14)])
def batch_normalization_7(
    g: GraphContext,
    X: Value,
    scale: Value,
    B: Value,
    mean: Value,
    var: Value,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    is_test: int = 1,
    outputs: int = 1,
) -> Value:
    """Below 14 additional outputs mean training, and later versions lack them; only the first one is given.

    Below 9 the statistics may be per feature. Below 7 an attribute selects training; if it is left out,
    runtimes use inference mode.
    """
    if outputs > 1 or not (is_test or spatial):
        raise g.refuse("training mode as defined below version 14 is not supported")
    if not is_test:
        # onnxruntime's kernel of version 14 divides by another deviation than its older one.
        options = {"epsilon": epsilon, "momentum": momentum, "training_mode": 1}
        result, *_ = g.call_outputs("onnx::BatchNormalization", X, scale, B, mean, var, **options)
        return result
    if spatial:
        return g.op("BatchNormalization", X, scale, B, mean, var, epsilon=epsilon)
    root = g.op("Sqrt", g.op("Add", var, epsilon))
    centred = g.op("Div", g.op("Sub", X, mean), root)
    return g.op("Add", g.op("Mul", centred, scale), B)


@onnx_symbolic("onnx::BatchNormalization")
@below("BatchNormalization", 14, any_data=True)
def batch_normalization(
    g: GraphContext,
    X: Value,
    scale: Value,
    B: Value,
    input_mean: Value,
    input_var: Value,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> list[Value] | Value:
    """Below 14 training is composed from the statistics of the batch, which update the running ones."""
    if not training_mode:
        return g.op("BatchNormalization", X, scale, B, input_mean, input_var, epsilon=epsilon)
    rank = known_rank(g, X)
    axes = [0, *range(2, rank)]
    centre = g.op("ReduceMean", X, axes=axes, keepdims=1)
    centred = g.op("Sub", X, centre)
    spread = g.op("ReduceMean", g.op("Mul", centred, centred), axes=axes, keepdims=1)
    scaled = g.op("Div", centred, g.op("Sqrt", g.op("Add", spread, epsilon)))

    def column(value: Value) -> Value:
        return g.op("Reshape", value, [-1, *[1] * (rank - 2)]) if rank > 2 else value

    result = g.op("Add", g.op("Mul", scaled, column(scale)), column(B))
    running = []
    for old, new in ((input_mean, centre), (input_var, spread)):
        update = g.op("Mul", g.op("Reshape", new, [-1]), 1.0 - momentum)
        running.append(g.op("Add", g.op("Mul", old, momentum), update))
    return [result, *running]


@onnx_symbolic("before12::Dropout")
def dropout_10(g: GraphContext, data: Value, ratio: float = 0.5, outputs: int = 1) -> list[Value]:
    """Below 12 nothing is dropped, and the mask is all true; below 10 it has the data's type."""
    result = [g.op("Identity", data)]
    if outputs > 1:
        mask = g.call("aten::ones_like", data, DataType.BOOL)
        expected = g.expected[1].dtype if len(g.expected) > 1 else None
        result.append(g.cast(mask, expected) if expected is not None else mask)
    return result


@onnx_symbolic("onnx::Dropout")
@below("Dropout", 12, any_data=True)
def dropout(
    g: GraphContext,
    data: Value,
    ratio: Value | float | None = None,
    training_mode: Value | bool | None = None,
    seed: int | None = None,
) -> list[Value]:
    """Below 12: here training and the ratio may be inputs."""
    trains = None if training_mode is None else g.constant(training_mode, DataType.BOOL)
    trains_array = None if trains is None else g.constant_value(trains)
    if trains is None or (trains_array is not None and not trains_array.item()):
        return [g.op("Identity", data), g.call("aten::ones_like", data, DataType.BOOL)]
    dtype = g.dtype(data) or DataType.FLOAT
    chance = g.constant(0.5 if ratio is None else ratio, DataType.FLOAT)
    unit = g.call("composed::uniform", sizes_of(g, data), DataType.FLOAT)
    mask = g.op("Or", g.op("Not", g.op("Less", unit, chance)), g.op("Not", trains))
    factor = g.op("Where", trains, g.op("Div", 1.0, g.op("Sub", 1.0, chance)), 1.0)
    # In inference the factor is 1 and the mask is all true.
    scaled = g.op("Mul", data, g.cast(factor, dtype))
    return [g.call("composed::where", condition=mask, self=scaled, other=g.constant(0, dtype)), mask]


@onnx_symbolic("before20::DFT")
def dft_17(
    g: GraphContext, input: Value, dft_length: Value | None = None, axis: int = 1, **attributes: Any
) -> Value:
    """Its axis is an input since 20, with another default."""
    result: Value = g.op("DFT", input, dft_length, g.constant(axis), **attributes)
    return result


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


@onnx_symbolic("before21::GroupNormalization")
def group_normalization_18(
    g: GraphContext, X: Value, scale: Value, bias: Value, num_groups: int, epsilon: float = 1e-5
) -> Value:
    """Below 21 scale and bias are per group, since then per channel."""
    channels = compute(g, "floordiv", g.size(X, 1), num_groups)

    def of_channels(value: Value) -> Value:
        column = g.op("Unsqueeze", value, axes=[1])
        wide = g.op("Expand", column, g.stack([num_groups, channels]))
        return g.op("Reshape", wide, [-1])

    by_channel = of_channels(scale), of_channels(bias)
    return g.op("GroupNormalization", X, *by_channel, num_groups=num_groups, epsilon=epsilon)


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


@onnx_symbolic("before9::Scan")
def scan_8(
    g: GraphContext,
    initial_state_and_scan_inputs: list[Value],
    body: Any,
    num_scan_inputs: int,
    sequence_lens: Value | None = None,
    directions: list[int] | None = None,
    outputs: int = 1,
) -> list[Value]:
    """Below 9 Scan has a batch dimension and runs once for each element of the batch."""
    if sequence_lens is not None:
        raise g.refuse("sequences of different lengths are not supported")
    size = g.size(initial_state_and_scan_inputs[0], 0)
    # Each sequence of the batch runs by itself, so only one can be one Scan.
    if size != 1:
        raise g.refuse("a batch of more than one sequence is not supported")
    single = [g.op("Squeeze", value, axes=[0]) for value in initial_state_and_scan_inputs]
    results = g.op(
        "Scan",
        *single,
        body=body,
        num_scan_inputs=num_scan_inputs,
        scan_input_directions=directions,
        outputs=outputs,
    )
    return [g.op("Unsqueeze", value, axes=[0]) for value in listed(results)]
