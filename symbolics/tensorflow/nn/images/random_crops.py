"""Random crops of images that cover enough of a box.

Semantics: tensorflow/core/kernels/image/sample_distorted_bounding_box_op.cc. TensorFlow draws one crop after
the other until one is accepted. Here all attempts are drawn at once, and the first accepted one is selected.
"""

from collections.abc import Sequence

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from .....registration.warning import warn
from ....compositions.operator_tables import register_variant
from ....compositions.special.formulas import Formula
from ..._common import set_shape

_LEAST_AREA = 1.0
"""Smaller boxes count neither as objects nor as crops."""
_EPSILON = 1e-7

Box = tuple[Formula, Formula, Formula, Formula]
"""Its first row and column, and the ends of its rows and columns, in pixels."""


def sample_distorted_bounding_box(
    g: GraphContext,
    image_size: Value,
    bounding_boxes: Value,
    min_object_covered: Value | float = 0.1,
    seed: int = 0,
    seed2: int = 0,
    aspect_ratio_range: Sequence[float] = (0.75, 1.33),
    area_range: Sequence[float] = (0.05, 1.0),
    max_attempts: int = 100,
    use_image_if_no_bounding_boxes: bool = False,
) -> list[Value]:
    """The first pixel and the size of the crop, and its box from 0 to 1; the whole image if no crop fits."""
    g.reserve(max_attempts)
    height, width = (
        Formula(g, g.cast(g.op("Gather", image_size, [axis], axis=0), DataType.FLOAT)) for axis in (0, 1)
    )
    is_valid, crop = _draw_crops(g, height, width, aspect_ratio_range, area_range, max_attempts)
    objects = g.op("Reshape", bounding_boxes, [-1, 4])
    if use_image_if_no_bounding_boxes:
        # A box without area, which does not count, is added where there are boxes.
        is_empty = g.cast(g.op("Equal", g.op("Size", bounding_boxes), 0), DataType.FLOAT)
        added_box = g.op("Mul", g.constant([[0.0, 0.0, 1.0, 1.0]], DataType.FLOAT), is_empty)
        objects = g.op("Concat", objects, added_box, axis=0)
    is_accepted = is_valid & _covers(g, crop, objects, height, width, min_object_covered)
    accepted = g.cast(is_accepted.value, DataType.FLOAT)
    position = set_shape(g.op("ArgMax", accepted, axis=0, keepdims=1), [1])
    any_accepted = Formula(g, g.op("Greater", g.op("ReduceMax", accepted, axes=[0], keepdims=1), 0.5))
    image = (height * 0.0, width * 0.0, height, width)
    top, left, bottom, right = (
        any_accepted.chosen(Formula(g, g.op("Gather", edge.value, position, axis=0)), whole)
        for edge, whole in zip(crop, image, strict=True)
    )
    dtype = g.dtype(image_size) or DataType.INT32
    pixels = [
        [g.cast(part.value, dtype) for part in parts] for parts in ((top, left), (bottom - top, right - left))
    ]
    begin, size = (
        set_shape(g.op("Concat", *parts, g.constant([last], dtype), axis=0), [3])
        for parts, last in zip(pixels, (0, -1), strict=True)
    )
    ends = [part.value for part in (top / height, left / width, bottom / height, right / width)]
    return [begin, size, set_shape(g.op("Reshape", g.op("Concat", *ends, axis=0), [1, 1, 4]), [1, 1, 4])]


