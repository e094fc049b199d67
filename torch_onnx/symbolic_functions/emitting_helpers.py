"""The functions of `symbolic_helper` that emit operators; each emits one operator at any opset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from ...registration import DataType, dtypes
from .._type_utils import JitScalarType
from . import argument_helpers as helper
from .context import GraphContext
from .values import Results, Value


def _sizes(g: GraphContext, items: object) -> object:
    """Convert a list of sizes or axes for emission: a value, or Python ints and values."""
    if isinstance(items, Value):
        return items.wrapped
    if isinstance(items, (list, tuple)):
        sizes = [item.wrapped if isinstance(item, Value) else helper.to_int(item) for item in items]
        # A list of one value may be the whole vector, as in symbolic functions written for older versions.
        if len(sizes) == 1 and isinstance(sizes[0], ir.Value) and g.inner.rank(sizes[0]) == 1:
            return sizes[0]
        return sizes
    return items


def _unsqueeze_helper(g: GraphContext, input: Value, axes_i: Sequence[object]) -> Value:
    if len(axes_i) == 0:
        return input
    return g.wrap(g.inner.op("Unsqueeze", input.wrapped, axes=_sizes(g, axes_i)))


def _squeeze_helper(g: GraphContext, input: Value, axes_i: Sequence[object]) -> Value:
    return g.wrap(g.inner.op("Squeeze", input.wrapped, axes=_sizes(g, axes_i)))


def _reducesum_helper(
    g: GraphContext,
    input: Value,
    axes_i: object = None,
    keepdims_i: object = 1,
    noop_with_empty_axes_i: int = 0,
) -> Value:
    keepdims = helper._maybe_get_const(keepdims_i, "i")
    empty = isinstance(axes_i, (list, tuple)) and not axes_i
    axes = None if axes_i is None or empty else _sizes(g, axes_i)
    if axes is None and noop_with_empty_axes_i:
        return input
    return g.wrap(g.inner.op("ReduceSum", input.wrapped, axes=axes, keepdims=helper.to_int(keepdims)))


def _reshape_helper(g: GraphContext, input: Value, shape: object, allowzero: int = 0) -> Value:
    sizes = _sizes(g, shape)
    return g.wrap(g.inner.op("Reshape", input.wrapped, sizes, allowzero=allowzero or None))


def _slice_helper(
    g: GraphContext, input: Value, axes: object, starts: object, ends: object, steps: object = None
) -> Value:
    bounds = {"starts": _sizes(g, starts), "ends": _sizes(g, ends), "axes": _sizes(g, axes)}
    step_sizes = None if steps is None else _sizes(g, steps)
    return g.wrap(g.inner.op("Slice", input.wrapped, outputs=1, **bounds, steps=step_sizes))


def _select_helper(
    g: GraphContext, self: Value, dim: int, index: object, apply_reshape: bool = True
) -> Value:
    """Emit Gather with an index that keeps its dimension."""
    constant_index = helper._maybe_get_scalar(index)
    if not isinstance(constant_index, Value):
        return g.wrap(g.inner.op("Gather", self.wrapped, [helper.to_int(constant_index)], axis=dim))
    indices = g.inner.cast(g.inner.constant(constant_index.wrapped), DataType.INT64)
    # Gather drops the axis for a scalar index, and callers squeeze it themselves.
    if apply_reshape and g.inner.rank(indices) == 0:
        indices = g.inner.op("Unsqueeze", indices, axes=[0])
    return g.wrap(g.inner.op("Gather", self.wrapped, indices, axis=dim))


def _size_helper(g: GraphContext, self: Value, dim: object) -> Value:
    dims = helper._maybe_get_const(dim, "i")
    if isinstance(dims, Value):
        return g.wrap(g.inner.op("Gather", g.inner.op("Shape", self.wrapped), dims.wrapped, axis=0))
    return g.wrap(g.inner.constant(g.inner.size(g.inner.constant(self.wrapped), helper.to_int(dims))))


def _numel_helper(g: GraphContext, self: Value) -> Value:
    return g.wrap(g.inner.op("ReduceProd", g.inner.op("Shape", self.wrapped), keepdims=0))


def _flatten_helper(g: GraphContext, input: Value, start_dim: int, end_dim: int, dim: int) -> Value:
    shape = g.inner.op("Shape", input.wrapped)
    sizes = [g.inner.op("Slice", shape, starts=[0], ends=[start_dim], axes=[0])] if start_dim else []
    # -1 stands for the product of the flattened sizes, known or not.
    sizes.append(g.inner.constant([-1]))
    if end_dim < dim - 1:
        sizes.append(g.inner.op("Slice", shape, starts=[end_dim + 1], ends=[dim], axes=[0]))
    new_shape = sizes[0] if len(sizes) == 1 else g.inner.op("Concat", *sizes, axis=0)
    return g.wrap(g.inner.op("Reshape", input.wrapped, new_shape))


def _topk_helper(
    g: GraphContext,
    input: Value,
    k: object,
    dim: int,
    largest: object = True,
    sorted: object = False,
    out: object = None,
) -> Results:
    if not helper._is_none(out):
        helper._unimplemented("TopK", "out")
    count = helper._maybe_get_const(k, "i")
    if isinstance(count, Value):
        count = g.inner.op("Reshape", g.inner.cast(g.inner.constant(count.wrapped), DataType.INT64), [1])
    named = {"largest": 1 if largest else 0, "sorted": 1 if sorted else 0}
    # Before opset 11 TopK always sorts; sorted results are among those that an unsorted TopK may give.
    if g.inner.opset < 11:
        named["sorted"] = 1
    return g.wrap(g.inner.op("TopK", input.wrapped, K=count, axis=dim, outputs=2, **named))


def _sort_helper(
    g: GraphContext, input: Value, dim: int, descending: object = True, out: object = None
) -> Results:
    if not helper._is_none(out):
        helper._unimplemented("Sort", "out")
    return _topk_helper(g, input, _size_helper(g, input, dim), dim, descending, True)


def _argmin_argmax_helper(g: GraphContext, input: Value, dim: object, keepdim: bool, op_name: str) -> Value:
    if not helper._is_none(dim):
        axis = helper._parse_arg(dim, "i")
        return g.wrap(g.inner.op(op_name, input.wrapped, axis=axis, keepdims=int(keepdim)))
    indices = g.inner.op(op_name, g.inner.op("Reshape", input.wrapped, [-1]), axis=0, keepdims=0)
    if keepdim:
        # The shape of the shape is the rank; each kept axis has the size 1.
        rank = g.inner.op("Shape", g.inner.op("Shape", input.wrapped))
        indices = g.inner.op("Reshape", indices, g.inner.op("Expand", [1], rank))
    return g.wrap(indices)


def _scatter_helper(g: GraphContext, self: Value, dim: int, index: Value, src: Value) -> Value:
    name = "ScatterElements" if g.inner.opset >= 11 else "Scatter"
    return g.wrap(g.inner.op(name, self.wrapped, index.wrapped, src.wrapped, axis=dim))


def _lt_helper(g: GraphContext, input: Value, other: Value) -> Results:
    return g.op("Less", input, other)


def _maybe_cast_to_type(g: GraphContext, value: Value, jit_type: JitScalarType) -> Value:
    return g.wrap(g.inner.cast(g.inner.constant(value.wrapped), jit_type.onnx_type()))


def _maybe_cast_reduce_op_input(g: GraphContext, self: Value) -> Value:
    """Cast integers and BOOL to INT64, the type in which torch sums."""
    narrow = self.element_type in (dtypes.INTEGERS | {DataType.BOOL})
    return g.wrap(g.inner.cast(g.inner.constant(self.wrapped), DataType.INT64)) if narrow else self


def _generate_wrapped_number(g: GraphContext, scalar: object) -> Value:
    return Value(g.inner, scalar)


def _optional_input_placeholder_tensor(g: GraphContext) -> Value:
    """Return the value that omits an input."""
    return Value(g.inner, None)


def _op_with_optional_float_cast(
    g: GraphContext, op_name: str, *args: object, outputs: int = 1, **kwargs: object
) -> Results:
    """Emit the operator; emission casts element types that the opset lacks."""
    named = {key: item for key, item in kwargs.items() if key not in ("opset_before", "target_float_t")}
    return g.op(op_name, *args, outputs=outputs, **named)


def _make_extreme_helper(op_name: str) -> Callable[..., Results]:
    def extreme(g: GraphContext, self: Value, dim_or_y: object = None, keepdim: object = None) -> Results:
        if dim_or_y is None and keepdim is None:
            return g.wrap(g.inner.op(f"Reduce{op_name}", self.wrapped, keepdims=0))
        if keepdim is None:
            return g.op(op_name, self, dim_or_y)
        axis, keepdims = helper._get_const(dim_or_y, "i", "dim"), helper._get_const(keepdim, "i", "keepdim")
        values = g.inner.op(f"Reduce{op_name}", self.wrapped, axes=[axis], keepdims=keepdims)
        return g.wrap((values, g.inner.op(f"Arg{op_name}", self.wrapped, axis=axis, keepdims=keepdims)))

    return extreme


_max_helper = _make_extreme_helper("Max")
_min_helper = _make_extreme_helper("Min")


def _reduce_op_symbolic_helper(
    onnx_op_name: str, allow_multi_dim_support: bool = True
) -> Callable[..., Value]:
    """Make a symbolic function of a reduction: `(g, self)`, or `(g, self, dim, keepdim)`."""

    def symbolic(g: GraphContext, self: Value, dim: object = None, keepdim: object = None) -> Value:
        value = _maybe_cast_reduce_op_input(g, self)
        if helper._is_none(dim):
            keepdims = 0 if helper._is_none(keepdim) else helper._get_const(keepdim, "i", "keepdim")
            return g.wrap(g.inner.op(onnx_op_name, value.wrapped, keepdims=keepdims))
        axes = helper._get_const(dim, "is" if allow_multi_dim_support else "i", "dim")
        keepdims = helper._get_const(keepdim, "i", "keepdim")
        axes = axes if isinstance(axes, list) else [axes]
        return g.wrap(g.inner.op(onnx_op_name, value.wrapped, axes=axes or None, keepdims=keepdims))

    return symbolic


def _unbind_helper(g: GraphContext, self: Value, dim: int, _outputs: object = None) -> Results:
    count = helper._get_tensor_dim_size(self, dim)
    if count is None:
        helper._unimplemented("unbind", "a size that is not static", self)
    return g.wrap([g.inner.op("Gather", self.wrapped, g.inner.constant(i), axis=dim) for i in range(count)])


def _interpolate_get_scales_if_available(g: GraphContext, scales: Sequence[object]) -> Value | None:
    """Return the scales of all dimensions as a constant, 1 for batch and channels; None if one is missing."""
    # Batch and channels are not resized.
    factors: list[float] = [1.0, 1.0]
    for item in scales:
        constant = helper._maybe_get_const(item, "fs")
        if helper._is_none(constant) or isinstance(constant, Value):
            return None
        factors += [helper.to_float(item) for item in helper.to_list(constant)]
    return g.wrap(g.inner.constant(factors, DataType.FLOAT)) if len(factors) > 2 else None


def _get_interpolate_attributes(
    g: GraphContext, mode: str, args: Sequence[object]
) -> tuple[Value | None, object]:
    """Return the scales, or None, and `align_corners`, or None for the mode `nearest`."""
    align_corners = None if mode == "nearest" else args[0]
    scales = args if mode == "nearest" else args[1:]
    return _interpolate_get_scales_if_available(g, scales), align_corners


def _avgpool_helper(
    tuple_fn: Callable[[object], Sequence[int]],
    padding: object,
    kernel_size: object,
    stride: object,
    divisor_override: object,
    name: str,
) -> tuple[int, ...]:
    if not helper._is_none(divisor_override):
        helper._unimplemented(name, "divisor_override")
    return tuple(tuple_fn(padding))
