"""Constant folding while a graph is built.

Shape arithmetic is folded. Conditions of branches are evaluated with more operators, which numpy may round
differently from a runtime. `onnx.reference` has all operators, but takes half a second to import, which is
longer than lowering a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

MAXIMUM_ELEMENTS = 4096
"""Larger constants are not folded."""

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]
Evaluator = Callable[..., Array | None]
"""Computes a result from the attributes and the operands; None if it does not."""


def _divide(a: Array, b: Array) -> Array | None:
    if a.dtype.kind not in "iu":
        return a / b
    if np.any(b == 0):
        return None
    # ONNX integer division truncates, numpy's floors.
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient).astype(a.dtype)


def _modulo(attributes: Attributes, a: Array, b: Array) -> Array | None:
    if np.any(b == 0):
        return None
    return np.fmod(a, b) if attributes.get("fmod") else np.mod(a, b)


def _axes(attributes: Attributes, inputs: Sequence[Array]) -> tuple[int, ...] | None:
    axes = inputs[0].tolist() if inputs else attributes.get("axes")
    return None if axes is None else tuple(axes)


def _squeeze(attributes: Attributes, data: Array, *axes: Array) -> Array:
    return np.squeeze(data, _axes(attributes, axes))


def _unsqueeze(attributes: Attributes, data: Array, *inputs: Array) -> Array:
    axes = _axes(attributes, inputs) or ()
    rank = data.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        data = np.expand_dims(data, axis)
    return data


def _slice(attributes: Attributes, data: Array, *inputs: Array) -> Array:
    if inputs:
        starts, ends = inputs[0].tolist(), inputs[1].tolist()
        axes = inputs[2].tolist() if len(inputs) > 2 else list(range(len(starts)))
        steps = inputs[3].tolist() if len(inputs) > 3 else [1] * len(starts)
    else:
        starts, ends = attributes["starts"], attributes["ends"]
        axes, steps = (attributes.get("axes") or list(range(len(starts))), [1] * len(starts))
    index: list[slice] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = data.shape[axis]
        # A backward slice to "before the first" is written as a very negative end, and one that starts
        # there starts at the first element, where Python's would be empty.
        stop = None if step < 0 and end < -size else end
        start = max(start, -size) if step < 0 else start
        index[axis] = slice(start, stop, step)
    return data[tuple(index)]


def _flatten(attributes: Attributes, data: Array) -> Array:
    axis = attributes.get("axis", 1)
    axis = axis + data.ndim if axis < 0 else axis
    # numpy cannot infer a size of -1 for an array without elements.
    return data.reshape(math.prod(data.shape[:axis]), -1 if data.size else math.prod(data.shape[axis:]))


def _gather_elements(attributes: Attributes, data: Array, indices: Array) -> Array:
    axis = attributes.get("axis", 0) % data.ndim
    # The indices may be shorter than the data along other axes; numpy wants equal sizes there.
    region = [slice(None) if dim == axis else slice(size) for dim, size in enumerate(indices.shape)]
    positions = np.where(indices < 0, indices + data.shape[axis], indices)
    return np.take_along_axis(data[tuple(region)], positions, axis)


def _reshape(attributes: Attributes, data: Array, *inputs: Array) -> Array:
    shape = inputs[0].tolist() if inputs else list(attributes["shape"])
    if not attributes.get("allowzero"):
        shape = [data.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return data.reshape(shape)


def _cast(attributes: Attributes, data: Array) -> Array:
    return data.astype(ir.DataType(attributes["to"]).numpy())


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    def evaluate(attributes: Attributes, data: Array, *inputs: Array) -> Array:
        axes = _axes(attributes, inputs) or None
        if axes is None and attributes.get("noop_with_empty_axes"):
            return data
        keepdims = bool(attributes.get("keepdims", 1))
        result = function(data, axis=axes, keepdims=keepdims)
        return np.asarray(result, dtype=data.dtype)

    return evaluate


def _bound(dtype: np.dtype, lowest: bool) -> Any:
    """The lowest or highest number of an element type, infinities included."""
    if dtype.kind == "b":
        return not lowest
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if lowest else np.iinfo(dtype).max
    return dtype.type(-np.inf if lowest else np.inf)


def _extreme(function: Callable[..., Array], lowest: bool) -> Callable[..., Array]:
    """A maximum or minimum of an array in row order: numpy takes ten times as long for transposed arrays.

    Over no elements it is the lowest or highest number, as ReduceMax and ReduceMin of opset 20 state.
    """

    def reduce(data: Array, **named: object) -> Array:
        if not data.size:
            return function(data, initial=_bound(data.dtype, lowest), **named)
        return function(np.ascontiguousarray(data) if data.ndim else data, **named)

    return reduce


def _pure(function: Callable[..., Array | None]) -> Evaluator:
    return lambda attributes, *arrays: function(*arrays)


_EVALUATORS: dict[str, Evaluator] = {
    "Abs": _pure(np.abs),
    "Add": _pure(np.add),
    "And": _pure(np.logical_and),
    "Cast": _cast,
    "Ceil": _pure(np.ceil),
    "Concat": lambda attributes, *arrays: np.concatenate(arrays, axis=attributes["axis"]),
    "Div": _pure(_divide),
    "Equal": _pure(np.equal),
    "Expand": _pure(
        lambda data, shape: np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape.tolist())))
    ),
    "Flatten": _flatten,
    "Floor": _pure(np.floor),
    "Gather": lambda attributes, data, indices: np.take(data, indices, axis=attributes.get("axis", 0)),
    "GatherElements": _gather_elements,
    "Greater": _pure(np.greater),
    "GreaterOrEqual": _pure(np.greater_equal),
    "Identity": _pure(np.asarray),
    "Less": _pure(np.less),
    "LessOrEqual": _pure(np.less_equal),
    "Max": _pure(lambda *arrays: np.maximum.reduce(np.broadcast_arrays(*arrays))),
    "Min": _pure(lambda *arrays: np.minimum.reduce(np.broadcast_arrays(*arrays))),
    "Mod": _modulo,
    "Mul": _pure(np.multiply),
    "Neg": _pure(np.negative),
    "Not": _pure(np.logical_not),
    "Or": _pure(np.logical_or),
    "Range": _pure(
        lambda start, limit, delta: np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)
    ),
    "Reciprocal": _pure(np.reciprocal),
    "ReduceMax": _reduce(_extreme(np.max, lowest=True)),
    "ReduceMin": _reduce(_extreme(np.min, lowest=False)),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "Slice": _slice,
    "Sqrt": _pure(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _pure(np.subtract),
    "Transpose": lambda attributes, data: np.transpose(data, attributes.get("perm")),
    "Unsqueeze": _unsqueeze,
    "Where": _pure(np.where),
    "Xor": _pure(np.logical_xor),
}


def _extreme_index(function: Callable[..., Array]) -> Callable[..., Array | None]:
    def evaluate(attributes: Attributes, data: Array) -> Array | None:
        # Comparing with itself finds NaN, for which ONNX does not define an index.
        if attributes.get("select_last_index") or bool((data != data).any()):
            return None
        axis = attributes.get("axis", 0)
        indices = np.asarray(function(data, axis=axis), dtype=np.int64)
        return np.expand_dims(indices, axis) if attributes.get("keepdims", 1) else indices

    return evaluate


def _mean(data: Array, **named: Any) -> Array:
    if data.dtype.kind != "f" or not data.size:
        raise TypeError("left to the runtime")
    return np.asarray(np.mean(data, **named))


def _cumulative(attributes: Attributes, data: Array, axis: Array) -> Array | None:
    if attributes.get("exclusive") or attributes.get("reverse"):
        return None
    return np.cumsum(data, axis=int(axis.item()), dtype=data.dtype)


def _clip(attributes: Attributes, data: Array, *bounds: Array) -> Array:
    low, high = (attributes.get("min"), attributes.get("max")) if not bounds else (*bounds, None)[:2]
    for function, bound in ((np.maximum, low), (np.minimum, high)):
        data = data if bound is None else function(data, np.asarray(bound, dtype=data.dtype))
    return data


def _pad(attributes: Attributes, data: Array, *inputs: Array) -> Array:
    """Padding of all dimensions; numpy refuses widths below 0."""
    if len(inputs) > 2:
        raise TypeError("left to the runtime")
    pads = inputs[0].tolist() if inputs else attributes["pads"]
    mode = attributes.get("mode", "constant")
    widths = list(zip(pads[: data.ndim], pads[data.ndim :], strict=True))
    if mode != "constant":
        return np.pad(data, widths, mode)
    value = inputs[1].item() if len(inputs) > 1 else attributes.get("value", 0)
    return np.pad(data, widths, constant_values=np.asarray(value, data.dtype))


_SHIFTS = {"LEFT": np.left_shift, "RIGHT": np.right_shift}

_CONDITION_EVALUATORS: dict[str, Evaluator] = {
    **_EVALUATORS,
    "ArgMax": _extreme_index(np.argmax),
    "ArgMin": _extreme_index(np.argmin),
    "BitShift": lambda attributes, a, b: _SHIFTS[attributes["direction"]](a, b),
    "BitwiseAnd": _pure(np.bitwise_and),
    "BitwiseNot": _pure(np.bitwise_not),
    "BitwiseOr": _pure(np.bitwise_or),
    "BitwiseXor": _pure(np.bitwise_xor),
    "Clip": _clip,
    "Cos": _pure(np.cos),
    "CumSum": _cumulative,
    "Exp": _pure(np.exp),
    "IsNaN": _pure(np.isnan),
    "Log": _pure(np.log),
    "Pad": _pad,
    "MatMul": _pure(np.matmul),
    "Pow": _pure(lambda base, power: np.power(base, power.astype(base.dtype))),
    "ReduceL1": _reduce(lambda data, **named: np.sum(np.abs(data), **named)),
    "ReduceL2": _reduce(lambda data, **named: np.sqrt(np.sum(data * data, **named))),
    "ReduceMean": _reduce(_mean),
    "ReduceSumSquare": _reduce(lambda data, **named: np.sum(data * data, **named)),
    "Relu": _pure(lambda data: np.maximum(data, np.zeros((), data.dtype))),
    "Round": _pure(np.rint),
    "Sigmoid": _pure(lambda data: 1 / (1 + np.exp(-data))),
    "Sign": _pure(np.sign),
    "Sin": _pure(np.sin),
    "Tan": _pure(np.tan),
    "Tanh": _pure(np.tanh),
    "Tile": _pure(np.tile),
}


def _broadcast_size(attributes: Attributes, *arrays: Array) -> int:
    return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))


def _expanded_size(attributes: Attributes, data: Array, shape: Array) -> int:
    return math.prod(np.broadcast_shapes(data.shape, tuple(shape.tolist())))


def _range_size(attributes: Attributes, start: Array, limit: Array, delta: Array) -> int:
    count: float = (limit.item() - start.item()) / delta.item()
    return math.ceil(count)


def _gathered_size(attributes: Attributes, data: Array, indices: Array) -> int:
    axis_size: int = data.shape[attributes.get("axis", 0)]
    return data.size // max(1, axis_size) * indices.size


def _padded_size(attributes: Attributes, data: Array, *inputs: Array) -> int:
    pads = inputs[0].tolist() if inputs else attributes["pads"]
    widths = (sum(pads[dim :: data.ndim]) for dim in range(data.ndim))
    return math.prod(size + max(0, width) for size, width in zip(data.shape, widths, strict=True))


def _product_size(attributes: Attributes, a: Array, b: Array) -> int:
    return a.size * b.size


_BROADCAST = frozenset(
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual "
    "Max Min Mod Mul Or Pow Sub Where Xor".split()
)
_SIZES: dict[str, Callable[..., int]] = {
    "Concat": lambda attributes, *arrays: sum(array.size for array in arrays),
    "Expand": _expanded_size,
    "Gather": _gathered_size,
    "MatMul": _product_size,
    "Pad": _padded_size,
    "Range": _range_size,
    "Tile": lambda attributes, data, repeats: data.size * math.prod(repeats.tolist()),
}
"""The number of result elements for operators whose result can have more elements than their inputs."""


def _is_small(op_type: str, attributes: Attributes, arrays: Sequence[Array], limit: int) -> bool:
    """Whether a result has at most `limit` elements; checked before computing it."""
    size = _SIZES.get(op_type)
    if size is None:
        size = _broadcast_size if op_type in _BROADCAST else None
    return size is None or size(attributes, *arrays) <= limit


def has_evaluator(op_type: str) -> bool:
    """Whether numpy computes an operator."""
    return op_type in _CONDITION_EVALUATORS


def evaluator(op_type: str) -> Callable[..., Any]:
    """Return the numpy function of an operator, from attributes and arrays, for constants of any size."""
    return _CONDITION_EVALUATORS[op_type]


def evaluate(
    op_type: str,
    inputs: Sequence[Array | None],
    attributes: Attributes,
    *,
    condition: bool = False,
    limit: int = MAXIMUM_ELEMENTS,
) -> Array | None:
    """Compute the single output of an operator on constants; None if it cannot be folded.

    Args:
        condition: whether numpy's rounding is acceptable, for example because the result only selects a
            branch.
        limit: the maximum number of elements of an operand or result.

    Operators that fail (a division by zero, an axis out of range) are not folded: the node may be in a branch
    that never runs.
    """
    evaluator = (_CONDITION_EVALUATORS if condition else _EVALUATORS).get(op_type)
    if evaluator is None or any(array is None or array.size > limit for array in inputs):
        return None
    try:
        if not _is_small(op_type, attributes, inputs, limit):  # type: ignore[arg-type]
            return None
        with np.errstate(all="ignore"):
            result = evaluator(attributes, *inputs)
    except (ValueError, IndexError, ArithmeticError, TypeError, MemoryError):
        return None
    if result is None:
        return None
    result = np.asarray(result)
    return result if result.size <= limit else None
