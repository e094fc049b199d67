"""Concat, Reshape, Transpose, Split, Gather, Slice and others as operators that more consumers read."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ....registration import GraphContext, Value, onnx_symbolic
from ....registration.dtypes import FLOATS
from ..support import integers
from .selection import MAXIMUM_PARTS
from .sizes import static_shape


@onnx_symbolic("form::Reshape.sizes")
def reshape_to_sizes(
    g: GraphContext, data: Value, shape: Value, allowzero: int = 0, result_shape: list[int] | None = None
) -> Value:
    """Every size as a number, neither 0 nor -1."""
    array = g.constant_value(shape)
    if result_shape is None or array is None or [int(size) for size in array] == result_shape:
        raise g.refuse("the sizes are numbers already, or must be known")
    return g.op("Reshape", data, result_shape)


@onnx_symbolic("form::Reshape.transpose")
def reshape_as_transpose(
    g: GraphContext, data: Value, shape: Value, allowzero: int = 0, result_shape: list[int] | None = None
) -> Value:
    """A Reshape that moves dimensions of size 1, or also removes some, as Squeeze and Transpose."""
    if result_shape is None:
        raise g.refuse("the sizes must be known")
    target, sizes = result_shape, static_shape(g, data)
    surplus = len(sizes) - len(target)
    units = [axis for axis, size in enumerate(sizes) if size == 1]
    if [size for size in sizes if size != 1] != [size for size in target if size != 1] or surplus < 0:
        raise g.refuse("it moves other dimensions than those of size 1")
    if surplus:
        data = g.op("Squeeze", data, axes=units[:surplus])
        sizes = [size for axis, size in enumerate(sizes) if axis not in units[:surplus]]
    unit_axes, larger_axes = (
        [axis for axis, size in enumerate(sizes) if (size == 1) == flag] for flag in (True, False)
    )
    order = [unit_axes.pop(0) if size == 1 else larger_axes.pop(0) for size in target]
    return data if order == sorted(order) else g.op("Transpose", data, perm=order)


@onnx_symbolic("form::Transpose.blocks")
def transpose_blocks(g: GraphContext, data: Value, perm: list[int] | None = None) -> Value:
    """Exchanges of two neighbouring blocks of dimensions, each a Transpose of at most four dimensions.

    A first dimension of size 1, a batch of one, stays first and is not counted.
    """
    sizes = static_shape(g, data)
    order = list(perm if perm is not None else reversed(range(len(sizes))))
    has_batch = sizes[0] == 1
    if len(sizes) - has_batch <= 4 and not (has_batch and order[0]):
        raise g.refuse("it has at most four dimensions")
    if 0 in sizes:
        raise g.refuse("the tensor is empty")
    batch = [1] * has_batch
    target_axes = [axis for axis in order if sizes[axis] != 1]
    axes = sorted(target_axes)
    while axes != target_axes:
        start = next(i for i, axis in enumerate(axes) if axis != target_axes[i])
        first = end = axes.index(target_axes[start])
        while end < len(axes) and axes[end] == target_axes[start + end - first]:
            end += 1
        blocks = [axes[:start], axes[start:first], axes[first:end], axes[end:]]
        block_order = [number for number in (0, 2, 1, 3) if blocks[number]]
        present_blocks = sorted(block_order)
        shape = [math.prod(sizes[axis] for axis in blocks[number]) for number in present_blocks]
        positions = [present_blocks.index(number) + has_batch for number in block_order]
        data = g.op("Reshape", data, [*batch, *shape])
        data = g.op("Transpose", data, perm=[*range(has_batch), *positions])
        axes = [axis for number in (0, 2, 1, 3) for axis in blocks[number]]
    return g.op("Reshape", data, [sizes[axis] for axis in order])


@onnx_symbolic("form::Transpose.first_dimension")
def transpose_after_first_dimension(g: GraphContext, data: Value, perm: list[int] | None = None) -> Value:
    """A first dimension of size 1, a batch of one, stays first, and a Reshape moves it."""
    sizes = static_shape(g, data)
    order = list(perm if perm is not None else reversed(range(len(sizes))))
    if not sizes or sizes[0] != 1 or order[0] == 0:
        raise g.refuse("the first dimension is not of size 1, or stays where it is")
    inner = [axis for axis in order if axis]
    result = g.op("Transpose", data, perm=[0, *inner]) if inner != sorted(inner) else data
    return g.op("Reshape", result, [sizes[axis] for axis in order])


@onnx_symbolic("form::Split.earlier")
def split_earlier(
    g: GraphContext,
    input: Value,
    split: Value | list[int] | None = None,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int = 1,
) -> list[Value]:
    """A Split in front of the Transposes and Reshapes that compute its operand, which become those of parts.

    Queries, keys and values of a linear layer are then parts of its result, not of a tensor of rank 5.
    """
    sizes, parts = static_shape(g, input), integers(g, split)
    axis = g.axis(axis, len(sizes))
    if parts is None:
        parts = [-(-sizes[axis] // outputs)] * outputs
    if sum(parts) != sizes[axis]:
        raise g.refuse("the sizes of the parts must be known")
    source, source_axis, factor, steps = _steps_before(g, input, axis)
    base = static_shape(g, source)
    results: list[Value] = g.op(
        "Split", source, [part * factor for part in parts], axis=source_axis, outputs=outputs
    )
    for number, value in enumerate(results):
        # Emission infers no more than the ranks of these results, but the forms of later nodes read sizes.
        value.shape = ir.Shape([*base[:source_axis], parts[number] * factor, *base[source_axis + 1 :]])
        results[number] = _repeat_steps(g, value, steps, parts[number], sizes[axis])
    return results


Regions = dict[int, range]
"""The positions that a Slice of constants takes along each axis."""


SliceForm = Callable[[GraphContext, Value, Regions], Value]


def register_slice_form(form: str) -> Callable[[SliceForm], SliceForm]:
    """Register a function of the data and the regions as a form of Slice."""

    def register(slice_regions: SliceForm) -> SliceForm:
        @onnx_symbolic(f"form::Slice.{form}")
        def write_form(
            g: GraphContext,
            data: Value,
            starts: Value,
            ends: Value,
            axes: Value | None = None,
            steps: Value | None = None,
        ) -> Value:
            return slice_regions(g, data, _regions(g, data, starts, ends, axes, steps))

        return slice_regions

    return register


def _regions(
    g: GraphContext, data: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None
) -> Regions:
    sizes, numbers = static_shape(g, data), []
    for value in (starts, ends, axes, steps):
        array = None if value is None else g.constant_value(value)
        if value is not None and array is None:
            raise g.refuse("the positions must be constant")
        numbers.append(None if array is None else [int(number) for number in array])
    first, last, along, distances = numbers
    assert first is not None
    assert last is not None
    regions = {}
    for position, axis in enumerate(along if along is not None else range(len(first))):
        axis = g.axis(axis, len(sizes))
        step = 1 if distances is None else distances[position]
        # The end of a backward Slice that includes the first element is below the negative size.
        end = None if step < 0 and last[position] < -sizes[axis] else last[position]
        regions[axis] = range(sizes[axis])[first[position] : end : step]
    return regions


@register_slice_form("earlier")
def slice_earlier(g: GraphContext, data: Value, regions: Regions) -> Value:
    """A Slice along one axis in front of the Transposes and Reshapes that compute its operand."""
    if len(regions) != 1:
        raise g.refuse("it is along several axes")
    [(axis, region)] = regions.items()
    if region.step != 1 or not region:
        raise g.refuse("it has steps, or no elements")
    source, source_axis, factor, earlier = _steps_before(g, data, axis)
    first, end = region.start * factor, region.stop * factor
    part: Value = g.op("Slice", source, starts=[first], ends=[end], axes=[source_axis])
    base = static_shape(g, source)
    part.shape = ir.Shape([*base[:source_axis], end - first, *base[source_axis + 1 :]])
    return _repeat_steps(g, part, earlier, len(region), static_shape(g, data)[axis])


@register_slice_form("merged_dimensions")
def slice_merged_dimensions(g: GraphContext, data: Value, regions: Regions) -> Value:
    """Slices along single axes, with the dimensions before and after each merged."""
    for axis, region in regions.items():
        sizes = static_shape(g, data)
        if region.step != 1 or not region or len(sizes) < 5:
            raise g.refuse("it has steps or no elements, or few dimensions")
        first = 1 if sizes[0] == 1 else 0
        if axis < first:
            continue
        shape = [*sizes[:first], math.prod(sizes[first:axis]), sizes[axis], math.prod(sizes[axis + 1 :])]
        part = g.op("Reshape", data, shape)
        part = g.op("Slice", part, starts=[region.start], ends=[region.stop], axes=[first + 1])
        data = g.op("Reshape", part, [*sizes[:axis], len(region), *sizes[axis + 1 :]])
    return data


_Step = tuple[list[int] | None, list[int], int]
"""The permutation of a Transpose, or None for a Reshape, its shape, and the axis of the parts."""


def _steps_before(g: GraphContext, value: Value, axis: int) -> tuple[Value, int, int, list[_Step]]:
    """The Transposes and Reshapes before a value that keep its parts along an axis together, the last first.

    Returns:
        The value before them, its axis of the parts, how many of its elements are one part, and the steps.
    """
    steps: list[_Step] = []
    total = 1
    while (step := _step_before(g, value, axis)) is not None:
        operand, perm, earlier_axis, factor = step
        steps.append((perm, static_shape(g, value), axis))
        value, axis, total = operand, earlier_axis, total * factor
    if not steps:
        raise g.refuse("no Transpose or Reshape before it keeps the parts together")
    return value, axis, total, steps


def _repeat_steps(g: GraphContext, value: Value, steps: list[_Step], part: int, whole: int) -> Value:
    """The steps for a part of the value that they were for."""
    for perm, shape, axis in reversed(steps):
        part_shape = [*shape[:axis], part * shape[axis] // whole, *shape[axis + 1 :]]
        is_transposed = perm is not None
        value = g.op("Transpose", value, perm=perm) if is_transposed else g.op("Reshape", value, part_shape)
        value.shape = ir.Shape(part_shape)
    return value


def _step_before(g: GraphContext, value: Value, axis: int) -> tuple[Value, list[int] | None, int, int] | None:
    """The operand of the Transpose or Reshape that computes a value, the permutation, and how to split it.

    Returns:
        The operand, the permutation of a Transpose, the axis of the operand, and how many of its elements
        are one of the value along `axis`; None for other operators, or if a part is no part of the operand.
    """
    producer = value.producer()
    operand = producer.inputs[0] if producer is not None and producer.inputs else None
    if producer is None or operand is None or producer.domain:
        return None
    before, after = static_shape(g, operand), static_shape(g, value)
    if producer.op_type == "Transpose":
        perm = list(producer.attributes.get_ints("perm") or reversed(range(len(before))))
        return operand, perm, perm[axis], 1
    if producer.op_type != "Reshape" or 0 in after:
        return None
    # The split dimension is the outermost factor of the operand's dimension at the same stride.
    leading = math.prod(after[:axis])
    for earlier_axis, size in enumerate(before):
        if math.prod(before[:earlier_axis]) == leading and size > 1:
            is_factor = size % after[axis] == 0
            return (operand, None, earlier_axis, size // after[axis]) if is_factor else None
    return None


@onnx_symbolic("form::Concat.first_dimension")
def concat_along_first_dimension(g: GraphContext, inputs: list[Value], axis: int) -> Value:
    """Dimensions of size 1 before the axis are removed from the operands, and added to the result."""
    shape = g.shape(inputs[0])
    if shape is None or not (leading := range(g.axis(axis, len(shape)))):
        raise g.refuse("the axis is the first dimension, or the rank is unknown")
    if any(shape[position] != 1 for position in leading):
        raise g.refuse("a dimension before the axis is not of size 1")
    operands = [
        g.op("Squeeze", operand, axes=list(leading))
        if (array := g.constant_value(operand)) is None
        else g.constant(array.reshape(array.shape[len(leading) :]))
        for operand in inputs
    ]
    return g.op("Unsqueeze", g.op("Concat", *operands, axis=0), axes=list(leading))


@onnx_symbolic("form::Gather.slice")
def gather_as_slice(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Positions at equal distances as a Slice, and one position without a dimension also as a Squeeze."""
    array, sizes = g.constant_value(indices), static_shape(g, data)
    if array is None or array.ndim > 1 or not array.size:
        raise g.refuse("only constant positions in a row become a Slice")
    axis = g.axis(axis, len(sizes))
    positions = [int(number) + (sizes[axis] if number < 0 else 0) for number in array.reshape(-1)]
    steps = {after - before for before, after in itertools.pairwise(positions)} or {1}
    step = steps.pop()
    if steps or step < 1:
        raise g.refuse("the positions are not at equal distances")
    part = g.op("Slice", data, starts=[positions[0]], ends=[positions[-1] + 1], axes=[axis], steps=[step])
    return part if array.ndim else g.op("Squeeze", part, axes=[axis])


