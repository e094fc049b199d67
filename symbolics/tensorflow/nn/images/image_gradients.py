"""Gradients of crops and of the normalization over neighbouring channels.

Semantics: tensorflow/core/kernels/image/crop_and_resize_op.cc and tensorflow/core/kernels/lrn_op.cc.
"""

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import Size, compute
from ....compositions.special.formulas import Formula, round_half_away
from ..._common import range_vector
from ..layout import IMAGES, set_rank
from ..size_operands import list_sizes
from .colours_and_crops import crop_coordinates


@onnx_symbolic("tf::LRNGrad")
def lrn_grad(
    g: GraphContext,
    input_grads: Value,
    input_image: Value,
    output_image: Value,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
) -> Value:
    set_rank(g, input_image, 4)
    dtype = g.dtype(input_image) or DataType.FLOAT
    positions = range_vector(g, g.size(input_image, 3))
    distances = g.op("Abs", g.op("Sub", *(g.op("Unsqueeze", positions, axes=[axis]) for axis in (0, 1))))
    # The channels of a window, as a matrix of 0 and 1: the sum of each window is a product with it.
    window = Formula(g, g.cast(g.op("Not", g.op("Greater", distances, depth_radius)), dtype))
    x, y, gradients = (Formula(g, value) for value in (input_image, output_image, input_grads))
    norm = (x * x).op("MatMul", window) * alpha + bias
    shares = (gradients * y / norm).op("MatMul", window)
    return (gradients * norm**-beta - x * (2 * alpha * beta) * shares).value


class _CropAxis:
    """The rows or the columns of crops: which pixels of the image each of them reads.

    Attributes:
        weights: the weight of each pixel, [boxes, count, size].
        slopes: the derivative of the weights by the coordinate, [boxes, count, size].
        shares: how the coordinate depends on the low and on the high edge of the box, [count] each.
    """

    def __init__(
        self,
        g: GraphContext,
        boxes: Value,
        axis: int,
        image_size: Size,
        count: Size,
        method: str = "bilinear",
    ):
        size = g.constant(image_size, DataType.INT64)
        low, high = (Formula(g, g.op("Gather", boxes, [axis + side], axis=1)) for side in (0, 2))
        coordinates = crop_coordinates(g, low, high, size, count)
        last = Formula(g, g.cast(g.op("Sub", size, 1), DataType.FLOAT))
        is_inside = Formula(
            g, g.op("Unsqueeze", (~((coordinates < 0.0) | (coordinates > last))).value, axes=[2])
        )
        points = Formula(g, g.op("Unsqueeze", coordinates.value, axes=[2]))
        pixels = Formula(g, g.cast(range_vector(g, image_size), DataType.FLOAT))
        if method == "nearest":
            weights = pixels.equals(round_half_away(points)).cast(DataType.FLOAT)
        elif method == "bilinear":
            weights = (1.0 - abs(points - pixels)).op("Max", 0.0)
        else:
            raise g.refuse(f"method '{method}' is not supported")
        slopes = pixels.equals(points.op("Ceil")).cast(DataType.FLOAT) - pixels.equals(points.floor()).cast(
            DataType.FLOAT
        )
        self.weights, self.slopes = (is_inside.chosen(part, 0.0) for part in (weights, slopes))
        numbers = Formula(g, g.cast(range_vector(g, count), DataType.FLOAT))
        gaps = Formula(g, g.cast(g.constant(compute(g, "sub", count, 1), DataType.INT64), DataType.FLOAT))
        # A single pixel is the centre of the box.
        fraction = (gaps < 1.0).chosen(numbers + 0.5, numbers / gaps.op("Max", 1.0))
        self.shares = ((1.0 - fraction) * last, fraction * last)


def _with_channels(matrices: Formula) -> Value:
    """Matrices of the boxes, [boxes, 1, ...], for products with [boxes, channels, ...]."""
    return matrices.g.op("Unsqueeze", matrices.value, axes=[1])


def _transpose_matrices(g: GraphContext, matrices: Value) -> Value:
    return g.op("Transpose", matrices, perm=[0, 1, 3, 2])


@onnx_symbolic("tf::CropAndResizeGradImage")
def crop_and_resize_grad_image(
    g: GraphContext,
    grads: Value,
    boxes: Value,
    box_ind: Value,
    image_size: Value,
    T: DataType,
    method: str = "bilinear",
) -> Value:
    """The gradients [boxes, height, width, channels] of crops, added to the pixels that they read."""
    set_rank(g, grads, 4)
    set_rank(g, boxes, 2)
    set_rank(g, box_ind, 1)
    batch, height, width, channels = list_sizes(g, image_size, 4)
    rows = _CropAxis(g, boxes, 0, height, g.size(grads, 1), method)
    columns = _CropAxis(g, boxes, 1, width, g.size(grads, 2), method)
    planes = g.cast(IMAGES.channels_first(g, grads), DataType.FLOAT)
    spread = g.op("MatMul", _transpose_matrices(g, _with_channels(rows.weights)), planes)
    spread = g.op("MatMul", spread, _with_channels(columns.weights))
    sizes = [batch, channels, height, width]
    zeros = g.call("composed::full", size=sizes, fill_value=0, dtype=DataType.FLOAT)
    total = g.call("composed::accumulate_rows", zeros, g.cast(box_ind, DataType.INT64), spread)
    return g.cast(IMAGES.restore(g, total), T)


@onnx_symbolic("tf::CropAndResizeGradBoxes")
def crop_and_resize_grad_boxes(
    g: GraphContext, grads: Value, image: Value, boxes: Value, box_ind: Value, method: str = "bilinear"
) -> Value:
    """The gradients [boxes, 4] of the edges of the boxes."""
    if method != "bilinear":
        raise g.refuse(f"method '{method}' is not supported")
    set_rank(g, grads, 4)
    set_rank(g, image, 4)
    rows = _CropAxis(g, boxes, 0, g.size(image, 1), g.size(grads, 1))
    columns = _CropAxis(g, boxes, 1, g.size(image, 2), g.size(grads, 2))
    planes = g.cast(IMAGES.channels_first(g, image), DataType.FLOAT)
    pixels = g.op("Gather", planes, g.cast(box_ind, DataType.INT64), axis=0)
    gradients = IMAGES.channels_first(g, grads)
    results: list[list[Value]] = []
    for axis, row_matrix, column_matrix, summed in (
        (rows, rows.slopes, columns.weights, [1, 3]),
        (columns, rows.weights, columns.slopes, [1, 2]),
    ):
        change = g.op("MatMul", _with_channels(row_matrix), pixels)
        change = g.op("MatMul", change, _transpose_matrices(g, _with_channels(column_matrix)))
        by_point = g.op("ReduceSum", g.op("Mul", change, gradients), axes=summed, keepdims=0)
        results.append(
            [g.op("ReduceSum", g.op("Mul", by_point, s.value), axes=[1], keepdims=1) for s in axis.shares]
        )
    (top, bottom), (left, right) = results
    return g.op("Concat", top, left, bottom, right, axis=1)
