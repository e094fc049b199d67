"""Operators on shapes, for opsets that need constants or lack an argument."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ...registration.functions.results import as_list
from ..compositions.size_arithmetic import (
    Size,
    axis_from_front,
    compute,
    is_non_negative,
    known_rank,
    sizes_of,
)
from .support import below, gather_number, integers, kept_sizes, mask_of_axes, wrap_axes


@onnx_symbolic("onnx::Shape")
def shape(g: GraphContext, data: Value, start: int = 0, end: int | None = None) -> Value:
    """Below 15: a part of the whole shape."""
    full_shape = g.op("Shape", data)
    rank = g.rank(data)
    if rank is not None:
        # With a known rank the positions are constant, also negative and omitted bounds.
        return g.op("Gather", full_shape, np.arange(rank, dtype=np.int64)[slice(start, end)], axis=0)
    return g.op("Slice", full_shape, starts=[start], ends=[end if end is not None else 2**63 - 1], axes=[0])


def _mask_of_axes(g: GraphContext, axes: Value | list[int], rank: int) -> tuple[Value, int]:
    """Whether each dimension is among the axes, and the number of axes."""
    axes_value = g.constant(axes)
    shape = g.shape(axes_value)
    if shape is None or len(shape) > 1:
        raise g.refuse("the number of axes must be known", first_opset=13)
    count = shape[0] if shape else 1
    if not isinstance(count, int):
        raise g.refuse("the number of axes must be known", first_opset=13)
    return mask_of_axes(g, axes_value, rank + count), count


@onnx_symbolic("onnx::Unsqueeze")
def unsqueeze(g: GraphContext, data: Value, axes: Value) -> Value:
    """Below 13 with computed axes: each dimension is 1, or the next one of the data."""
    rank = g.rank(data)
    if rank is None:
        raise g.refuse("the rank of its input must be known if its axes are computed", first_opset=13)
    inserted, count = _mask_of_axes(g, axes, rank)
    is_old = g.op("Sub", 1, g.cast(inserted, DataType.INT64))
    # A running count numbers the dimensions of the data from 1; position 0 holds the size 1 of new
    # dimensions.
    old_position = g.call("aten::cumsum", is_old, 0)
    sizes = g.op("Concat", [1], g.op("Shape", data), axis=0)
    new_shape = g.op("Gather", sizes, g.op("Mul", old_position, is_old), axis=0)
    result = g.op("Reshape", data, new_shape)
    if g.rank(result) is None:
        result.shape = type(result.shape)([None] * (rank + count)) if result.shape is not None else None
    return result


@onnx_symbolic("onnx::Squeeze")
def squeeze(g: GraphContext, data: Value, axes: Value | None = None) -> Value:
    """Below 13 with computed axes: keeps the sizes of the other dimensions."""
    if axes is None:
        raise g.refuse(f"no axes are given, and {g.dtype(data)} is not supported here")
    rank = known_rank(g, data)
    return g.op("Reshape", data, kept_sizes(g, data, mask_of_axes(g, axes, rank)))


@onnx_symbolic("onnx::Reshape")
def reshape(g: GraphContext, data: Value, shape: Value | list[int], allowzero: int = 0) -> Value:
    """Below 14, literal sizes of 0 (`allowzero`) must be constants.

    Computed sizes are 0 only for a tensor without elements. Unless the tensor is known to be empty, they are
    written as they are; a size of 0 then copies a dimension, as it does in models exported at these opsets.
    """
    if not allowzero:
        return g.op("Reshape", data, shape)
    constant_sizes = integers(g, shape)
    data_shape = g.shape(data)
    # Reshape would read the 0 as a copy of a dimension.
    if constant_sizes is not None and 0 in constant_sizes and not _has_elements(data_shape):
        return g.call("composed::empty_like", data, constant_sizes)
    if constant_sizes is None and data_shape is not None and 0 in data_shape:
        raise g.refuse(
            "allowzero=1 with a computed shape is not supported for an empty input", first_opset=14
        )
    return g.op("Reshape", data, shape)


def _has_elements(shape: Sequence[object] | None) -> bool:
    return shape is not None and all(isinstance(size, int) and size > 0 for size in shape)


@onnx_symbolic("composed::empty_like")
def empty_like(g: GraphContext, data: Value, sizes: list[int]) -> Value:
    """A tensor without elements, for sizes that contain 0."""
    dtype = g.dtype(data)
    if dtype is None:
        raise g.refuse("the element type of its input is unknown")
    return g.constant(np.zeros(sizes, dtype=dtype.numpy()))


@onnx_symbolic("onnx::Slice")
def slice_(
    g: GraphContext,
    data: Value,
    starts: Value,
    ends: Value,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Value:
    """Below 10 with computed bounds or steps: gathers the positions of each dimension."""
    constants = [None if argument is None else integers(g, argument) for argument in (axes, steps)]
    shape = g.shape(starts)
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
        raise g.refuse("the number of sliced dimensions must be known", first_opset=10)
    count = int(shape[0])
    if (axes is not None and constants[0] is None) or (steps is not None and constants[1] is None):
        return _slice_by_mask(g, data, starts, ends, axes, steps, count)
    rank = g.rank(data)
    for position in range(count):
        dim = constants[0][position] if constants[0] is not None else position
        dim = dim + rank if dim < 0 and rank is not None else dim
        if dim < 0:
            raise g.refuse(
                "the rank of its input is unknown, and an axis counts from the end", first_opset=10
            )
        step = constants[1][position] if constants[1] is not None else 1
        positions = _positions(
            g, g.size(data, dim), gather_number(g, starts, position), gather_number(g, ends, position), step
        )
        data = g.op("Gather", data, positions, axis=dim)
    return data


def _positions(g: GraphContext, size: int | Value, start: Value, end: Value, step: int | Value) -> Value:
    """The positions of a slice of a dimension, from zero-dim values, clamped as by Slice."""
    length = g.constant(size, DataType.INT64)
    forward = g.op("Greater", g.constant(step), 0)
    low = g.op("Where", forward, 0, -1)
    high = g.op("Where", forward, length, g.op("Sub", length, 1))
    bounds = []
    for bound in (start, end):
        # Negative bounds count from the end.
        # Where, because the lowest number stays out of range when a size is added.
        from_front_bound = g.op("Where", g.op("Less", bound, 0), g.op("Add", bound, length), bound)
        bounds.append(g.call("sym::min", a=g.call("sym::max", a=from_front_bound, b=low), b=high))
    span = g.op("Sub", bounds[1], bounds[0])
    # Rounds the number of steps up: the last one may be shorter than a whole step.
    slack = g.op("Where", forward, g.op("Sub", g.constant(step), 1), g.op("Add", g.constant(step), 1))
    count = g.call("sym::max", a=g.op("Div", g.op("Add", span, slack), g.constant(step)), b=0)
    counted = g.call("sym::range", start=0, end=count)
    return g.op("Add", bounds[0], g.op("Mul", counted, step))


def _slice_by_mask(
    g: GraphContext,
    data: Value,
    starts: Value,
    ends: Value,
    axes: Value | None,
    steps: Value | None,
    count: int,
) -> Value:
    """With computed axes or steps too: each dimension selects its bounds from the given ones."""
    rank = known_rank(g, data)
    axes_value = axes if axes is not None else g.constant(np.arange(count, dtype=np.int64))
    sliced_dims = wrap_axes(g, axes_value, rank)
    for dim in range(rank):
        is_dim = g.op("Equal", sliced_dims, g.constant(dim, DataType.INT64))
        hit = g.cast(is_dim, DataType.INT64)
        is_sliced = g.op("Greater", g.op("ReduceSum", hit, axes=[0], keepdims=0), 0)

        def select_bound(
            values: Value | None, otherwise: Size, hit: Value = hit, is_sliced: Value = is_sliced
        ) -> Value:
            if values is None:
                return g.constant(otherwise, DataType.INT64)
            total = g.op("ReduceSum", g.op("Mul", g.cast(values, DataType.INT64), hit), axes=[0], keepdims=0)
            return g.op("Where", is_sliced, total, g.constant(otherwise, DataType.INT64))

        size = g.size(data, dim)
        end = select_bound(ends, size)
        positions = _positions(g, size, select_bound(starts, 0), end, select_bound(steps, 1))
        data = g.op("Gather", data, positions, axis=dim)
    return data


@onnx_symbolic("onnx::Split")
@below("Split", 18, any_data=True)
def split(
    g: GraphContext,
    input: Value,
    split: Value | None = None,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int = 1,
) -> list[Value]:
    """With computed sizes: Slice. With a number of parts below 18: parts of the rounded-up size."""
    dim = axis_from_front(g, input, axis)
    if split is not None:
        sizes: list[int | Value] = [g.op("Gather", split, i, axis=0) for i in range(outputs)]
        return g.call_outputs("aten::split_with_sizes", self=input, split_sizes=sizes, dim=dim)
    count = num_outputs or outputs
    size = g.size(input, dim)
    if isinstance(size, int):
        part_size = -(-size // count)
        part_sizes = [max(min(part_size, size - part_size * i), 0) for i in range(count)]
        results = as_list(g.op("Split", input, axis=dim, split=part_sizes, outputs=count))
        for result, length in zip(results, part_sizes, strict=True):
            if input.shape is not None:
                result.shape = ir.Shape([*input.shape[:dim], length, *input.shape[dim + 1 :]])
        return results
    dynamic_part_size = g.call("sym::floordiv", a=g.op("Add", size, count - 1), b=count)
    bounds = [g.op("Mul", dynamic_part_size, i) for i in range(count)]
    ends = [*bounds[1:], size]
    return [
        g.call("aten::slice", self=input, dim=dim, start=start, end=end)
        for start, end in zip(bounds, ends, strict=True)
    ]


@onnx_symbolic("before18::Split")
def split_before_18(
    g: GraphContext, input: Value, split: Value | list[int] | None = None, axis: int = 0, outputs: int = 1
) -> list[Value]:
    """Without sizes, equal parts; the newest version has their number as an argument."""
    sizes = g.constant(split) if split is not None else None
    return as_list(
        g.op(
            "Split",
            input,
            split=sizes,
            axis=axis,
            num_outputs=outputs if sizes is None else None,
            outputs=outputs,
        )
    )


@onnx_symbolic("onnx::Trilu")
def trilu(g: GraphContext, input: Value, k: Value | None = None, upper: int = 1) -> Value:
    """Below 14: keeps the triangle by comparing row and column numbers."""
    if g.rank(input) is None:
        raise g.refuse("the rank of its input is unknown", first_opset=14)
    height, width = sizes_of(g, input)[-2:]
    offsets = [0] if k is None else integers(g, k)
    if isinstance(height, int) and isinstance(width, int) and offsets is not None:
        g.reserve(height, width)
        first, columns = np.arange(height)[:, None] + offsets[0], np.arange(width)
        mask = g.constant(first <= columns if upper else first >= columns)
    else:
        rows = g.op("Unsqueeze", g.call("sym::range", start=0, end=height), axes=[1])
        offset = offsets[0] if offsets is not None else g.op("Reshape", k, g.constant([], DataType.INT64))
        rows = rows if offsets == [0] else g.op("Add", rows, offset)
        across = g.call("sym::range", start=0, end=width)
        mask = g.op("LessOrEqual" if upper else "GreaterOrEqual", rows, across)
        if input.shape is not None:
            mask.shape = ir.Shape(input.shape[-2:])
    if g.dtype(input) == DataType.BOOL:
        return g.op("And", input, mask)
    return g.op("Where", mask, input, g.constant(0, g.dtype(input) or DataType.FLOAT))


@onnx_symbolic("onnx::Range")
def range_(g: GraphContext, start: Value, limit: Value, delta: Value, stash_type: int = 1) -> Value:
    """Below 11: counts from 0, scales and shifts; 16-bit floats compute in the stash type."""
    dtype = g.dtype(start)
    if dtype in dtypes.HALVES and dtype != dtypes.element_type(stash_type):
        wide = (g.cast(bound, dtypes.element_type(stash_type)) for bound in (start, limit, delta))
        return g.cast(g.op("Range", *wide), dtype)
    start, limit, delta = (
        bound if g.rank(bound) == 0 else g.op("Reshape", bound, g.constant([], DataType.INT64))
        for bound in (start, limit, delta)
    )
    if dtype in dtypes.INTEGERS:
        first, last, step = (g.cast(bound, DataType.INT64) for bound in (start, limit, delta))
        span = g.op("Sub", last, first)
        # A quotient that is rounded up.
        negated = g.call("sym::floordiv", a=g.op("Sub", 0, span), b=step)
        count = g.call("sym::max", a=g.op("Sub", 0, negated), b=0)
        numbers = g.op("Add", first, g.op("Mul", g.call("sym::range", start=0, end=count), step))
        return g.cast(numbers, dtype or DataType.INT64)
    span = g.op("Div", g.op("Sub", limit, start), delta)
    count = g.cast(g.op("Ceil", span), DataType.INT64)
    counted = g.call("sym::range", start=0, end=g.call("sym::max", a=count, b=0))
    return g.op("Add", start, g.op("Mul", g.cast(counted, dtype or DataType.FLOAT), delta))


@onnx_symbolic("onnx::CastLike")
def cast_like(
    g: GraphContext, input: Value, target_type: Value, saturate: int = 1, round_mode: str = "up"
) -> Value:
    """Below 15: Cast, if the type is known."""
    dtype = g.dtype(target_type)
    if dtype is None:
        raise g.refuse("the element type to cast to must be known", first_opset=15)
    return g.op("Cast", input, to=int(dtype), saturate=saturate, round_mode=round_mode)


@below("Pad", 11)
def pad_by_attribute(
    g: GraphContext,
    data: Value,
    pads: Value | list[int | Value] | None = None,
    constant_value: Value | Number | None = None,
    axes: Value | list[int] | None = None,
    mode: str = "constant",
    value: float | None = None,
    paddings: list[int] | None = None,
) -> Value:
    """Below 11 Pad takes only floats and constant amounts; other padding is a Concat."""
    amounts = pads if pads is not None else paddings
    filler = constant_value if constant_value is not None else value
    if mode != "constant" or axes is not None or not isinstance(amounts, list) or isinstance(filler, Value):
        return g.op("Pad", data, pads=amounts, constant_value=filler, axes=axes, mode=mode)
    half = len(amounts) // 2
    return _pad_with_number(g, data, amounts[:half], amounts[half:], 0 if filler is None else filler)


def _pad_with_number(
    g: GraphContext, data: Value, begins: Sequence[Size], ends: Sequence[Size], value: Number
) -> Value:
    is_constant = all(isinstance(amount, int) for amount in (*begins, *ends))
    if is_constant and (g.dtype(data) is None or g.has("Pad", dtype=g.dtype(data))):
        return g.op("Pad", data, mode="constant", pads=[*begins, *ends], constant_value=value)
    for dim, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if not (is_non_negative(begin) and is_non_negative(end)):
            # Negative amounts crop. Computed ones are known only when the model runs.
            crops = [compute(g, "max", compute(g, "sub", 0, amount), 0) for amount in (begin, end)]
            stop = compute(g, "sub", g.size(data, dim), crops[1])
            data = g.call("aten::slice", self=data, dim=dim, start=crops[0], end=stop)
            begin, end = (compute(g, "max", amount, 0) for amount in (begin, end))
        blocks = [data]
        for amount, position in ((begin, 0), (end, 2)):
            if not (isinstance(amount, int) and amount == 0):
                sizes = sizes_of(g, data)
                sizes[dim] = amount
                block = g.call("aten::full", size=sizes, fill_value=value, dtype=g.dtype(data))
                blocks.insert(position, block)
        data = blocks[0] if len(blocks) == 1 else g.op("Concat", *blocks, axis=dim)
    return data


@onnx_symbolic("onnx::Pad")
def pad(
    g: GraphContext,
    data: Value,
    pads: Value | list[int | Value],
    constant_value: Value | Number | None = None,
    axes: Value | list[int] | None = None,
    mode: str = "constant",
    value: float | None = None,
) -> Value:
    """With axes below 18, mode `wrap` below 19, and types or amounts that the opset does not take."""
    rank = known_rank(g, data)
    filler = constant_value if constant_value is not None else value
    amounts = _amounts(g, g.constant(pads), axes, rank)
    if mode != "constant" or amounts is None:
        return _pad_by_positions(g, data, g.constant(pads), amounts, axes, mode, filler)
    begins, ends = amounts[:rank], amounts[rank:]
    for dim in range(rank):
        low, high = min(begins[dim], 0), min(ends[dim], 0)
        if low or high:
            # Negative amounts crop, as Slice does at every opset.
            data = g.call("aten::slice", self=data, dim=dim, start=-low, end=high or 2**63 - 1)
    begins, ends = [max(amount, 0) for amount in begins], [max(amount, 0) for amount in ends]
    number = 0 if filler is None else filler
    if isinstance(number, Value):
        array = g.constant_value(number)
        if array is None:
            return _pad_by_blocks(g, data, begins, ends, number)
        number = array.item()
    return _pad_with_number(g, data, begins, ends, number)


def _amounts(g: GraphContext, pads: Value, axes: Value | list[int] | None, rank: int) -> list[int] | None:
    """The amounts of every dimension, if they are constant."""
    pad_numbers = integers(g, pads)
    padded_axes = list(range(rank)) if axes is None else integers(g, g.constant(axes))
    if pad_numbers is None or padded_axes is None:
        return None
    amounts = [0] * (2 * rank)
    if len(pad_numbers) != 2 * len(padded_axes):
        raise g.refuse(f"it has {len(pad_numbers)} pads for {len(padded_axes)} axes")
    for position, axis in enumerate(padded_axes):
        dim = g.axis(axis, rank)
        amounts[dim] = pad_numbers[position]
        amounts[dim + rank] = pad_numbers[position + len(padded_axes)]
    return amounts


def _pad_by_blocks(g: GraphContext, data: Value, begins: list[int], ends: list[int], filler: Value) -> Value:
    for dim, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        blocks: list[Value] = [data]
        for amount, position in ((begin, 0), (end, len(blocks) + 1)):
            if amount:
                sizes: list[int | Value] = list(sizes_of(g, data))
                sizes[dim] = amount
                block = g.op("Expand", g.op("Reshape", filler, [1] * len(sizes)), g.stack(sizes))
                blocks.insert(position, block)
        data = g.op("Concat", *blocks, axis=dim) if len(blocks) > 1 else data
    return data


def _pad_by_positions(
    g: GraphContext,
    data: Value,
    pads: Value,
    amounts: list[int] | None,
    axes: Value | list[int] | None,
    mode: str,
    filler: Value | Number | None,
) -> Value:
    """Gather each dimension from the source positions; elements without a source get the constant."""
    rank = known_rank(g, data)
    for dim in range(rank):
        size = g.constant(g.size(data, dim), DataType.INT64)
        begin, end = _bounds(g, pads, amounts, axes, dim, rank)
        total = g.op("Add", size, g.op("Add", begin, end))
        positions = g.op("Sub", g.call("sym::range", start=0, end=total), begin)
        last = g.op("Sub", size, 1)
        if mode == "wrap":
            inside = g.call("sym::mod", a=positions, b=size)
        elif mode == "reflect":
            # Reflection repeats after going there and back; a single element has a period of 0, which is no
            # divisor.
            period = g.call("sym::max", a=g.op("Mul", last, 2), b=1)
            folded = g.call("sym::mod", a=positions, b=period)
            inside = g.call("sym::min", a=folded, b=g.op("Sub", period, folded))
            inside = g.call("sym::min", a=inside, b=last)
        else:
            inside = g.call("sym::min", a=g.call("sym::max", a=positions, b=0), b=last)
        padded = g.op("Gather", data, inside, axis=dim)
        if mode == "constant":
            is_padding = g.op("Not", g.op("Equal", positions, inside))
            after = rank - dim - 1
            is_padding = (
                g.op("Unsqueeze", is_padding, axes=list(range(1, after + 1))) if after else is_padding
            )
            number = g.constant(0 if filler is None else filler, g.dtype(data))
            if g.rank(number) != 0:
                number = g.op("Reshape", number, g.constant([], DataType.INT64))
            padded = g.call("composed::where", condition=is_padding, self=number, other=padded)
        data = padded
    return data


def _bounds(
    g: GraphContext,
    pads: Value,
    amounts: list[int] | None,
    axes: Value | list[int] | None,
    dim: int,
    rank: int,
) -> tuple[Value, Value]:
    if amounts is not None:
        return g.constant(amounts[dim]), g.constant(amounts[dim + rank])
    if axes is None:
        return gather_number(g, pads, dim), gather_number(g, pads, dim + rank)
    axes_value = g.constant(axes)
    hit = g.cast(
        g.op("Equal", wrap_axes(g, axes_value, rank), g.constant(dim, DataType.INT64)), DataType.INT64
    )
    shape = g.shape(axes_value)
    if shape is None or not isinstance(shape[0], int):
        raise g.refuse("the number of padded axes must be known", first_opset=18)
    count = int(shape[0])
    halves = (list(range(count)), list(range(count, 2 * count)))
    begin, end = (
        g.op("ReduceSum", g.op("Mul", g.op("Gather", pads, half, axis=0), hit), axes=[0], keepdims=0)
        for half in halves
    )
    return begin, end
