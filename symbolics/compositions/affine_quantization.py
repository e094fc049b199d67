"""Affine quantization: QuantizeLinear and DequantizeLinear if the opset has them, else arithmetic.

A real number x is stored as `clamp(round(x / scale) + zero_point, quant_min, quant_max)`, rounded half to
even, and read back as `(q - zero_point) * scale`. The schemas at the target opset decide which element types,
axes and blocks the operators take; other cases use torch's arithmetic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value, dtypes, facts_of
from ...registration.integer_tensors import integer_bounds
from ...registration.promotion import promote
from ...registration.runtimes import has_kernel

# Integer types in the order in which a range looks for its own; those of four bits hold no other range.
_TYPES = (DataType.UINT4, DataType.INT4, DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16)
_BYTES = (DataType.INT8, DataType.UINT8)
"""The types whose Clip onnxruntime has."""
_LIMITS = {DataType.UINT4: (0, 15), DataType.INT4: (-8, 7)}


@dataclasses.dataclass(frozen=True)
class Grid:
    """The integers that a quantized tensor can represent.

    Attributes:
        scale: one number, or one for each index of `axis`.
        zero_point: the quantized value of 0, as many as scales; None for 0.
        quant_min, quant_max: the lowest and highest integer.
        axis: the dimension along which scale and zero point vary, or None.
        block: the number of indices of `axis` that share a scale, which then has the rank of the tensor; or
            None.
        rounded_last: whether the zero point is added before rounding, as for torch's float zero points.
    """

    scale: Value | float
    zero_point: Value | int | None
    quant_min: Number | Value
    quant_max: Number | Value
    axis: int | None = None
    block: int | None = None
    rounded_last: bool = False


def limits(dtype: DataType) -> tuple[int, int]:
    """The lowest and highest integer of an integer type."""
    if dtype in _LIMITS:
        return _LIMITS[dtype]
    low, high = dtypes.limits(dtype)
    return int(low), int(high)


def number(g: GraphContext, parameter: Value | Number) -> Number | Value:
    """The number in a constant of one element; a computed value is returned unchanged."""
    if not isinstance(parameter, Value):
        return parameter
    array = g.constant_value(parameter)
    return parameter if array is None or array.size != 1 else array.reshape(()).item()


def _array(g: GraphContext, parameter: Value | Number | None) -> np.ndarray | None:
    if isinstance(parameter, Value):
        return g.constant_value(parameter)
    return np.asarray(0 if parameter is None else parameter)


def _reshape_parameter(g: GraphContext, parameter: Value, axis: int | None) -> Value:
    """Reshape a scale or zero point for QuantizeLinear: zero-dim if it has one element."""
    if axis is not None or g.rank(parameter) == 0:
        return parameter
    # Reuses the number that an Unsqueeze made one-dimensional, instead of reshaping it back.
    producer = parameter.producer()
    if producer is not None and producer.op_type == "Unsqueeze" and producer.inputs[0] is not None:
        return producer.inputs[0]
    return g.op("Reshape", parameter, g.constant([]))


def align_parameter(g: GraphContext, parameter: Value, grid: Grid, rank: int | None) -> Value:
    """A scale or zero point in a shape that broadcasts against the tensor, along `axis`."""
    if grid.axis is None or grid.block is not None:
        return parameter if grid.block is not None else _reshape_parameter(g, parameter, None)
    if rank is None:
        raise g.refuse("the rank must be known for quantization along an axis")
    trailing = rank - 1 - g.axis(grid.axis, rank)
    return g.op("Unsqueeze", parameter, axes=list(range(1, trailing + 1))) if trailing else parameter


def _cast_parameter(
    g: GraphContext, parameter: Value | Number | None, dtype: DataType, axis: int | None
) -> Value:
    """A scale or zero point cast to another element type; a constant is converted directly."""
    array = _array(g, parameter)
    if array is None:
        assert isinstance(parameter, Value)
        return g.cast(_reshape_parameter(g, parameter, axis), dtype)
    parameter_shape = array.shape if axis is not None else ()
    if isinstance(parameter, Value) and g.dtype(parameter) == dtype and array.shape == parameter_shape:
        return parameter
    return g.constant(np.asarray(array.reshape(parameter_shape), dtype=dtype.numpy()))


def _zero_points(g: GraphContext, grid: Grid, dtype: DataType) -> Value:
    """The zero points in the quantized type, expanded to the number of scales."""
    if grid.zero_point is None and isinstance(grid.scale, Value) and grid.axis is not None:
        sizes = [size for size in g.shape(grid.scale) or (None,) if isinstance(size, int)]
        if len(sizes) != g.rank(grid.scale):
            raise g.refuse("zero points are omitted, and the number of scales is unknown")
        g.reserve(*sizes)
        return g.constant(np.zeros(sizes, dtype=dtype.numpy()))
    return _cast_parameter(g, grid.zero_point, dtype, grid.axis)


def _fits(g: GraphContext, grid: Grid, dtype: DataType) -> bool:
    """Whether the zero points are integers within the quantized type, and added after rounding (or 0)."""
    low, high = limits(dtype)
    array = _array(g, grid.zero_point)
    if array is None:
        assert isinstance(grid.zero_point, Value)
        least, greatest = facts_of(grid.zero_point).bounds
        return low <= least and greatest <= high
    if grid.rounded_last and np.any(array):
        return False
    exact = np.asarray(array, dtype=np.float64)
    return bool(np.all((exact == np.round(exact)) & (exact >= low) & (exact <= high)))


def _has_operator(g: GraphContext, op_type: str, dtype: DataType | None, grid: Grid) -> bool:
    """Whether this opset has the operator with the quantized type, the axis and the blocks, and a kernel."""
    if dtype is None or not has_kernel(op_type, dtype, g.opset):
        return False
    arguments = [
        name for name, argument in (("axis", grid.axis), ("block_size", grid.block)) if argument is not None
    ]
    if op_type == "QuantizeLinear":
        return g.has(op_type, *arguments, result=Value(type=ir.TensorType(dtype)))
    return g.has(op_type, *arguments, dtype=dtype)


def is_zero(g: GraphContext, zero_point: Value | Number | None) -> bool:
    """Whether every zero point is known to be 0."""
    array = _array(g, zero_point)
    if array is None:
        assert isinstance(zero_point, Value)
        return facts_of(zero_point).bounds == (0, 0)
    return not np.any(array)


def wraps_around(g: GraphContext, zero_point: Value | None) -> bool:
    """Whether torch subtracts the zero point in a narrow integer type, so that the result may wrap around."""
    if zero_point is None or is_zero(g, zero_point):
        return False
    return g.dtype(zero_point) not in (*dtypes.FLOATS, DataType.INT32, DataType.INT64)


def emit_promoted(g: GraphContext, op_type: str, a: Value, b: Value) -> Value:
    """An arithmetic operator on two tensors in the element type that torch promotes them to."""
    first, second = g.dtype(a), g.dtype(b)
    if first is None or second is None:
        raise g.refuse("the element types must be known")
    dtype = promote(first, second)
    if dtype is None:
        raise g.refuse(f"{first.name} and {second.name} have no common element type")
    return g.op(op_type, g.cast(a, dtype), g.cast(b, dtype))


def arithmetic_dtype(g: GraphContext, value: Value) -> DataType:
    """The float type of the arithmetic, as in torch: DOUBLE for DOUBLE, else FLOAT."""
    return DataType.DOUBLE if g.dtype(value) == DataType.DOUBLE else DataType.FLOAT


def _reciprocal(g: GraphContext, grid: Grid, dtype: DataType, rank: int | None) -> Value:
    """1 / scale, rounded once to the type of the arithmetic."""
    array = _array(g, grid.scale)
    if array is not None and (grid.axis is None or np.ndim(array) <= 1):
        inverse = np.asarray(_inverse(array), dtype=dtype.numpy())
        return align_parameter(
            g, g.constant(inverse if grid.axis is not None else inverse.reshape(())), grid, rank
        )
    assert isinstance(grid.scale, Value)
    computed = emit_inverse(g, align_parameter(g, grid.scale, grid, rank))
    return g.cast(g.cast(computed, DataType.FLOAT), dtype)


def emit_inverse(g: GraphContext, scale: Value) -> Value:
    """1 / scale for computed scales, by which torch multiplies.

    onnxruntime turns `x * (1 / scale)` into `x / scale`, which rounds some numbers to another integer. It
    does not look behind a Neg.
    """
    return g.op("Neg", g.op("Div", g.constant(-1.0, g.dtype(scale)), scale))


def _inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale in single precision, rounded once."""
    return (1.0 / scale.astype(np.float64)).astype(np.float32)