def _draw_crops(
    g: GraphContext,
    height: Formula,
    width: Formula,
    aspect_ratio_range: Sequence[float],
    area_range: Sequence[float],
    count: int,
) -> tuple[Formula, Box]:
    """Crops with random aspect ratios, areas and positions, and whether each has an allowed area."""
    uniform = g.call("composed::uniform", [4, count], DataType.FLOAT)
    ratio, extent, down, across = (Formula(g, g.op("Gather", uniform, row, axis=0)) for row in range(4))
    aspect = ratio * (aspect_ratio_range[1] - aspect_ratio_range[0]) + aspect_ratio_range[0]
    least_area, most_area = (height * width * bound for bound in area_range)
    least, most = ((area / aspect).sqrt().op("Round") for area in (least_area, most_area))
    # The greatest number of rows whose columns fit into the image.
    fitting = ((width + (0.5 - _EPSILON)) / aspect).floor()
    fitting = ((fitting * aspect).op("Round") > width).chosen(fitting - 1.0, fitting)
    most = ((most * aspect).op("Round") > width).chosen(fitting, most).op("Min", height)
    rows = least.op("Min", most)
    rows = rows + _draw_integers(extent, most - rows + 1.0)
    # Rounding may have led out of the allowed areas.
    rows = (rows * (rows * aspect).op("Round") < least_area).chosen(rows + 1.0, rows)
    rows = (rows * (rows * aspect).op("Round") > most_area).chosen(rows - 1.0, rows)
    columns = (rows * aspect).op("Round")
    area = rows * columns
    is_valid = (
        (area >= least_area) & (area <= most_area) & (rows <= height) & (columns <= width) & (area > 0.0)
    )
    top, left = _draw_integers(down, height - rows), _draw_integers(across, width - columns)
    return is_valid, (top, left, top + rows, left + columns)


def _draw_integers(uniform: Formula, count: Formula) -> Formula:
    """Random integers from 0 to `count - 1`, or 0 if the count is 0."""
    # The product of a number just below 1 may round up to the count.
    return (uniform * count).floor().op("Min", count - 1.0).op("Max", 0.0)


def _covers(
    g: GraphContext, crop: Box, objects: Value, height: Formula, width: Formula, least: Value | float
) -> Formula:
    """Whether each crop covers the least fraction of one of the objects, which are boxes from 0 to 1."""
    # Truncated to whole pixels, as a column, so that objects are rows and crops are columns.
    edges: list[Formula] = []
    for index, size in enumerate((height, width, height, width)):
        edges.append((Formula(g, g.op("Gather", objects, [index], axis=1)) * size).floor())
    top, left, bottom, right = edges
    area = (bottom - top) * (right - left)
    crop_top, crop_left, crop_bottom, crop_right = crop
    common_rows = (bottom.op("Min", crop_bottom) - top.op("Max", crop_top)).op("Max", 0.0)
    common_columns = (right.op("Min", crop_right) - left.op("Max", crop_left)).op("Max", 0.0)
    fraction = common_rows * common_columns / area.op("Max", _LEAST_AREA)
    minimum = Formula(g, least) if isinstance(least, Value) else least
    is_covered = (area >= _LEAST_AREA) & (fraction >= minimum)
    covered_count = g.op("ReduceSum", g.cast(is_covered.value, DataType.FLOAT), axes=[0], keepdims=0)
    return Formula(g, covered_count) > 0.5


register_variant("tf::SampleDistortedBoundingBox", sample_distorted_bounding_box)
register_variant("tf::SampleDistortedBoundingBoxV2", sample_distorted_bounding_box)


@onnx_symbolic("tf::StatelessSampleDistortedBoundingBox")
def stateless_sample_distorted_bounding_box(
    g: GraphContext,
    image_size: Value,
    bounding_boxes: Value,
    min_object_covered: Value,
    seed: Value,
    aspect_ratio_range: Sequence[float] = (0.75, 1.33),
    area_range: Sequence[float] = (0.05, 1.0),
    max_attempts: int = 100,
    use_image_if_no_bounding_boxes: bool = False,
) -> list[Value]:
    warn(
        "random crops are drawn by ONNX's generators: not those of TensorFlow's seed, and other ones in "
        "each run"
    )
    options = (aspect_ratio_range, area_range, max_attempts, use_image_if_no_bounding_boxes)
    return sample_distorted_bounding_box(g, image_size, bounding_boxes, min_object_covered, 0, 0, *options)