@onnx_symbolic("form::Gather.convolution")
def gather_as_convolution(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Channels of an image in another order, as a convolution that copies each."""
    array, dtype = g.constant_value(indices), g.dtype(data)
    shape = g.shape(data)
    channels = shape[1] if shape is not None and len(shape) == 4 and axis == 1 else None
    if not isinstance(channels, int) or array is None or array.ndim != 1 or dtype not in FLOATS:
        raise g.refuse("only known channels of an image are copied by a convolution")
    kernel = np.zeros((array.size, channels, 1, 1), np.float32)
    kernel[np.arange(array.size), array % channels] = 1
    return g.op("Conv", data, g.constant(kernel, dtype))


@onnx_symbolic("form::Gather.axis_from_end")
def gather_from_end(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Channels in another order, with an axis that is counted from the end.

    OpenVINO moves such a Gather into the weights of a convolution behind it, in the inverse order, if its
    axis is counted from the front. An order that is its own inverse is right.
    """
    array, size, rank = g.constant_value(indices), g.size(data, axis), g.rank(data)
    if array is None or array.ndim != 1 or not isinstance(size, int) or rank is None or axis < 0:
        raise g.refuse("the positions or the sizes are not known, or the axis is counted from the end")
    order = array % size if size else array
    if sorted(order) != list(range(size)) or np.array_equal(order[order], np.arange(size)):
        raise g.refuse("it is no order of all channels, or its own inverse")
    return g.op("Gather", data, indices, axis=axis - rank)


@onnx_symbolic("form::Gather.copies")
def gather_as_copies(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Copies of a batch of one side by side, which become a batch by a Reshape."""
    array, sizes = g.constant_value(indices), static_shape(g, data)
    if array is None or array.ndim != 1 or not 1 < array.size <= MAXIMUM_PARTS or g.axis(axis, len(sizes)):
        raise g.refuse(f"only 2 to {MAXIMUM_PARTS} constant positions along the first dimension are copies")
    if sizes[0] != 1 or len(sizes) < 2:
        raise g.refuse("the first dimension is not of size 1")
    row = g.op("Reshape", data, [1, 1, math.prod(sizes)])
    return g.op("Reshape", g.op("Concat", *[row] * array.size, axis=1), [array.size, *sizes[1:]])


@onnx_symbolic("form::Gather.matrix_of_positions")
def gather_by_matrix(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """A vector of positions as a matrix of one row, behind which a Reshape removes the row."""
    if g.rank(indices) != 1:
        raise g.refuse("the positions are no vector")
    return _gather_one_row(g, data, indices, axis)


@onnx_symbolic("form::Gather.one_row")
def gather_by_one_row(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Positions of several rows as a matrix of one row: consumers take rows for images of a batch."""
    counts = static_shape(g, indices)
    if len(counts) < 2 or (len(counts) == 2 and counts[0] == 1):
        raise g.refuse("the positions are a vector, or a matrix of one row")
    return _gather_one_row(g, data, indices, axis)


def _gather_one_row(g: GraphContext, data: Value, indices: Value, axis: int) -> Value:
    sizes, counts = static_shape(g, data), static_shape(g, indices)
    axis = g.axis(axis, len(sizes))
    rows = g.op("Gather", data, g.op("Reshape", indices, [1, math.prod(counts)]), axis=axis)
    return g.op("Reshape", rows, [*sizes[:axis], *counts, *sizes[axis + 1 :]])


@onnx_symbolic("form::SpaceToDepth.convolution")
def space_to_depth(g: GraphContext, input: Value, blocksize: int) -> Value:
    """A convolution that copies each element of a block into a channel of its own."""
    channels, area = static_shape(g, input)[1], blocksize * blocksize
    kernel = np.zeros((area * channels, channels, blocksize, blocksize), np.float32)
    for row, column, channel in itertools.product(range(blocksize), range(blocksize), range(channels)):
        kernel[(row * blocksize + column) * channels + channel, channel, row, column] = 1
    return g.op("Conv", input, g.constant(kernel, g.dtype(input)), strides=[blocksize, blocksize])


@register_slice_form("gather")
def slice_as_gather(g: GraphContext, data: Value, regions: Regions) -> Value:
    """Backward steps as a Gather of positions."""
    if all(region.step == 1 for region in regions.values()):
        raise g.refuse("only steps become positions")
    for axis, region in regions.items():
        data = g.op("Gather", data, np.array(region, np.int64), axis=axis)
    return data


@register_slice_form("pooling")
def slice_as_pooling(g: GraphContext, data: Value, regions: Regions) -> Value:
    """Forward steps over an image as a MaxPool of single elements."""
    strides = {axis: region.step for axis, region in regions.items() if region.step != 1}
    if g.rank(data) != 4 or not strides or min(strides) < 2 or min(strides.values()) < 1:
        raise g.refuse("only forward steps over the dimensions of an image become strides")
    if not all(len(region) for region in regions.values()):
        raise g.refuse("the result has no elements")
    bounds = {axis: (region[0], region[-1] + 1) for axis, region in regions.items()}
    starts_of_part, ends_of_part = zip(*bounds.values(), strict=True)
    part = g.op("Slice", data, starts=[*starts_of_part], ends=[*ends_of_part], axes=[*bounds])
    return g.op("MaxPool", part, kernel_shape=[1, 1], strides=[strides.get(2, 1), strides.get(3, 1)])


@register_slice_form("runs")
def slice_as_runs(g: GraphContext, data: Value, regions: Regions) -> Value:
    """Forward steps that divide a dimension: the first elements of runs, which join the next dimension."""
    for axis, region in regions.items():
        sizes, step = static_shape(g, data), region.step
        first, count = region.start, len(region)
        if step == 1 and count == sizes[axis]:
            continue
        if step < 1 or axis + 1 == len(sizes) or sizes[axis] % step or count * step != sizes[axis]:
            raise g.refuse("the steps are backward, of the last dimension, or do not divide the dimension")
        width = sizes[axis + 1]
        runs = g.op("Reshape", data, [*sizes[:axis], count, step * width, *sizes[axis + 2 :]])
        data = g.op("Slice", runs, starts=[first * width], ends=[(first + 1) * width], axes=[axis + 1])
    return data


@onnx_symbolic("form::Tile.concat")
def tile_as_concat(g: GraphContext, input: Value, repeats: Value) -> Value:
    """Copies side by side."""
    counts = g.constant_value(repeats)
    if counts is None or not 0 < int(np.prod(counts)) <= 64:
        raise g.refuse("only a few copies are written side by side")
    for axis, count in enumerate(counts):
        if count > 1:
            input = g.op("Concat", *[input] * int(count), axis=axis)
    return input


def _merged_shapes(g: GraphContext, *shapes: list[int]) -> list[list[int]]:
    """Shapes of equal rank with neighbouring dimensions merged that are broadcast in the same operands.

    A first dimension of size 1, a batch of one, stays first.
    """
    result = np.broadcast_shapes(*map(tuple, shapes))
    groups: list[tuple[bool, ...]] = []
    merged: list[list[int]] = [[1] * (result[0] == 1) for _ in shapes]
    for axis, size in enumerate(result):
        if size == 1:
            continue
        pattern = tuple(shape[axis] == 1 for shape in shapes)
        is_new = not groups or groups[-1] != pattern
        for sizes, shape in zip(merged, shapes, strict=True):
            sizes[-1:] = [*sizes[-1:], shape[axis]] if is_new else [sizes[-1] * shape[axis]]
        groups.append(pattern)
    if len(merged[0]) >= len(result):
        raise g.refuse("no dimensions are merged")
    return merged


def _align_shape(g: GraphContext, value: Value, rank: int) -> list[int]:
    sizes = static_shape(g, value)
    return [1] * (rank - len(sizes)) + sizes


def _register_merged_dimensions(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.merged_dimensions")
    def with_merged_dimensions(
        g: GraphContext, A: Value, B: Value, result_shape: list[int] | None = None
    ) -> Value:
        """Neighbouring dimensions that are broadcast in the same operand, or in none, as one."""
        if result_shape is None:
            raise g.refuse("the sizes must be known")
        aligned = [_align_shape(g, operand, len(result_shape)) for operand in (A, B)]
        merged = _merged_shapes(g, *aligned)
        operands = [g.op("Reshape", value, sizes) for value, sizes in zip((A, B), merged, strict=True)]
        return g.op("Reshape", g.op(op_type, *operands), result_shape)


for _op_type in ("Add", "Div", "Mul", "Sub"):
    _register_merged_dimensions(_op_type)


@onnx_symbolic("form::Expand.merged_dimensions")
def expand_merged_dimensions(
    g: GraphContext, input: Value, shape: Value, result_shape: list[int] | None = None
) -> Value:
    """Neighbouring dimensions that are expanded, or are not, as one."""
    if result_shape is None:
        raise g.refuse("the sizes must be known")
    before, after = _merged_shapes(g, _align_shape(g, input, len(result_shape)), result_shape)
    return g.op("Reshape", g.op("Expand", g.op("Reshape", input, before), after), result_shape)
