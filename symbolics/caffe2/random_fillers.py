"""Fillers that draw random numbers each time that the net runs, as Caffe2's do in a predict_net."""

from collections.abc import Sequence

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import sizes_of


def _sizes(
    g: GraphContext, input: Value | None, shape: Sequence[int], extra_shape: Sequence[int], as_shape: int
) -> list[int | Value]:
    """The sizes of the result: those of the input, its elements, or the argument."""
    if input is None:
        return list(shape)
    if not as_shape:
        return [*sizes_of(g, input), *extra_shape]
    count = g.size(input, 0)
    if not isinstance(count, int):
        raise g.refuse("the number of sizes in its input is unknown")
    numbers = g.cast(input, DataType.INT64)
    return [*(g.op("Gather", numbers, index, axis=0) for index in range(count)), *extra_shape]


@onnx_symbolic("caffe2::UniformFill")
def uniform_fill(
    g: GraphContext,
    input: Value | None = None,
    lower: Value | None = None,
    upper: Value | None = None,
    shape: Sequence[int] = (),
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
    min: float | int = 0,
    max: float | int = 1,
) -> Value:
    if lower is not None or upper is not None:
        raise g.refuse("bounds that are inputs are not supported")
    sizes = _sizes(g, input, shape, extra_shape, input_as_shape)
    return g.call("composed::uniform", sizes, DataType.FLOAT, float(min), float(max))


@onnx_symbolic("caffe2::GaussianFill")
def gaussian_fill(
    g: GraphContext,
    input: Value | None = None,
    shape: Sequence[int] = (),
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
    mean: float | int = 0,
    std: float | int = 1,
) -> Value:
    sizes = _sizes(g, input, shape, extra_shape, input_as_shape)
    return g.call("composed::normal", sizes, DataType.FLOAT, float(mean), float(std))


@onnx_symbolic("caffe2::UniformIntFill")
def uniform_int_fill(
    g: GraphContext,
    input: Value | None = None,
    shape: Sequence[int] = (),
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
    min: int = 0,
    max: int = 1,
) -> Value:
    """Integers up to `max`, which may be drawn, too."""
    sizes = _sizes(g, input, shape, extra_shape, input_as_shape)
    return g.call("composed::random_integers", sizes, DataType.INT32, min, max + 1)
