"""Reductions over dims: sums, extremes, moments, norms, any and all."""

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

from .....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ....compositions.doubling import reduce_by_halves
from ....compositions.operands import cast_integers_to_int64, floating, is_integral
from ....compositions.size_arithmetic import axis, known_rank, product

Dims = Sequence[int] | int | None

_DOUBLE_BITS = 53


def _reduce(g: GraphContext, op_type: str, value: Value, dims: Dims, keepdim: bool) -> Value:
    """Reduce over the given dims, or over all if none are given.

    A zero-dim tensor is its own sum, mean and maximum; ATen accepts dim 0 and -1 for it.
    """
    if g.rank(value) == 0:
        return g.op("Abs", value) if op_type in ("ReduceL1", "ReduceL2") else value
    dims = [dims] if isinstance(dims, int) else dims
    return g.op(op_type, value, axes=_axes(g, value, dims), keepdims=int(keepdim))


def _axes(g: GraphContext, value: Value, dims: Sequence[int] | None) -> list[int] | None:
    return sorted(axis(g, value, dim) for dim in dims) if dims else None


def _mean(g: GraphContext, value: Value, dims: Dims, keepdim: bool) -> Value:
    """The mean; NaN without elements, although onnxruntime's ReduceMean returns 0.

    Divides by 1, or by 0 if the tensor has no elements.
    """
    shape = g.shape(value)
    axes = _axes(g, value, [dims] if isinstance(dims, int) else dims) if shape else None
    reduced = None if shape is None else shape if axes is None else [shape[axis_index] for axis_index in axes]
    if reduced is not None and 0 in reduced:
        return g.op("Div", _reduce(g, "ReduceSum", value, dims, keepdim), 0.0)
    result = _reduce(g, "ReduceMean", value, dims, keepdim)
    dtype = g.dtype(result)
    if dtype is None or (reduced is not None and builtins.all(isinstance(size, int) for size in reduced)):
        return result
    return g.op("Div", result, g.cast(g.cast(g.op("Size", value), DataType.BOOL), dtype))


def _element_count(g: GraphContext, value: Value, dims: Dims) -> int | Value:
    """The number of elements that each result of a reduction combines."""
    if g.rank(value) == 0:
        return 1
    dims = [dims] if isinstance(dims, int) else dims
    return product(g, [g.size(value, dim) for dim in dims or range(known_rank(g, value))])


def _sum(g: GraphContext, self: Value, dim: Dims, keepdim: bool, dtype: DataType | None) -> Value:
    self = cast_integers_to_int64(g, self) if dtype is None else g.cast(self, dtype)
    return _reduce(g, "ReduceSum", self, dim, keepdim)


def _nansum(g: GraphContext, self: Value, dim: Dims, keepdim: bool, dtype: DataType | None) -> Value:
    if not is_integral(g, self):
        self = g.op("Where", g.call("aten::isnan", self), 0.0, self)
    return _sum(g, self, dim, keepdim, dtype)


def _mean_of(g: GraphContext, self: Value, dim: Dims, keepdim: bool, dtype: DataType | None) -> Value:
    return _mean(g, self if dtype is None else g.cast(self, dtype), dim, keepdim)


def _nanmean(g: GraphContext, self: Value, dim: Dims, keepdim: bool, dtype: DataType | None) -> Value:
    self = self if dtype is None else g.cast(self, dtype)
    numbers = g.op("Not", g.call("aten::isnan", self))
    count = _sum(g, g.op("Cast", numbers, to=int(self.dtype or DataType.FLOAT)), dim, keepdim, None)
    return g.op("Div", _nansum(g, self, dim, keepdim, None), count)


def _register_total(name: str, total: Callable[..., Value]) -> None:
    @onnx_symbolic(f"aten::{name}")
    def function(
        g: GraphContext,
        self: Value,
        dim: list[int] | None = None,
        keepdim: bool = False,
        dtype: DataType | None = None,
    ) -> Value:
        return total(g, self, dim, keepdim, dtype)


for _name, _total in {"sum": _sum, "nansum": _nansum, "mean": _mean_of, "nanmean": _nanmean}.items():
    _register_total(_name, _total)


@onnx_symbolic("aten::prod")
def prod(
    g: GraphContext, self: Value, dim: int | None = None, keepdim: bool = False, dtype: DataType | None = None
) -> Value:
    """Products of integers wrap around."""
    if dtype is not None:
        self = g.cast(self, dtype)
    if not is_integral(g, self) or g.rank(self) == 0:
        return _reduce(
            g, "ReduceProd", self if dtype is not None else cast_integers_to_int64(g, self), dim, keepdim
        )
    integers = g.cast(self, DataType.INT64)
    if _is_exact_product(g, self, dim):
        result = _reduce(g, "ReduceProd", integers, dim, keepdim)
    else:
        flat = integers
        if dim is None:
            count = _element_count(g, integers, None)
            flat = g.op("Reshape", integers, [count if isinstance(count, int) else -1])
        dimension = axis(g, flat, dim or 0)
        # Mul of INT64 wraps around, as torch's product does.
        result = reduce_by_halves(g, flat, dimension, 1, lambda a, b: g.op("Mul", a, b))
        result = result if keepdim else g.op("Squeeze", result, axes=[dimension])
    return result if dtype is None else g.cast(result, dtype)


