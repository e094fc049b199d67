"""Resizing with filters that are as wide as the scale: `tf.image.resize` with `antialias=True`.

Semantics: tensorflow/core/kernels/image/scale_and_translate_op.cc and sampling_kernels.h.
"""

import math

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import Size
from ....compositions.spatial.resampling import apply_weights
from ....compositions.special.formulas import Formula
from ..._common import range_vector, set_shape
from ..layout import IMAGES
from ..size_operands import list_sizes

_LEAST_SUM = 1000.0 * 2.0**-126
"""Weights with a smaller sum are zero."""
_SIGMA = 0.5


def _lanczos(distance: Formula, radius: float) -> Formula:
    scaled = distance * math.pi
    # At 0 the quotient has no value; the filter is 1 there.
    is_centre = distance < 1e-3
    safe = is_centre.chosen(1.0, scaled)
    value = safe.sin() * (safe * (1.0 / radius)).sin() * radius / (safe * safe)
    return is_centre.chosen(1.0, (distance > radius).chosen(0.0, value))


def _gaussian(distance: Formula, radius: float) -> Formula:
    value = (-(distance * distance) * (1.0 / (2.0 * _SIGMA * _SIGMA))).exp()
    return (distance < radius).chosen(value, 0.0)


def _box(distance: Formula, radius: float) -> Formula:
    return distance.equals(0.5).chosen(0.5, (distance < 0.5).chosen(1.0, distance * 0.0))


def _triangle(distance: Formula, radius: float) -> Formula:
    return (1.0 - distance).op("Max", 0.0)


def _keys_cubic(distance: Formula, radius: float) -> Formula:
    near = (distance * 1.5 - 2.5) * distance * distance + 1.0
    far = ((distance * -0.5 + 2.5) * distance - 4.0) * distance + 2.0
    return (distance < 1.0).chosen(near, (distance < 2.0).chosen(far, 0.0))


def _mitchell_cubic(distance: Formula, radius: float) -> Formula:
    near = ((distance * (7.0 / 6.0) - 2.0) * distance) * distance + 16.0 / 18.0
    far = ((distance * (-7.0 / 18.0) + 2.0) * distance - 10.0 / 3.0) * distance + 16.0 / 9.0
    return (distance < 1.0).chosen(near, (distance < 2.0).chosen(far, 0.0))


_KERNELS = {
    "lanczos1": (_lanczos, 1.0),
    "lanczos3": (_lanczos, 3.0),
    "lanczos5": (_lanczos, 5.0),
    "gaussian": (_gaussian, 1.5),
    "box": (_box, 1.0),
    "triangle": (_triangle, 1.0),
    "keyscubic": (_keys_cubic, 2.0),
    "mitchellcubic": (_mitchell_cubic, 2.0),
}


@onnx_symbolic("tf::ScaleAndTranslate")
def scale_and_translate(
    g: GraphContext,
    images: Value,
    size: Value,
    scale: Value,
    translation: Value,
    kernel_type: str = "lanczos3",
    antialias: bool = True,
) -> Value:
    """A product with a matrix of weights for each dimension; pixels outside of the image are 0."""
    if kernel_type not in _KERNELS:
        raise g.refuse(f"kernel_type '{kernel_type}' is none of {', '.join(_KERNELS)}")
    data = g.cast(IMAGES.channels_first(g, images), DataType.FLOAT)
    for index, count in enumerate(list_sizes(g, size, 2)):
        elements = (g.op("Gather", value, index, axis=0) for value in (scale, translation))
        factor, shift = (Formula(g, set_shape(element, [])) for element in elements)
        weights = _weights(g, g.size(data, index + 2), count, factor, shift, kernel_type, antialias)
        data = apply_weights(g, data, weights, index + 2)
    return IMAGES.restore(g, data)


def _weights(
    g: GraphContext,
    size: Size,
    count: Size,
    scale: Formula,
    translation: Formula,
    kernel_type: str,
    antialias: bool,
) -> Value:
    """The weights [count, size] of the pixels of one dimension."""
    kernel, radius = _KERNELS[kernel_type]
    # TensorFlow multiplies by the inverse of the scale, also to undo the translation.
    inverse = 1.0 / scale
    width = inverse.op("Max", 1.0) if antialias else inverse * 0.0 + 1.0
    targets, sources = (
        Formula(g, g.op("Unsqueeze", g.cast(range_vector(g, n), DataType.FLOAT), axes=[axis])) + 0.5
        for n, axis in ((count, 1), (size, 0))
    )
    # The positions of the result's pixels in the image.
    samples = targets * inverse - inverse * translation
    unscaled = kernel(abs((sources - samples) / width), radius)
    total = Formula(g, g.op("ReduceSum", unscaled.value, axes=[1], keepdims=1))
    end = Formula(g, g.constant(size, DataType.FLOAT))
    # A pixel outside of the image is 0, and so is one whose weights cancel out.
    is_outside = (samples < 0.0) | (samples > end) | (abs(total) < _LEAST_SUM)
    return is_outside.chosen(0.0, unscaled / is_outside.chosen(1.0, total)).value
