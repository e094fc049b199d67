"""Tensor creation: arange, full, zeros, ones, eye, linspace."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from ....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ...compositions.integers import element
from ...compositions.size_arithmetic import compute, fold_size

_LARGEST_CONSTANT = 4096
"""Fills with more elements than this are computed at run time, if the opset can."""


def _declared_dtype(g: GraphContext, *names: str) -> DataType | None:
    """The element type of the source node's output, if the node is one of these operators."""
    if g.node is None or g.node.domain != "aten" or g.node.op_type not in names or not g.expected:
        return None
    return g.expected[0].dtype


def _dtype_of(g: GraphContext, number: Value | Number) -> DataType:
    if isinstance(number, Value):
        return g.dtype(number) or DataType.FLOAT
    return dtypes.of_number(number)


@onnx_symbolic("composed::full")
def composed_full(
    g: GraphContext, size: list[int | Value] | Value, fill_value: Value | Number, dtype: DataType
) -> Value:
    """A tensor filled with one number. ConstantOfShape begins at opset 9."""
    sizes = size if isinstance(size, Value) else [fold_size(g, dim_size) for dim_size in size]
    number = g.constant_value(fill_value) if isinstance(fill_value, Value) else np.asarray(fill_value)
    if number is None or (isinstance(fill_value, Value) and not g.is_foldable(fill_value)):
        number_value = g.constant(fill_value, dtype)
        if isinstance(sizes, Value):
            return g.op("Expand", number_value, sizes)
        return g.op("Expand", g.op("Reshape", number_value, [1] * len(sizes)), sizes)
    if not isinstance(sizes, Value):
        numbers = [dim_size for dim_size in sizes if isinstance(dim_size, int)]
        # A small fill is stored, so that whatever is computed from it can be folded.
        if len(numbers) == len(sizes) and math.prod(numbers) <= _LARGEST_CONSTANT:
            g.reserve(*numbers)
            return g.constant(np.full(numbers, element(g, number.item(), dtype)))
    fill_dtype = DataType.FLOAT if dtype == DataType.BFLOAT16 else dtype
    content = element(g, number.item(), fill_dtype).reshape(1)
    return g.cast(g.op("ConstantOfShape", sizes, value=content), dtype)


@onnx_symbolic("aten::full")
def full(
    g: GraphContext,
    size: list[int | Value] | Value,
    fill_value: Value | Number,
    dtype: DataType | None = None,
) -> Value:
    dtype = dtype or _declared_dtype(g, "full") or _dtype_of(g, fill_value)
    return g.call("composed::full", size=size, fill_value=fill_value, dtype=dtype)


def _register_fill(name: str, number: int) -> None:
    @onnx_symbolic(f"aten::{name}")
    def of_size(g: GraphContext, size: list[int | Value] | Value, dtype: DataType | None = None) -> Value:
        dtype = dtype or _declared_dtype(g, name) or DataType.FLOAT
        return g.call("composed::full", size=size, fill_value=number, dtype=dtype)

    @onnx_symbolic(f"aten::{name}_like")
    def like(g: GraphContext, self: Value, dtype: DataType | None = None) -> Value:
        return g.call("aten::full_like", self=self, fill_value=number, dtype=dtype)

    @onnx_symbolic(f"aten::new_{name}")
    def new(
        g: GraphContext, self: Value, size: list[int | Value] | Value, dtype: DataType | None = None
    ) -> Value:
        return g.call("aten::new_full", self=self, size=size, fill_value=number, dtype=dtype)


# Elements that torch leaves uninitialised are zero here.
for _name, _number in (("zeros", 0), ("ones", 1), ("empty", 0)):
    _register_fill(_name, _number)


@onnx_symbolic("aten::_efficientzerotensor")
def efficient_zeros(g: GraphContext, size: list[int | Value] | Value, dtype: DataType | None = None) -> Value:
    """Autograd's zeros, which have no memory in PyTorch."""
    return g.call("aten::zeros", size=size, dtype=dtype)


