"""Products in the forms that consumers know."""

import itertools
import math
from typing import Any

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from ....registration.dtypes import FLOATS
from ...compositions.einsum import parse_equation
from .padding import pad_spatial
from .sizes import all_static, static_shape


@onnx_symbolic("form::Einsum.products")
def einsum(g: GraphContext, Inputs: list[Value], equation: str) -> Value:
    """The composition of products and sums, unless it is a product of two operands of equal sizes.

    Consumers differ in vectors, diagonals, sizes of 1 beside others, and in one or more than two operands.
    """
    shapes = [g.shape(operand) for operand in Inputs]
    ranks = [len(shape) for shape in shapes if shape is not None]
    if len(ranks) == len(Inputs) == 2 and 1 not in ranks:
        labels = parse_equation(g, equation, ranks).operands
        size_of_label = {
            label: size
            for names, shape in zip(labels, shapes, strict=True)
            for label, size in zip(names, shape or (), strict=True)
        }
        has_diagonals = any(len({*names}) < len(names) for names in labels)
        is_broadcast = any(
            tuple(shape or ()) != tuple(size_of_label[label] for label in names)
            for names, shape in zip(labels, shapes, strict=True)
        )
        if not has_diagonals and not is_broadcast:
            raise g.refuse("it is a product of two operands of equal sizes")
    return g.call("onnx::Einsum", Inputs, equation)


@onnx_symbolic("form::MatMul.single_weight")
def multiply_by_one_weight(g: GraphContext, A: Value, B: Value) -> Value:
    """A product with a matrix of one element, as a multiplication."""
    weight = g.constant_value(B)
    if weight is None or weight.shape != (1, 1):
        raise g.refuse("the second operand is not a constant matrix of one element")
    result: Value = g.op("Mul", A, g.constant(weight.reshape(())))
    return result