def clamp(g: GraphContext, value: Value, low: Number | Value, high: Number | Value) -> Value:
    """The value clamped to bounds that may be computed; onnxruntime's earliest Clip takes only FLOAT."""
    if isinstance(low, Value) or isinstance(high, Value) or g.dtype(value) == DataType.DOUBLE:
        dtype = g.dtype(value) or DataType.FLOAT
        lower, upper = (g.constant(_scalar(g, bound), dtype) for bound in (low, high))
        return g.call("aten::minimum", g.call("aten::maximum", value, lower), upper)
    if g.dtype(value) in dtypes.FLOATS:
        return g.op("Clip", value, min=float(low), max=float(high))
    return g.op("Clip", value, min=low, max=high)


def _scalar(g: GraphContext, parameter: Value | Number) -> Value | Number:
    return _reshape_parameter(g, parameter, None) if isinstance(parameter, Value) else parameter


def levels(g: GraphContext, input: Value, grid: Grid) -> Value:
    """The quantized integers before clamping, as a float tensor, computed as in torch.

    Torch multiplies by the reciprocal of the scale.
    """
    dtype = arithmetic_dtype(g, input)
    rank = g.rank(input)
    scaled = g.op("Mul", g.cast(input, dtype), _reciprocal(g, grid, dtype, rank))
    if is_zero(g, grid.zero_point):
        return g.call("aten::round", scaled)
    zero_point = align_parameter(g, _cast_parameter(g, grid.zero_point, dtype, grid.axis), grid, rank)
    if grid.rounded_last:
        return g.call("aten::round", g.op("Add", scaled, zero_point))
    return g.op("Add", g.call("aten::round", scaled), zero_point)