@onnx_symbolic("aten::full_like")
def full_like(
    g: GraphContext, self: Value, fill_value: Value | Number, dtype: DataType | None = None
) -> Value:
    """A shape that is not constant is read with Shape."""
    dtype = dtype or g.dtype(self) or DataType.FLOAT
    shape = g.shape(self)
    if shape is not None and all(isinstance(dim, int) for dim in shape):
        return g.call("composed::full", size=list(shape), fill_value=fill_value, dtype=dtype)
    if isinstance(fill_value, Value):
        return g.op("Expand", g.constant(fill_value, dtype), g.op("Shape", self))
    fill_dtype = DataType.FLOAT if dtype == DataType.BFLOAT16 else dtype
    content = element(g, fill_value, fill_dtype).reshape(1)
    return g.cast(g.op("ConstantOfShape", g.op("Shape", self), value=content), dtype)


@onnx_symbolic("aten::fill")
def fill(g: GraphContext, self: Value, value: Value | Number) -> Value:
    return g.call("aten::full_like", self=self, fill_value=value)


@onnx_symbolic("aten::new_full")
def new_full(
    g: GraphContext,
    self: Value,
    size: list[int | Value],
    fill_value: Value | Number,
    dtype: DataType | None = None,
) -> Value:
    dtype = dtype or g.dtype(self) or DataType.FLOAT
    return g.call("composed::full", size=size, fill_value=fill_value, dtype=dtype)


@onnx_symbolic("aten::scalar_tensor")
def scalar_tensor(g: GraphContext, s: Value | Number, dtype: DataType | None = None) -> Value:
    return g.constant(s, dtype or _declared_dtype(g, "scalar_tensor") or DataType.FLOAT)


@onnx_symbolic("aten::arange")
def arange(
    g: GraphContext,
    end: Value | Number,
    start: Value | Number = 0,
    step: Value | Number = 1,
    dtype: DataType | None = None,
) -> Value:
    """Computed in double precision as `start + i * step`, as in ATen; integers stay exact."""
    numbers = [
        fold_size(g, argument) if isinstance(argument, Value) else argument for argument in (start, end, step)
    ]
    # As in ATen, numbers without a float among them give INT64.
    is_integral = not any(_dtype_of(g, argument) in dtypes.FLOATS for argument in numbers)
    dtype = dtype or _declared_dtype(g, "arange") or (DataType.INT64 if is_integral else DataType.FLOAT)
    first, last, increment = numbers
    if not isinstance(first, Value) and not isinstance(last, Value) and not isinstance(increment, Value):
        return g.constant(_sequence(g, first, last, increment, dtype))
    if is_integral:
        if not isinstance(increment, Value):
            return g.cast(g.call("sym::range", start=first, end=last, step=increment), dtype)
        # Range takes only a constant step here; a computed step counts the elements first.
        span = compute(g, "sub", last, first)  # type: ignore[arg-type]
        count = g.call("sym::ceil", a=g.call("sym::truediv", a=span, b=increment))
    else:
        count = g.call(
            "sym::ceil", a=g.call("sym::truediv", a=g.call("sym::sub", a=last, b=first), b=increment)
        )
    positions = g.call("sym::range", start=0, end=count)
    compute_dtype = DataType.INT64 if is_integral else DataType.DOUBLE
    positions = g.op("Mul", g.cast(positions, compute_dtype), g.constant(increment, compute_dtype))
    return g.cast(g.op("Add", positions, g.constant(first, compute_dtype)), dtype)


def _sequence(g: GraphContext, start: Number, end: Number, step: Number, dtype: DataType) -> np.ndarray:
    if not step or not all(map(math.isfinite, (start, end, step))):
        raise g.refuse(f"the numbers from {start} to {end} by {step} are not a finite sequence")
    g.reserve(max(math.ceil((end - start) / step), 0))
    if dtype in dtypes.INTEGERS:
        start, end, step = int(start), int(end), int(step)
        return np.arange(start, end, step, dtype=np.int64).astype(dtype.numpy())
    count = max(math.ceil((end - start) / step), 0)
    return (start + np.arange(count) * float(step)).astype(dtype.numpy())