@onnx_symbolic("form::Gemm.three_dimensions")
def gemm(
    g: GraphContext,
    A: Value,
    B: Value,
    C: Value | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """A product of a batch of one matrix, with a constant weight."""
    weight = g.constant_value(B)
    if weight is None or transA or alpha != 1 or (C is not None and beta != 1):
        raise g.refuse("the weight is computed, the first operand is transposed, or a factor is not 1")
    matrix = g.constant(np.ascontiguousarray(weight.T)) if transB else B
    product = g.op("MatMul", g.op("Unsqueeze", A, axes=[0]), matrix)
    return g.op("Squeeze", product if C is None else g.op("Add", product, C), axes=[0])


@onnx_symbolic("form::Conv.product")
def convolve_by_product(
    g: GraphContext,
    X: Value,
    W: Value,
    B: Value | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    result_shape: list[int] | None = None,
) -> Value:
    """A convolution of images by computed weights, as a product of these and of the windows."""
    shape, kernel = g.shape(X), g.shape(W)
    if shape is None or kernel is None or result_shape is None or len(shape) != 4 or auto_pad != "NOTSET":
        raise g.refuse("only a known padding of images becomes one of windows")
    channels, taps_of_channel = shape[1], [size for size in kernel[1:] if isinstance(size, int)]
    if not all_static(shape) or len(taps_of_channel) != 3 or not isinstance(channels, int):
        raise g.refuse("the sizes must be known")
    batch, outputs, *sizes = result_shape
    (_, rows, columns), area = taps_of_channel, math.prod(sizes)
    padding, steps = pads or [0] * 4, strides or [1, 1]
    pads_before, pads_after = padding[:2], padding[2:]
    spread = dilations or [1, 1]
    starts = [
        [position * step for position, step in zip(offset, spread, strict=True)]
        for offset in itertools.product(range(rows), range(columns))
    ]
    ends = [
        [first + (size - 1) * step + 1 for first, size, step in zip(firsts, sizes, steps, strict=True)]
        for firsts in starts
    ]
    image, flat = g.constant_value(X), [batch, channels, 1, area]
    if image is not None:
        image = np.pad(image, ((0, 0), (0, 0), *zip(pads_before, pads_after, strict=True)))
        joined = g.constant(
            np.concatenate(
                [
                    image[:, :, y : bottom_end : steps[0], x : right_end : steps[1]].reshape(flat)
                    for (y, x), (bottom_end, right_end) in zip(starts, ends, strict=True)
                ],
                axis=2,
            )
        )
    else:
        if any(padding):
            X = pad_spatial(g, X, padding)
        windows = [
            g.op("Reshape", g.op("Slice", X, starts=first, ends=last, axes=[2, 3], steps=steps), flat)
            for first, last in zip(starts, ends, strict=True)
        ]
        joined = windows[0] if len(windows) == 1 else g.op("Concat", *windows, axis=2)
    taps = math.prod(taps_of_channel)
    groups = [group] if group > 1 else []
    matrix = g.op("Reshape", W, [1, *groups, outputs // group, taps])
    product = g.op("MatMul", matrix, g.op("Reshape", joined, [batch, *groups, taps, area]))
    result = g.op("Reshape", product, result_shape)
    if B is None:
        return result
    bias = g.constant_value(B)
    column = [1, outputs, 1, 1]
    return g.op(
        "Add", result, g.op("Reshape", B, column) if bias is None else g.constant(bias.reshape(column))
    )


@onnx_symbolic("form::Gemm.separate_bias")
def gemm_without_bias(
    g: GraphContext, A: Value, B: Value, C: Value | None = None, beta: float = 1.0, **attributes: Any
) -> Value:
    """A product of two operands, and an Add of the third one."""
    if C is None:
        raise g.refuse("there is no third operand")
    product = g.op("Gemm", A, B, **attributes)
    return g.op("Add", product, C if beta == 1 else g.op("Mul", C, beta))


@onnx_symbolic("form::Gemm.separate_vector")
def gemm_without_vector(
    g: GraphContext, A: Value, B: Value, C: Value | None = None, **attributes: Any
) -> Value:
    """A product of two operands, and an Add of a vector."""
    if C is None or g.rank(C) != 1:
        raise g.refuse("the third operand is not a vector")
    return gemm_without_bias(g, A, B, C, **attributes)


@onnx_symbolic("form::MatMul.merged_dimensions")
def matmul_of_rows(g: GraphContext, A: Value, B: Value) -> Value:
    """A product with a matrix, with the dimensions of the rows as one; a batch of one stays first."""
    shape, matrix = g.shape(A), g.shape(B)
    sizes = [size for size in (*(shape or ()), *(matrix or ())) if isinstance(size, int)]
    if shape is None or matrix is None or len(matrix) != 2 or len(shape) + 2 != len(sizes) or len(shape) < 4:
        raise g.refuse("the second operand is no matrix, the rank is below 4, or sizes are unknown")
    *leading, depth, _, columns = sizes
    batch = [1] * (leading[0] == 1)
    rows = g.op("Reshape", A, [*batch, math.prod(leading), depth])
    return g.op("Reshape", g.op("MatMul", rows, B), [*leading, columns])


@onnx_symbolic("form::MatMul.matrices")
def matmul_of_vectors(g: GraphContext, A: Value, B: Value, result_shape: list[int] | None = None) -> Value:
    """Vectors as matrices of one row or one column."""
    left_rank, right_rank = g.rank(A), g.rank(B)
    if left_rank is None or right_rank is None or 1 not in (left_rank, right_rank):
        raise g.refuse("no operand is a vector, or a rank is unknown")
    matrix_a = g.op("Unsqueeze", A, axes=[0]) if left_rank == 1 else A
    matrix_b = g.op("Unsqueeze", B, axes=[1]) if right_rank == 1 else B
    product = g.op("MatMul", matrix_a, matrix_b)
    if result_shape:
        return g.op("Reshape", product, result_shape)
    # The size of the row is the one before the last, that of the column the last one.
    added_axes = [-2] * (left_rank == 1) + [-1] * (right_rank == 1)
    return g.op("Squeeze", product, axes=added_axes)


@onnx_symbolic("form::MatMul.same_shape")
def matmul(g: GraphContext, A: Value, B: Value, result_shape: list[int] | None = None) -> Value:
    """A product behind which a Reshape to its own shape keeps a consumer from fusing the next operator."""
    if result_shape is None or 0 in result_shape:
        raise g.refuse("the sizes must be known")
    return g.op("Reshape", g.op("MatMul", A, B), result_shape)


@onnx_symbolic("form::GatherElements.relative_positions")
def gather_relative_positions(g: GraphContext, data: Value, indices: Value, axis: int = 0) -> Value:
    """Constant positions that depend on the distance of column and row only, as in relative attention.

    A product with one-hot columns gives each row the elements of all distances. In rows that are one element
    shorter, the first columns are the result.
    """
    shape, array = g.shape(data), g.constant_value(indices)
    if array is None or array.ndim < 2 or array.shape[-1] == 0 or g.dtype(data) not in FLOATS:
        raise g.refuse("the positions are computed, have no rows, or the elements are no floats")
    if shape is None or not all_static(shape) or g.axis(axis, array.ndim) != array.ndim - 1:
        raise g.refuse("the sizes are unknown, or the axis is not the last one")
    *leading, rows, columns = array.shape
    *data_sizes, width = (size for size in shape if isinstance(size, int))
    matrices = array.reshape(-1, rows, columns) % width
    matrix = matrices[0]
    if data_sizes != [*leading, rows] or (matrices != matrix).any():
        raise g.refuse("the positions differ between matrices, or not all rows are read")
    if not np.array_equal(matrix[1:, 1:], matrix[:-1, :-1]):
        raise g.refuse("the positions do not depend on the distance of column and row only")
    positions = np.concatenate((matrix[::-1, 0], matrix[0, 1:]))
    count = len(positions)
    one_hot = np.zeros((width, count), np.float32)
    one_hot[positions, np.arange(count)] = 1
    distances: Value = g.op("MatMul", data, g.constant(one_hot, g.dtype(data)))
    if rows == 1:
        return distances
    flat = g.op("Reshape", distances, [*leading, rows * count])
    start, length = rows - 1, rows * (count - 1)
    flat = g.op("Slice", flat, starts=[start], ends=[start + length], axes=[len(leading)])
    shifted = g.op("Reshape", flat, [*leading, rows, count - 1])
    return g.op("Slice", shifted, starts=[0], ends=[columns], axes=[array.ndim - 1])


@onnx_symbolic("form::ConvTranspose.convolution")
def transposed_by_convolution(
    g: GraphContext,
    X: Value,
    W: Value,
    B: Value | None = None,
    dilations: list[int] | None = None,
    group: int = 1,
    output_padding: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    auto_pad: str = "NOTSET",
    **arguments: Any,
) -> Value:
    """A convolution of the data with zeros between them, by the kernel in reverse."""
    sizes, kernel = static_shape(g, X), static_shape(g, W)
    spatial = len(sizes) - 2
    steps, strides, ends = (
        dilations or [1] * spatial,
        strides or [1] * spatial,
        output_padding or [0] * spatial,
    )
    pads = pads or [0] * 2 * spatial
    reach = [step * (taps - 1) for step, taps in zip(steps, kernel[2:], strict=True)]
    before = [reach[axis] - pads[axis] for axis in range(spatial)]
    after = [reach[axis] - pads[axis + spatial] + ends[axis] for axis in range(spatial)]
    if auto_pad != "NOTSET" or arguments.get("output_shape") or min(*before, *after) < 0:
        raise g.refuse("the padding is not known, or cuts off more than the kernel reaches")
    data = X
    for axis, stride in enumerate(strides, 2):
        if stride > 1:
            lead, size, tail = math.prod(sizes[:axis]), sizes[axis], math.prod(sizes[axis + 1 :])
            data = g.op("Reshape", data, [lead, size, 1, tail])
            data = g.op("Pad", data, [0, 0, 0, 0, 0, 0, stride - 1, 0])
            sizes[axis] = (size - 1) * stride + 1
            data = g.op("Reshape", data, [lead, size * stride, tail])
            data = g.op("Slice", data, starts=[0], ends=[sizes[axis]], axes=[1])
            data = g.op("Reshape", data, sizes)
    rows, columns, *taps = kernel
    weights = g.op("Reshape", W, [group, rows // group, columns, *taps])
    weights = g.op("Transpose", weights, perm=[0, 2, 1, *range(3, spatial + 3)])
    weights = g.op("Reshape", weights, [group * columns, rows // group, *taps])
    for axis, count in enumerate(taps, 2):
        if count > 1:
            weights = g.op("Gather", weights, np.arange(count - 1, -1, -1, dtype=np.int64), axis=axis)
    padding = [*before, *after]
    return g.op("Conv", data, weights, B, dilations=steps, group=group, pads=padding, kernel_shape=taps)
