"""Quantization: fake quantization, and conversion to and from quantized types.

Semantics: tensorflow/core/kernels/fake_quant_ops_functor.h, quantize_op.cc, dequantize_op.cc and
quantize_and_dequantize_op.h.
"""

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.affine_quantization import Grid, fake_quantize
from ...compositions.affine_quantization import limits as limits_of
from ...compositions.operator_tables import register_variant
from ...compositions.size_arithmetic import known_rank
from ...compositions.special.formulas import Formula, round_half_away
from .._common import constant_integer

_QUANTIZED = {
    "qint8": DataType.INT8,
    "quint8": DataType.UINT8,
    "qint16": DataType.INT16,
    "quint16": DataType.UINT16,
    "qint32": DataType.INT32,
}
_LARGEST = float(np.finfo(np.float32).max)


def _integer_type(g: GraphContext, T: DataType | str) -> DataType:
    """The ONNX type of a quantized type, of at most 16 bits."""
    integer_type = _QUANTIZED.get(T) if isinstance(T, str) else T
    if integer_type is None or integer_type == DataType.INT32:
        raise g.refuse(f"quantized type '{T}' is not supported")
    return integer_type


def _nudge_range(low: np.ndarray, high: np.ndarray, least: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The scale and the zero point of a range, shifted so that 0 is exact; TensorFlow computes in FLOAT."""
    float32 = np.float32
    scale = (high - low) / float32(most - least)
    with np.errstate(all="ignore"):
        zero_point = float32(least) - low / scale
    # TensorFlow rounds halves up.
    zero_point = np.clip(np.floor(zero_point + float32(0.5)), least, most)
    return scale.astype(np.float32), zero_point


def fake_quant(
    g: GraphContext,
    inputs: Value,
    min: Value | float = -6.0,
    max: Value | float = 6.0,
    num_bits: int = 8,
    narrow_range: bool = False,
    per_channel: bool = False,
) -> Value:
    """With `per_channel`, there is a range for each index of the last axis."""
    if not 2 <= num_bits <= 16:
        raise g.refuse(f"num_bits must be from 2 to 16, not {num_bits}")
    least, most = int(narrow_range), 2**num_bits - 1
    constants = [
        g.constant_value(item) if isinstance(item, Value) else np.float32(item) for item in (min, max)
    ]
    if constants[0] is None or constants[1] is None:
        return _by_computed_range(g, inputs, min, max, least, most)
    bounds = [np.asarray(item, dtype=np.float32) for item in constants]
    if not np.all(np.isfinite(bounds)) or not np.all(bounds[0] <= bounds[1]):
        raise g.refuse("min and max must be finite, and min not above max")
    # The scale of an empty range is 0.
    if not np.all(bounds[0] < bounds[1]):
        return _by_computed_range(g, inputs, min, max, least, most)
    scale, zero_point = _nudge_range(bounds[0], bounds[1], least, most)
    if per_channel:
        axis = known_rank(g, inputs) - 1
        grid = Grid(g.constant(scale), g.constant(zero_point.astype(np.int32)), least, most, axis)
    else:
        grid = Grid(float(scale), int(zero_point), least, most)
    result = fake_quantize(g, inputs, grid)
    result.shape = result.shape or inputs.shape
    return result


def _by_computed_range(
    g: GraphContext, inputs: Value, low: Value | float, high: Value | float, least: int, most: int
) -> Value:
    """Fake quantization by a computed range; if the range is empty, the result is 0."""
    x = Formula(g, inputs)
    bottom, top = (Formula(g, g.constant(item, DataType.FLOAT)) for item in (low, high))
    width = top - bottom
    empty = width.equals(0.0)
    width = empty.chosen(1.0, width)
    scale, inverse = width / float(most - least), width.op("Reciprocal") * float(most - least)
    zero_point = (-bottom / scale + float(least)).op("Max", float(least)).op("Min", float(most))
    zero_point = (zero_point + 0.5).floor()
    lower, upper = ((-zero_point + float(end)) * scale for end in (least, most))
    zero = (-lower * inverse + 0.5).floor()
    clamped = x.op("Min", upper).op("Max", lower)
    step_numbers = ((clamped - lower) * inverse - zero + 0.5).floor()
    return empty.chosen(0.0, step_numbers * scale).value


register_variant(
    ["tf::FakeQuantWithMinMaxArgs", "tf::FakeQuantWithMinMaxVars"], fake_quant, per_channel=False
)
register_variant("tf::FakeQuantWithMinMaxVarsPerChannel", fake_quant, per_channel=True)


def _broadcast_range(g: GraphContext, value: Value, input: Value, axis: int) -> Formula:
    """Reshape a range, per tensor or per index of an axis, to broadcast against a tensor."""
    if axis == -1:
        return Formula(g, value)
    trailing = known_rank(g, input) - 1 - axis
    return Formula(g, g.op("Unsqueeze", value, axes=list(range(1, trailing + 1))) if trailing else value)


def _reshape_range(g: GraphContext, value: Formula, axis: int) -> Value:
    """Reshape a range as the operators return it: a scalar, or a vector."""
    return g.op("Reshape", value.value, g.constant([] if axis == -1 else [-1], DataType.INT64))


def _factor_of_bound(bound: Formula, end: float) -> Formula:
    """The factor that maps a bound to an end of the integers; the largest number if their signs differ."""
    if end == 0:
        # The product gives the number the shape of the bound, which may be one per channel.
        return bound * 0.0 + _LARGEST
    is_same_sign = bound * end > 0.0
    return is_same_sign.chosen(bound.op("Reciprocal") * end, _LARGEST)


@onnx_symbolic("tf::QuantizeV2")
def quantize_v2(
    g: GraphContext,
    input: Value,
    min_range: Value,
    max_range: Value,
    T: DataType | str,
    mode: str = "MIN_COMBINED",
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False,
    axis: int = -1,
    ensure_minimum_range: float = 0.01,
) -> list[Value]:
    """Returns the integers, and the range that they represent."""
    dtype = _integer_type(g, T)
    least, most = limits_of(dtype)
    x = Formula(g, input)
    minimum, maximum = (_broadcast_range(g, bound, input, axis) for bound in (min_range, max_range))
    # TensorFlow widens the range until it contains 0 and has a minimal width.
    low = minimum.op("Min", 0.0)
    margin = abs(minimum).op("Max", abs(maximum)).op("Max", 1.0) * ensure_minimum_range
    high = maximum.op("Max", low + margin).op("Max", 0.0)
    if mode == "SCALED":
        first = least + int(narrow_range)
        factor = _factor_of_bound(low, float(first)).op("Min", _factor_of_bound(high, float(most)))
        low, high = (factor.op("Reciprocal") * float(end) for end in (first, most))
        scaled = x.op("Min", high).op("Max", low) * factor
        even = round_mode == "HALF_TO_EVEN"
        integers = scaled.call("aten::round") if even else round_half_away(scaled)
    elif mode == "MIN_COMBINED":
        factor = (high - low).op("Reciprocal") * float(most - least)
        shifted = (x.op("Min", high).op("Max", low) - low) * factor
        half = (most - least + 1) / 2
        integers = (shifted + 0.5).floor() if least == 0 else round_half_away(shifted - half)
    elif mode == "MIN_FIRST":
        factor = (high - low).op("Reciprocal") * float(most - least)
        integers = round_half_away(x * factor) - (round_half_away(low * factor) - float(least))
        integers = integers.op("Max", float(least)).op("Min", float(most))
    else:
        raise g.refuse(f"mode '{mode}' is not supported")
    return [g.cast(integers.value, dtype), _reshape_range(g, low, axis), _reshape_range(g, high, axis)]


@onnx_symbolic("tf::Dequantize")
def dequantize(
    g: GraphContext,
    input: Value,
    min_range: Value,
    max_range: Value,
    T: DataType | str,
    mode: str = "MIN_COMBINED",
    narrow_range: bool = False,
    axis: int = -1,
    dtype: DataType = DataType.FLOAT,
) -> Value:
    least, most = limits_of(_integer_type(g, T))
    x = Formula(g, g.cast(input, DataType.FLOAT))
    low, high = (_broadcast_range(g, bound, input, axis) for bound in (min_range, max_range))
    if mode == "SCALED":
        first = least + int(narrow_range)
        factor = high / float(most)
        # An unsigned type has no negative end.
        if first:
            factor = factor.op("Max", low / float(first))
        result = x * factor
    elif mode == "MIN_COMBINED":
        # A signed type is shifted by half of its range.
        half = (most - least + 1) / 2 if least else 0.0
        result = (x + half) * ((high - low) / float(most - least)) + low
    elif mode == "MIN_FIRST":
        scale = (high - low) / float(most - least)
        is_empty = high.equals(low)
        # MIN_FIRST rounds the minimum to a multiple of the scale.
        begin = is_empty.chosen(low, round_half_away(low / is_empty.chosen(1.0, scale)) * scale)
        result = (begin - scale * float(least)) + x * scale
    else:
        raise g.refuse(f"mode '{mode}' is not supported")
    return g.cast(result.value, dtype)


@onnx_symbolic(["tf::QuantizeAndDequantizeV2", "tf::QuantizeAndDequantizeV4"])
def quantize_and_dequantize(
    g: GraphContext,
    input: Value,
    input_min: Value,
    input_max: Value,
    signed_input: bool = True,
    num_bits: Value | int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    narrow_range: bool = False,
    axis: int = -1,
) -> Value:
    if round_mode not in ("HALF_TO_EVEN", "HALF_UP"):
        raise g.refuse(f"round_mode '{round_mode}' is not supported")
    bits = constant_integer(g, num_bits, "num_bits") if isinstance(num_bits, Value) else num_bits
    if not 1 <= bits <= 62:
        raise g.refuse(f"num_bits must be from 1 to 62, not {bits}")
    least = -(2 ** (bits - 1)) + int(narrow_range) if signed_input else 0
    most = 2 ** (bits - 1) - 1 if signed_input else 2**bits - 1
    x = Formula(g, input)
    if range_given:
        low, high = (_broadcast_range(g, bound, input, axis) for bound in (input_min, input_max))
    else:
        axes = None if axis == -1 else [bound for bound in range(known_rank(g, input)) if bound != axis]
        low, high = (
            Formula(g, g.op(name, input, axes=axes, keepdims=int(axis != -1)))
            for name in ("ReduceMin", "ReduceMax")
        )
    from_low, from_high = _factor_of_bound(low, float(least)), _factor_of_bound(high, float(most))
    # The smaller factor decides, so that both bounds stay within the integers.
    by_low = from_low < from_high
    factor = by_low.chosen(from_low, from_high)
    from_top = high / float(most)
    step = by_low.chosen(low / float(least), from_top) if least else from_top
    if range_given:
        top = by_low.chosen(step * float(most), high)
        bottom = by_low.chosen(low, step * float(least))
        x = x.op("Min", top).op("Max", bottom)
    scaled = x * factor
    integers = (scaled + 0.5).floor() if round_mode == "HALF_UP" else scaled.call("aten::round")
    return (integers * step).value


register_variant(
    "tf::QuantizeAndDequantizeV3", quantize_and_dequantize, {"range_given": True}, round_mode="HALF_TO_EVEN"
)