def _is_clamped(grid: Grid, dtype: DataType) -> bool:
    """Whether the range is the whole range of the type, or a Clip of the type can limit it."""
    bounds = (grid.quant_min, grid.quant_max)
    return not any(isinstance(bound, Value) for bound in bounds) and (
        dtype in _BYTES or bounds == limits(dtype)
    )


def quantize(g: GraphContext, input: Value, grid: Grid, dtype: DataType) -> Value:
    """Quantize a float tensor to integers of `dtype`, or to one of the 8-bit float types.

    Constants are quantized at export, so that a model's weights are stored as integers.
    """
    folded = _quantize_constant(g, input, grid, dtype)
    if folded is not None:
        return folded
    if (
        dtype in _TYPES
        and arithmetic_dtype(g, input) == DataType.FLOAT
        and _has_operator(g, "QuantizeLinear", dtype, grid)
        and _is_clamped(grid, dtype)
        and _fits(g, grid, dtype)
    ):
        scale = _cast_parameter(g, grid.scale, DataType.FLOAT, grid.axis)
        result = g.op(
            "QuantizeLinear",
            g.cast(input, DataType.FLOAT),
            scale,
            _zero_points(g, grid, dtype),
            axis=grid.axis,
            block_size=grid.block,
        )
        if (grid.quant_min, grid.quant_max) != limits(dtype):
            result = clamp(g, result, grid.quant_min, grid.quant_max)
        return result
    return g.cast(clamp(g, levels(g, input, grid), grid.quant_min, grid.quant_max), dtype)