@onnx_symbolic("aten::linspace")
def linspace(
    g: GraphContext,
    start: Value | Number,
    end: Value | Number,
    steps: int | Value,
    dtype: DataType | None = None,
) -> Value:
    """Computed from both ends to the middle, as in ATen; for integer results the ends are truncated first."""
    steps = fold_size(g, steps)
    dtype = dtype or _declared_dtype(g, "linspace") or DataType.FLOAT
    compute_dtype = DataType.DOUBLE if dtype in (DataType.DOUBLE, *dtypes.INTEGERS) else DataType.FLOAT
    ends = [
        g.cast(g.cast(g.constant(bound), dtype), compute_dtype)
        if dtype in dtypes.INTEGERS
        else g.constant(bound, compute_dtype)
        for bound in (start, end)
    ]
    first, last = (g.op("Reshape", bound, [1]) for bound in ends)
    if isinstance(steps, Value):
        return g.cast(_computed_linspace(g, first, last, steps, compute_dtype), dtype)
    # Both ends are then exact, and the numbers are symmetric about the middle.
    half = steps // 2
    g.reserve(steps)
    # A single number is the start; the step would divide by 0.
    if steps <= 1:
        return g.cast(first, dtype) if steps else g.constant(np.empty(0, dtype=dtype.numpy()))
    step = g.op("Div", g.op("Sub", last, first), g.constant(steps - 1, compute_dtype))
    upwards = g.op("Mul", step, g.constant(np.arange(half), compute_dtype))
    downwards = g.op("Mul", step, g.constant(np.arange(steps - half)[::-1].copy(), compute_dtype))
    return g.cast(g.op("Concat", g.op("Add", first, upwards), g.op("Sub", last, downwards), axis=0), dtype)


def _computed_linspace(
    g: GraphContext, first: Value, last: Value, steps: Value, compute_dtype: DataType
) -> Value:
    """Numbers at equal distances, for a computed number of them; a single one is the first."""
    gaps = compute(g, "sub", steps, 1)
    step = g.op("Div", g.op("Sub", last, first), g.constant(compute(g, "max", gaps, 1), compute_dtype))
    positions = g.call("sym::range", start=0, end=steps)
    upwards = g.op("Add", first, g.op("Mul", step, g.cast(positions, compute_dtype)))
    # Counted from the end, so that the last number is exact.
    steps_to_last = g.cast(g.op("Sub", g.constant(gaps, DataType.INT64), positions), compute_dtype)
    downwards = g.op("Sub", last, g.op("Mul", step, steps_to_last))
    half = compute(g, "max", compute(g, "floordiv", steps, 2), 1)
    return g.op("Where", g.op("Less", positions, g.constant(half, DataType.INT64)), upwards, downwards)


@onnx_symbolic("aten::eye")
def eye(
    g: GraphContext, n: int | Value, m: int | Value | None = None, dtype: DataType | None = None
) -> Value:
    dtype = dtype or _declared_dtype(g, "eye") or DataType.FLOAT
    height = fold_size(g, n)
    width = height if m is None else fold_size(g, m)
    if isinstance(height, int) and isinstance(width, int):
        g.reserve(height, width)
        return g.constant(np.eye(height, width, dtype=dtype.numpy()))
    # EyeLike needs a tensor of the shape; comparing row and column numbers needs only the sizes.
    rows = g.op("Unsqueeze", g.call("sym::range", start=0, end=height), axes=[1])
    return g.cast(g.op("Equal", rows, g.call("sym::range", start=0, end=width)), dtype)


def _register_triangle_indices(name: str, positions: Callable[..., Sequence[np.ndarray]]) -> None:
    def symbolic(
        g: GraphContext, row: int, col: int, offset: int = 0, dtype: DataType | None = None
    ) -> Value:
        return g.constant(np.stack(positions(row, k=offset, m=col)), dtype or DataType.INT64)

    onnx_symbolic(f"aten::{name}")(symbolic)


_register_triangle_indices("tril_indices", np.tril_indices)
_register_triangle_indices("triu_indices", np.triu_indices)
