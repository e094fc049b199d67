"""The functions of `symbolic_helper` that emit operators; each emits one operator at any opset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from ...registration import DataType, dtypes
from .._type_utils import JitScalarType
from . import argument_helpers as helper
from .context import GraphContext
from .values import Value


def _sizes(g: GraphContext, items: Any) -> Any:
    """Convert a list of sizes or axes for emission: a value, or Python ints and values."""
    if isinstance(items, Value):
        return items.held
    if isinstance(items, (list, tuple)):
        plain = [item.held if isinstance(item, Value) else int(item) for item in items]
        if len(plain) == 1 and isinstance(plain[0], ir.Value) and g.inner.rank(plain[0]) == 1:
            return plain[0]
        return plain
    return items


def _unsqueeze_helper(g: GraphContext, input: Value, axes_i: Sequence[Any]) -> Any:
    if len(axes_i) == 0:
        return input
    return g.wrap(g.inner.op("Unsqueeze", input.held, axes=_sizes(g, axes_i)))


def _squeeze_helper(g: GraphContext, input: Value, axes_i: Sequence[Any]) -> Any:
    return g.wrap(g.inner.op("Squeeze", input.held, axes=_sizes(g, axes_i)))


def _reducesum_helper(
    g: GraphContext, input: Value, axes_i: Any = None, keepdims_i: Any = 1, noop_with_empty_axes_i: int = 0
) -> Any:
    keepdims = helper._maybe_get_const(keepdims_i, "i")
    empty = isinstance(axes_i, (list, tuple)) and not axes_i
    axes = None if axes_i is None or empty else _sizes(g, axes_i)
    if axes is None and noop_with_empty_axes_i:
        return input
    return g.wrap(g.inner.op("ReduceSum", input.held, axes=axes, keepdims=int(keepdims)))


def _reshape_helper(g: GraphContext, input: Value, shape: Any, allowzero: int = 0) -> Any:
    given = _sizes(g, shape)
    return g.wrap(g.inner.op("Reshape", input.held, given, allowzero=allowzero or None))


def _slice_helper(g: GraphContext, input: Value, axes: Any, starts: Any, ends: Any, steps: Any = None) -> Any:
    named = {"starts": _sizes(g, starts), "ends": _sizes(g, ends)}
    named |= {"axes": _sizes(g, axes), "steps": None if steps is None else _sizes(g, steps)}
    return g.wrap(g.inner.op("Slice", input.held, **named))


def _select_helper(g: GraphContext, self: Value, dim: int, index: Any, apply_reshape: bool = True) -> Any:
    """Emit Gather with an index that keeps its dimension."""
    known = helper._maybe_get_scalar(index)
    if not isinstance(known, Value):
        return g.wrap(g.inner.op("Gather", self.held, [int(known)], axis=dim))
    indices = g.inner.cast(index.held, DataType.INT64)
    if apply_reshape and g.inner.rank(indices) == 0:
        indices = g.inner.op("Unsqueeze", indices, axes=[0])
    return g.wrap(g.inner.op("Gather", self.held, indices, axis=dim))


def _size_helper(g: GraphContext, self: Value, dim: Any) -> Any:
    dims = helper._maybe_get_const(dim, "i")
    if isinstance(dims, Value):
        return g.wrap(g.inner.op("Gather", g.inner.op("Shape", self.held), dims.held, axis=0))
    return g.wrap(g.inner.constant(g.inner.size(self.held, int(dims))))


def _numel_helper(g: GraphContext, self: Value) -> Any:
    return g.wrap(g.inner.op("ReduceProd", g.inner.op("Shape", self.held), keepdims=0))


def _flatten_helper(g: GraphContext, input: Value, start_dim: int, end_dim: int, dim: int) -> Any:
    shape = g.inner.op("Shape", input.held)
    parts = [g.inner.op("Slice", shape, starts=[0], ends=[start_dim], axes=[0])] if start_dim else []
    parts.append(g.inner.constant([-1]))
    if end_dim < dim - 1:
        parts.append(g.inner.op("Slice", shape, starts=[end_dim + 1], ends=[dim], axes=[0]))
    target = parts[0] if len(parts) == 1 else g.inner.op("Concat", *parts, axis=0)
    return g.wrap(g.inner.op("Reshape", input.held, target))


def _topk_helper(
    g: GraphContext, input: Value, k: Any, dim: int, largest: Any = True, sorted: Any = False, out: Any = None
) -> Any:
    if not helper._is_none(out):
        helper._unimplemented("TopK", "out")
    count = helper._maybe_get_const(k, "i")
    if isinstance(count, Value):
        count = g.inner.op("Reshape", g.inner.cast(count.held, DataType.INT64), [1])
    named = {"largest": 1 if largest else 0, "sorted": 1 if sorted else 0}
    # Sorted results are among those that an unsorted TopK may give.
    if g.inner.opset < 11:
        named["sorted"] = 1
    return g.wrap(g.inner.op("TopK", input.held, K=count, axis=dim, outputs=2, **named))


def _sort_helper(g: GraphContext, input: Value, dim: int, descending: Any = True, out: Any = None) -> Any:
    if not helper._is_none(out):
        helper._unimplemented("Sort", "out")
    return _topk_helper(g, input, _size_helper(g, input, dim), dim, descending, True)


def _argmin_argmax_helper(g: GraphContext, input: Value, dim: Any, keepdim: bool, op_name: str) -> Any:
    if not helper._is_none(dim):
        axis = helper._parse_arg(dim, "i")
        return g.wrap(g.inner.op(op_name, input.held, axis=axis, keepdims=int(keepdim)))
    found = g.inner.op(op_name, g.inner.op("Reshape", input.held, [-1]), axis=0, keepdims=0)
    if keepdim:
        ones = g.inner.op("Shape", g.inner.op("Shape", input.held))
        found = g.inner.op("Reshape", found, g.inner.op("Expand", [1], ones))
    return g.wrap(found)


def _scatter_helper(g: GraphContext, self: Value, dim: int, index: Value, src: Value) -> Any:
    name = "ScatterElements" if g.inner.opset >= 11 else "Scatter"
    return g.wrap(g.inner.op(name, self.held, index.held, src.held, axis=dim))


def _lt_helper(g: GraphContext, input: Value, other: Value) -> Any:
    return g.op("Less", input, other)


def _maybe_cast_to_type(g: GraphContext, value: Value, jit_type: JitScalarType) -> Any:
    return g.wrap(g.inner.cast(g.inner.constant(value.held), jit_type.onnx_type()))


def _maybe_cast_reduce_op_input(g: GraphContext, self: Value) -> Any:
    """Cast integers and BOOL to INT64, the type in which torch sums."""
    narrow = self.element_type in (dtypes.INTEGERS | {DataType.BOOL})
    return g.wrap(g.inner.cast(self.held, DataType.INT64)) if narrow else self


def _generate_wrapped_number(g: GraphContext, scalar: Any) -> Any:
    return g.wrap(scalar)


def _optional_input_placeholder_tensor(g: GraphContext) -> Any:
    """Return the value that omits an input."""
    return g.wrap(None)


def _op_with_optional_float_cast(g: GraphContext, op_name: str, *args: Any, **kwargs: Any) -> Any:
    """Emit the operator; emission casts element types that the opset lacks."""
    named = {key: item for key, item in kwargs.items() if key not in ("opset_before", "target_float_t")}
    return g.op(op_name, *args, **named)


def _reduced(op_name: str) -> Callable[..., Any]:
    def extreme(g: GraphContext, self: Value, dim_or_y: Any = None, keepdim: Any = None) -> Any:
        if dim_or_y is None and keepdim is None:
            return g.wrap(g.inner.op(f"Reduce{op_name}", self.held, keepdims=0))
        if keepdim is None:
            return g.op(op_name, self, dim_or_y)
        axis, kept = helper._get_const(dim_or_y, "i", "dim"), helper._get_const(keepdim, "i", "keepdim")
        values = g.inner.op(f"Reduce{op_name}", self.held, axes=[axis], keepdims=kept)
        return g.wrap((values, g.inner.op(f"Arg{op_name}", self.held, axis=axis, keepdims=kept)))

    return extreme


_max_helper = _reduced("Max")
_min_helper = _reduced("Min")


def _reduce_op_symbolic_helper(onnx_op_name: str, allow_multi_dim_support: bool = True) -> Callable[..., Any]:
    """Make a symbolic function of a reduction: `(g, self)`, or `(g, self, dim, keepdim)`."""

    def symbolic(g: GraphContext, self: Value, dim: Any = None, keepdim: Any = None) -> Any:
        value = _maybe_cast_reduce_op_input(g, self)
        if helper._is_none(dim):
            kept = 0 if helper._is_none(keepdim) else helper._get_const(keepdim, "i", "keepdim")
            return g.wrap(g.inner.op(onnx_op_name, value.held, keepdims=kept))
        axes = helper._get_const(dim, "is" if allow_multi_dim_support else "i", "dim")
        kept = helper._get_const(keepdim, "i", "keepdim")
        axes = axes if isinstance(axes, list) else [axes]
        return g.wrap(g.inner.op(onnx_op_name, value.held, axes=axes or None, keepdims=kept))

    return symbolic


def _unbind_helper(g: GraphContext, self: Value, dim: int, _outputs: Any = None) -> Any:
    count = helper._get_tensor_dim_size(self, dim)
    if count is None:
        helper._unimplemented("unbind", "a size that is not static", self)
    return g.wrap([g.inner.op("Gather", self.held, g.inner.constant(i), axis=dim) for i in range(count)])


def _interpolate_get_scales_if_available(g: GraphContext, scales: Sequence[Any]) -> Any:
    """Return the scales of all dimensions as a constant, 1 for batch and channels; None if one is missing."""
    found: list[float] = [1.0, 1.0]
    for item in scales:
        known = helper._maybe_get_const(item, "fs")
        if helper._is_none(known) or isinstance(known, Value):
            return None
        found.extend(known if isinstance(known, (list, tuple)) else [known])
    return g.wrap(g.inner.constant(found, DataType.FLOAT)) if len(found) > 2 else None


def _get_interpolate_attributes(g: GraphContext, mode: str, args: Sequence[Any]) -> tuple[Any, Any]:
    """Return the scales, or None, and `align_corners`, or None for the mode `nearest`."""
    align_corners = None if mode == "nearest" else args[0]
    scales = args if mode == "nearest" else args[1:]
    return _interpolate_get_scales_if_available(g, scales), align_corners


def _avgpool_helper(
    tuple_fn: Callable[[Any], Sequence[int]],
    padding: Any,
    kernel_size: Any,
    stride: Any,
    divisor_override: Any,
    name: str,
) -> tuple[int, ...]:
    if not helper._is_none(divisor_override):
        helper._unimplemented(name, "divisor_override")
    return tuple(tuple_fn(padding))