def _quantize_constant(g: GraphContext, input: Value, grid: Grid, dtype: DataType) -> Value | None:
    array = g.constant_value(input)
    parameters = [_array(g, field) for field in (grid.scale, grid.zero_point, grid.quant_min, grid.quant_max)]
    if array is None or dtype not in dtypes.INTEGERS or grid.block is not None:
        return None
    if any(parameter is None for parameter in parameters):
        return None
    scale, zero_point, low, high = (np.asarray(parameter) for parameter in parameters)
    computed = arithmetic_dtype(g, input).numpy()
    inverse = _inverse(scale).astype(computed)
    if grid.axis is not None:
        shape = [1] * array.ndim
        shape[grid.axis] = -1
        inverse = inverse.reshape(shape)
        zero_point = zero_point.reshape(shape) if zero_point.ndim else zero_point
    else:
        inverse, zero_point = inverse.reshape(()), zero_point.reshape(())
    scaled, zero_point = array.astype(computed) * inverse, zero_point.astype(computed)
    integers = np.round(scaled + zero_point) if grid.rounded_last else np.round(scaled) + zero_point
    return g.constant(np.clip(integers, low.item(), high.item()).astype(dtype.numpy()))


def has_dequantize_linear(g: GraphContext, input: Value, grid: Grid) -> bool:
    """Whether DequantizeLinear supports the tensor at this opset."""
    dtype = g.dtype(input)
    if not _has_operator(g, "DequantizeLinear", dtype, grid):
        return False
    return is_zero(g, grid.zero_point) or (dtype in _TYPES and _fits(g, grid, dtype))


def dequantize(g: GraphContext, input: Value, grid: Grid, out_dtype: DataType) -> Value:
    """Dequantize integers to real numbers.

    The arithmetic is FLOAT (DOUBLE for DOUBLE results), and the result is rounded once to `out_dtype`.
    """
    input = pack_four_bits(g, input, grid)
    dtype = g.dtype(input)
    constant = input.const_value is not None
    if constant and not g.has("Round"):
        # onnxruntime quantizes the bias with Round if it recognises a constant as quantized.
        by_operator = False
    else:
        by_operator = out_dtype != DataType.DOUBLE and has_dequantize_linear(g, input, grid)
    if by_operator and dtype is not None:
        scale = _cast_parameter(g, grid.scale, DataType.FLOAT, grid.axis)
        zero_point = _zero_points(g, grid, dtype) if dtype in _TYPES else None
        result = g.op("DequantizeLinear", input, scale, zero_point, axis=grid.axis, block_size=grid.block)
        return g.cast(result, out_dtype)
    computed = DataType.DOUBLE if out_dtype == DataType.DOUBLE else DataType.FLOAT
    integers = _dequantized_as_is(g, input) if constant and computed == DataType.FLOAT else input
    return g.cast(real_numbers(g, g.cast(integers, computed), grid, g.rank(input)), out_dtype)


def _dequantized_as_is(g: GraphContext, input: Value) -> Value:
    """Convert constant integers to floats, with DequantizeLinear if the opset has it.

    onnxruntime would fold a Cast, and quantize the result again with one scale for all channels.
    """
    plain = Grid(1.0, None, 0, 0)
    if g.dtype(input) not in _TYPES or not has_dequantize_linear(g, input, plain):
        return input
    dtype = g.dtype(input) or DataType.INT8
    return g.op("DequantizeLinear", input, g.constant(1.0), _zero_points(g, plain, dtype))