def _is_exact_product(g: GraphContext, value: Value, dim: int | None) -> bool:
    """Whether ReduceProd is exact for this type and count; onnxruntime multiplies INT64 in DOUBLE."""
    if g.dtype(value) == DataType.BOOL:
        return True
    count = _element_count(g, value, dim)
    largest = builtins.max(abs(limit) for limit in dtypes.limits(g.dtype(value) or DataType.INT64))
    return isinstance(count, int) and count * math.log2(largest) <= _DOUBLE_BITS


def _register_extreme(name: str, reduction: str, index: str) -> None:
    @onnx_symbolic(f"aten::a{name}")
    def over_dims(g: GraphContext, self: Value, dim: list[int] | None = None, keepdim: bool = False) -> Value:
        return _reduce(g, reduction, self, dim, keepdim)

    @onnx_symbolic(f"aten::{name}")
    def over_all(g: GraphContext, self: Value) -> Value:
        return _reduce(g, reduction, self, None, False)

    @onnx_symbolic(f"aten::{name}.dim")
    def with_indices(g: GraphContext, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
        return [_reduce(g, reduction, self, dim, keepdim), g.call(f"aten::arg{name}", self, dim, keepdim)]

    @onnx_symbolic(f"aten::arg{name}")
    def indices(g: GraphContext, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        rank = g.rank(self)
        if not g.has_kernel(index, self):
            self = g.cast(self, DataType.INT32)  # It represents the integer types without a kernel.
        if dim is not None and rank != 0:
            return g.op(index, self, axis=axis(g, self, dim), keepdims=int(keepdim))
        result = g.op(index, g.op("Reshape", self, [-1]), axis=0, keepdims=0)
        return g.op("Reshape", result, [1] * known_rank(g, self)) if keepdim and rank != 0 else result


_register_extreme("max", "ReduceMax", "ArgMax")
_register_extreme("min", "ReduceMin", "ArgMin")


@onnx_symbolic("aten::aminmax")
def aminmax(g: GraphContext, self: Value, dim: int | None = None, keepdim: bool = False) -> list[Value]:
    return [_reduce(g, "ReduceMin", self, dim, keepdim), _reduce(g, "ReduceMax", self, dim, keepdim)]


def _truth_dtype(g: GraphContext, value: Value) -> DataType:
    """The result type of `any` and `all`: BOOL, but UINT8 for UINT8."""
    return DataType.UINT8 if g.dtype(value) == DataType.UINT8 else DataType.BOOL


@onnx_symbolic("aten::_is_any_true")
@onnx_symbolic("aten::any")
def any(g: GraphContext, self: Value, dim: list[int] | int | None = None, keepdim: bool = False) -> Value:
    """Whether the number of true elements is not 0; an empty list of dims reduces nothing."""
    truth = g.cast(self, DataType.BOOL)
    if dim != []:
        # No reduction takes BOOL before opset 20.
        count = _reduce(g, "ReduceSum", g.cast(truth, DataType.INT32), dim, keepdim)
        truth = g.cast(count, DataType.BOOL)
    return g.cast(truth, _truth_dtype(g, self))


# Assertions on a tensor ask it of all elements.
@onnx_symbolic("aten::_is_all_true")
@onnx_symbolic("aten::all")
def all(g: GraphContext, self: Value, dim: list[int] | int | None = None, keepdim: bool = False) -> Value:
    truth = g.cast(self, DataType.BOOL)
    if dim != []:
        least = _reduce(g, "ReduceMin", g.cast(truth, DataType.INT32), dim, keepdim)
        truth = g.cast(least, DataType.BOOL)
    return g.cast(truth, _truth_dtype(g, self))


@onnx_symbolic("aten::count_nonzero")
def count_nonzero(g: GraphContext, self: Value, dim: list[int] | int | None = None) -> Value:
    truth = g.cast(g.cast(self, DataType.BOOL), DataType.INT64)
    return _reduce(g, "ReduceSum", truth, dim, False)


def _variance(g: GraphContext, self: Value, dim: Dims, correction: Number, keepdim: bool) -> Value:
    """The variance, in two passes over the data."""
    mean_kept = _reduce(g, "ReduceMean", self, dim, True)
    centered = g.op("Sub", self, mean_kept)
    squares = g.op("Mul", centered, centered)
    if correction == 0:
        return _mean(g, squares, dim, keepdim)
    total = _reduce(g, "ReduceSum", squares, dim, keepdim)
    return g.op("Div", total, _degrees_of_freedom(g, self, dim, correction))


def _degrees_of_freedom(g: GraphContext, self: Value, dim: Dims, correction: Number) -> Value | float:
    """The number of elements minus the correction, at least 0."""
    count = _element_count(g, self, dim)
    if not isinstance(count, Value):
        return float(max(count - correction, 0))
    # A count that is computed may be below the correction.
    freedom = g.op("Sub", g.op("Cast", count, to=int(g.dtype(self) or DataType.FLOAT)), float(correction))
    return g.op("Relu", freedom)


def _register_variance(name: str, root: bool, with_mean: bool) -> None:
    @onnx_symbolic(f"aten::{name}")
    def variance(
        g: GraphContext,
        self: Value,
        dim: list[int] | None = None,
        unbiased: bool = True,
        keepdim: bool = False,
        correction: Number | None = None,
    ) -> Value | list[Value]:
        correction = int(unbiased) if correction is None else correction
        result = _variance(g, self, dim, correction, keepdim)
        result = g.op("Sqrt", result) if root else result
        return [result, _mean(g, self, dim, keepdim)] if with_mean else result


for _name, _root in (("var", False), ("std", True)):
    _register_variance(_name, _root, with_mean=False)
    _register_variance(f"{_name}_mean", _root, with_mean=True)


@onnx_symbolic("aten::linalg_vector_norm")
def linalg_vector_norm(
    g: GraphContext,
    self: Value,
    ord: Number = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    dtype: DataType | None = None,
) -> Value:
    self = floating(g, self) if dtype is None else g.cast(self, dtype)
    if ord in (1, 2):
        return _reduce(g, "ReduceL1" if ord == 1 else "ReduceL2", self, dim, keepdim)
    if ord == 0:
        nonzero = g.op("Cast", g.cast(self, DataType.BOOL), to=int(self.dtype or DataType.FLOAT))
        return _reduce(g, "ReduceSum", nonzero, dim, keepdim)
    size = g.op("Abs", self)
    if math.isinf(ord):
        return _reduce(g, "ReduceMax" if ord > 0 else "ReduceMin", size, dim, keepdim)
    # A Python number would become an exponent of FLOAT.
    dtype = g.dtype(self) or DataType.FLOAT
    total = _reduce(g, "ReduceSum", g.op("Pow", size, g.constant(float(ord), dtype)), dim, keepdim)
    return g.op("Pow", total, g.constant(1.0 / ord, dtype))


@onnx_symbolic("aten::norm")
def norm(g: GraphContext, self: Value, p: Number | None = 2, **reduction: Any) -> Value:
    return g.call("aten::linalg_vector_norm", self, 2 if p is None else p, **reduction)


@onnx_symbolic("aten::dist")
def dist(g: GraphContext, self: Value, other: Value, p: Number = 2) -> Value:
    return g.call("aten::norm", g.op("Sub", self, other), p)


@onnx_symbolic(["aten::cdist", "aten::_cdist_forward"])
def cdist(g: GraphContext, x1: Value, x2: Value, p: float = 2) -> Value:
    """The norms of the differences of every row of `x1` and every row of `x2`."""
    rows = g.op("Unsqueeze", x1, axes=[known_rank(g, x1) - 1])
    columns = g.op("Unsqueeze", x2, axes=[known_rank(g, x2) - 2])
    return g.call("aten::linalg_vector_norm", g.op("Sub", rows, columns), p, [-1])


@onnx_symbolic(["aten::logsumexp", "aten::special_logsumexp"])
def logsumexp(g: GraphContext, self: Value, dim: list[int], keepdim: bool = False) -> Value:
    self = floating(g, self)
    if g.has_kernel("ReduceLogSumExp", self):
        return _reduce(g, "ReduceLogSumExp", self, dim, keepdim)
    # onnxruntime computes the function that ONNX states, which overflows where PyTorch does not.
    shape = g.shape(self)
    if shape is not None and 0 in shape:
        return g.op("Log", _reduce(g, "ReduceSum", g.op("Exp", self), dim, keepdim))
    largest = _reduce(g, "ReduceMax", self, dim, True)
    is_finite = g.op("Less", g.op("Abs", largest), math.inf)
    largest = g.op("Where", is_finite, largest, g.constant(0.0, g.dtype(self)))
    total = _reduce(g, "ReduceSum", g.op("Exp", g.op("Sub", self, largest)), dim, True)
    result = g.op("Add", g.op("Log", total), largest)
    return result if keepdim or not g.rank(self) else _reduce(g, "ReduceMax", result, dim, False)
