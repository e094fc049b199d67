"""Forms of Clip, and of Max with a constant."""

from typing import Any

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from .arithmetic import make_number, require_float


@onnx_symbolic("form::Max.relu")
def max_relu(g: GraphContext, data_0: list[Value]) -> Value:
    """Relu of the distance to a constant, plus the constant, which is at most 256."""
    constants = [value for value in data_0 if g.constant_value(value) is not None]
    operands = [value for value in data_0 if g.constant_value(value) is None]
    if len(constants) != 1 or len(operands) != 1:
        raise g.refuse("it is not the maximum of a tensor and a constant")
    return clip_relu(g, operands[0], min=constants[0])


@onnx_symbolic("form::Clip.extremes")
def clip_extremes(
    g: GraphContext, input: Value, min: Value | float | None = None, max: Value | float | None = None
) -> Value:
    """The maximum of the data and the lower limit, and the minimum of this and the upper one.

    Computed limits get the rank of the data, because a consumer may have no values of rank 0.
    """
    rank, result = g.rank(input), input
    if rank is None:
        raise g.refuse("the rank of the data is not known")
    for op_type, limit, sign in (("Max", min, -1), ("Min", max, 1)):
        if isinstance(limit, Value) and g.constant_value(limit) is None:
            result = g.op(op_type, result, g.op("Reshape", limit, [1] * rank))
        elif (number := _limit(g, limit, sign)) is not None:
            result = g.op(op_type, result, make_number(g, number, input))
    return g.op("Identity", input) if result is input else result


@onnx_symbolic("form::Clip.relu")
def clip_relu(
    g: GraphContext, input: Value, min: Value | float | None = None, max: Value | float | None = None
) -> Value:
    """The upper limit minus what Relu leaves of its distance, of constant limits.

    A distance is rounded to the precision of the limit, so limits above 256 are refused.
    """
    require_float(g, input)
    result = input
    # Limits that are the largest numbers of the type are none.
    for limit, sign in ((_limit(g, min, -1), 1.0), (_limit(g, max, 1), -1.0)):
        if limit is None:
            continue
        signed = result if sign > 0 else g.op("Mul", result, make_number(g, -1, input))
        distance = signed if not limit else g.op("Add", signed, make_number(g, -sign * limit, input))
        result = g.op("Relu", distance)
        if sign < 0:
            result = g.op("Mul", result, make_number(g, -1, input))
        if limit:
            result = g.op("Add", result, make_number(g, limit, input))
    return g.op("Identity", input) if result is input else result


@onnx_symbolic("form::Tanh.bounded")
def tanh_bounded(g: GraphContext, input: Value) -> Value:
    """Tanh of numbers from -20 to 20, beyond which it is 1: consumers compute infinite exponentials."""
    require_float(g, input)
    node = input.producer()
    if node is not None and node.op_type == "Clip" and not node.domain:
        raise g.refuse("a Clip bounds it")
    low, high = (make_number(g, number, input) for number in (-20.0, 20.0))
    return g.op("Tanh", g.op("Clip", input, min=low, max=high))


@onnx_symbolic("form::Clip.before_quantization")
def clip_before_quantization(
    g: GraphContext, input: Value, min: Value | int | None = None, max: Value | int | None = None
) -> Value:
    """QuantizeLinear of floats within the limits of its integers: consumers may have no Clip of 8 bits."""
    node = input.producer()
    if node is None or node.op_type != "QuantizeLinear" or node.domain:
        raise g.refuse("QuantizeLinear does not compute the operand")
    data, scale, *zero_points = node.inputs
    arrays = [None if value is None else g.constant_value(value) for value in (scale, *zero_points)]
    numbers = [array.item() for array in arrays if array is not None and array.size == 1]
    if data is None or len(numbers) < len(arrays):
        raise g.refuse("the scale or the zero point are computed, or they differ between channels")
    step, offset = numbers[0], numbers[1] if zero_points else 0
    limits: dict[str, Any] = {}
    for name, limit in (("min", min), ("max", max)):
        array = g.constant_value(limit) if isinstance(limit, Value) else limit
        if limit is not None and array is None:
            raise g.refuse("a limit is computed")
        if array is not None:
            limits[name] = make_number(g, (int(np.asarray(array).item()) - offset) * step, data)
    attributes: dict[str, Any] = {name: attribute.value for name, attribute in node.attributes.items()}
    clipped: Value = g.op("Clip", data, **limits)
    result: Value = g.op("QuantizeLinear", clipped, scale, *zero_points, **attributes)
    return result


def _limit(g: GraphContext, limit: Value | float | None, sign: int) -> float | None:
    """The number of a constant limit; None if there is none."""
    if limit is None:
        return None
    array = g.constant_value(limit) if isinstance(limit, Value) else np.asarray(limit)
    if array is None or array.size != 1:
        raise g.refuse("a limit is computed")
    number = float(array.reshape(-1)[0])
    if sign * number >= float(np.finfo(np.float32).max):
        return None
    if not abs(number) <= 256:
        raise g.refuse("a limit is above 256")
    return number