def real_numbers(g: GraphContext, integers: Value, grid: Grid, rank: int | None) -> Value:
    """`(whole - zero_point) * scale` for integers in a float tensor."""
    dtype = g.dtype(integers) or DataType.FLOAT
    if not is_zero(g, grid.zero_point):
        zero_point = _cast_parameter(g, grid.zero_point, dtype, grid.axis)
        integers = g.op("Sub", integers, align_parameter(g, zero_point, grid, rank))
    scale = _cast_parameter(g, grid.scale, dtype, grid.axis)
    return g.op("Mul", integers, align_parameter(g, scale, grid, rank))


def pack_four_bits(g: GraphContext, input: Value, grid: Grid) -> Value:
    """Constant integers of four bits stored in the 4-bit type, if the opset has it."""
    tensor = input.const_value
    if tensor is None or g.dtype(input) not in _BYTES or not tensor.size:
        return input
    bounds = (grid.quant_min, grid.quant_max)
    lowest, highest = integer_bounds(tensor)
    # Half of the file size of bytes, for weights that a 4-bit quantizer stored as bytes.
    for dtype in (DataType.INT4, DataType.UINT4):
        low, high = limits(dtype)
        if (
            all(not isinstance(bound, Value) and low <= bound <= high for bound in bounds)
            and low <= lowest
            and highest <= high
            and _has_operator(g, "DequantizeLinear", dtype, grid)
            and _array(g, grid.zero_point) is not None
            and _fits(g, grid, dtype)
        ):
            # A Cast of a weight is folded when the file is written, under the weight's own name.
            if g.is_foldable(input):
                return g.constant(tensor.numpy().astype(dtype.numpy()))
            return g.cast(input, dtype)
    return input


def integer_type_for(g: GraphContext, grid: Grid, constant: bool) -> DataType | None:
    """The integer type for a range: a type with exactly this range, else one of eight bits.

    Args:
        constant: whether the tensor is quantized at export, so that the file only dequantizes it.
    """
    bounds = (grid.quant_min, grid.quant_max)
    if any(isinstance(bound, Value) for bound in bounds):
        return None
    low, high = (int(bound) for bound in bounds)  # type: ignore[arg-type]
    candidates: Sequence[DataType] = [
        dtype for dtype in _TYPES if constant or _has_operator(g, "QuantizeLinear", dtype, grid)
    ]
    for dtype in candidates:
        # onnxruntime's fusions around QuantizeLinear (level 2) fail to load four-bit types.
        if limits(dtype) == (low, high) and dtype not in _LIMITS:
            return dtype
    for dtype in candidates:
        least, most = limits(dtype)
        if dtype in _BYTES and least <= low and high <= most and _fits(g, grid, dtype):
            return dtype
    return None


def fake_quantize(g: GraphContext, input: Value, grid: Grid) -> Value:
    """Round a float tensor to values that its quantized form can represent; the element type stays."""
    out_dtype = g.dtype(input) or DataType.FLOAT
    constant = g.constant_value(input) is not None
    dtype = integer_type_for(g, grid, constant) if arithmetic_dtype(g, input) == DataType.FLOAT else None
    if dtype is not None and _fits(g, grid, dtype):
        return dequantize(g, quantize(g, input, grid, dtype), grid, out_dtype)
    integers = clamp(g, levels(g, input, grid), grid.quant_min, grid.quant_max)
    if grid.axis is None:
        # ATen's kernel for one scale computes this in single precision for every input type.
        integers = g.cast(integers, DataType.FLOAT)
    return g.cast(real_numbers(g, integers, grid, g.rank(input)), out_dtype)


def is_within(g: GraphContext, input: Value, grid: Grid) -> Value:
    """A BOOL mask of the elements that are not clamped, which fake quantization keeps for its gradient."""
    integers = levels(g, input, grid)
    below = g.op("Less", integers, g.constant(grid.quant_min, g.dtype(integers)))
    above = g.op("Greater", integers, g.constant(grid.quant_max, g.dtype(integers)))
    return g.op("Not", g.op("Or", below, above))
