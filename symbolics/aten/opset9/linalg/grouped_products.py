"""Grouped matrix products with computed group sizes, used by mixture-of-experts layers.

Semantics: `_grouped_mm_fallback` in ATen's GroupedMMUtils.h. Groups are consecutive and may be empty; `offs`
has the end of each. Rows beyond the last group, which ATen leaves uninitialised, are zeros here.
"""

from collections.abc import Callable

import onnx_ir as ir

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from .....registration.functions.results import as_list
from ....compositions.counted_numbers import before_casts, counted_numbers
from ....compositions.list_values import loop_inputs
from ....compositions.size_arithmetic import known_rank, mark_non_negative, static_size, where_true

_UNROLLED = 8
"""Up to this many groups are unrolled, with about as many nodes as a Loop, which copies the weights."""


@onnx_symbolic("aten::_grouped_mm")
def _grouped_mm(
    g: GraphContext,
    self: Value,
    mat2: Value,
    offs: Value | None = None,
    bias: Value | None = None,
    out_dtype: DataType | None = None,
) -> Value:
    """Four forms, by the ranks: groups of rows, of columns, of the summed dimension, or batches."""
    if bias is not None:
        raise g.refuse("bias is not supported, as in PyTorch")
    ranks = known_rank(g, self), known_rank(g, mat2)
    if ranks == (3, 3):
        result = g.op("MatMul", self, mat2)
    elif offs is None:
        raise g.refuse("offs must be given for a matrix of rank 2")
    elif ranks == (2, 3):
        result = g.call("composed::grouped_rows", input=self, weight=mat2, offs=offs)
    elif ranks == (3, 2):
        rows, weight = g.op("Transpose", mat2, perm=[1, 0]), g.op("Transpose", self, perm=[0, 2, 1])
        columns = g.call("composed::grouped_rows", input=rows, weight=weight, offs=offs)
        result = g.op("Transpose", columns, perm=[1, 0])
    else:
        result = _grouped_sums(g, self, mat2, offs)
    return result if out_dtype is None else g.cast(result, out_dtype)


def _bounds(g: GraphContext, offs: Value) -> tuple[Value, Value]:
    """The start and the end of each group."""
    ends = mark_non_negative(g.cast(offs, DataType.INT64))
    # A group begins where the one before it ends.
    starts = g.op("Concat", [0], g.op("Slice", ends, starts=[0], ends=[-1], axes=[0]), axis=0)
    return mark_non_negative(starts), ends


def _bound_as_list(g: GraphContext, bounds: Value, group: Value | int) -> Value:
    """One of the bounds, as a list."""
    index = [group] if isinstance(group, int) else g.op("Unsqueeze", group, axes=[0])
    return mark_non_negative(g.op("Gather", bounds, index, axis=0))


def _part(g: GraphContext, value: Value, dim: int, start: Value | int, end: Value) -> Value:
    """The rows or columns of one group."""
    return g.call("composed::slice", self=value, dim=dim, start=start, end=end, step=1)


@onnx_symbolic("composed::grouped_rows")
def grouped_rows(g: GraphContext, input: Value, weight: Value, offs: Value) -> Value:
    """Each group of the rows of `input` times its own matrix of `weight`; zeros for the rows beyond."""
    groups = static_size(g, weight, 0)
    if groups is not None and groups <= _UNROLLED:
        return _unroll_groups(g, input, weight, offs, groups)
    starts, ends = _bounds(g, offs)
    dtype = g.dtype(input) or DataType.FLOAT
    # Sequences cannot contain BFLOAT16, and Loop cannot carry it before opset 16.
    accumulated_dtype = DataType.FLOAT if dtype == DataType.BFLOAT16 else dtype
    last = g.op("Slice", ends, starts=[-1], ends=[2**63 - 1], axes=[0])
    unused = g.call("sym::sub", a=g.size(input, 0), b=last)
    unused_rows = g.call(
        "composed::full", size=[unused, g.size(weight, 2)], fill_value=0, dtype=accumulated_dtype
    )

    # In a sequence no group copies the rows of those before it; `unused_rows` stays its last element.
    in_sequence = g.has("Loop", result=Value(type=ir.SequenceType(ir.TensorType(accumulated_dtype))))

    def append_group(group: Value, rows: Value) -> Value:
        part = _part(g, input, 0, _bound_as_list(g, starts, group), _bound_as_list(g, ends, group))
        group_rows = g.cast(g.op("MatMul", part, g.op("Gather", weight, group, axis=0)), accumulated_dtype)
        return (
            g.op("SequenceInsert", rows, group_rows, -1)
            if in_sequence
            else g.op("Concat", rows, group_rows, axis=0)
        )

    # Empty groups add nothing, so the Loop skips them.
    used = where_true(g, g.op("Less", starts, ends))
    if in_sequence:
        sequence = _loop_over_groups(g, used, append_group, g.op("SequenceConstruct", unused_rows))
        result = g.op("ConcatFromSequence", sequence, axis=0)
    else:
        none = g.call(
            "composed::full", size=[0, g.size(unused_rows, 1)], fill_value=0, dtype=accumulated_dtype
        )
        result = g.op("Concat", _loop_over_groups(g, used, append_group, none), unused_rows, axis=0)
    _set_row_shape(result, input, weight)
    return g.cast(result, dtype)


def _unroll_groups(g: GraphContext, input: Value, weight: Value, offs: Value, groups: int) -> Value:
    """The products of a few groups, whose rows a Split separates; the last part are the rows beyond."""
    sizes, unused = _group_sizes(g, input, offs, groups)
    outputs = groups if unused is None else groups + 1
    parts = as_list(g.op("Split", input, mark_non_negative(sizes), axis=0, outputs=outputs))
    products = [
        g.op("MatMul", parts[group], g.op("Gather", weight, group, axis=0)) for group in range(groups)
    ]
    if unused is not None:
        dtype = g.dtype(input) or DataType.FLOAT
        shape = [mark_non_negative(unused), g.size(weight, 2)]
        products.append(g.call("composed::full", size=shape, fill_value=0, dtype=dtype))
    result: Value = g.op("Concat", *products, axis=0)
    _set_row_shape(result, input, weight)
    return result


def _group_sizes(g: GraphContext, input: Value, offs: Value, groups: int) -> tuple[Value, Value | None]:
    """The number of rows of each group, and of the rows beyond, which are None if there are none."""
    summands = _summed_sizes(offs)
    if summands is None:
        ends = g.cast(offs, DataType.INT64)
        starts = g.op("Concat", [0], ends, axis=0)
        ends = g.op("Concat", ends, g.op("Reshape", g.size(input, 0), [1]), axis=0)
        sizes: Value = g.op("Sub", ends, starts)
        return sizes, g.op("Gather", sizes, [groups], axis=0)
    numbers = counted_numbers(summands, input.shape, groups)
    if numbers is not None and g.has("OneHot"):
        # No number is negative, which OneHot would count from the end.
        one_hot = g.op("OneHot", g.op("Squeeze", numbers, axes=[1]), groups, [0, 1])
        return g.op("ReduceSum", one_hot, axes=[0], keepdims=0), None
    sizes = _count_as_integers(g, summands)
    if numbers is not None:
        return sizes, None
    unused = g.op("Sub", g.op("Reshape", g.size(input, 0), [1]), g.op("ReduceSum", sizes, axes=[0]))
    return g.op("Concat", sizes, unused, axis=0), unused


def _summed_sizes(ends: Value) -> Value | None:
    """The sizes of which `ends` is the cumulative sum; None if something else computes it."""
    node = before_casts(ends)
    # Attributes would reverse the sum, or leave out its last element.
    if node is None or node.op_type != "CumSum" or node.attributes or node.inputs[0] is None:
        return None
    source = before_casts(node.inputs[0])
    return node.inputs[0] if source is None else source.outputs[0]


def _count_as_integers(g: GraphContext, counts: Value) -> Value:
    """Counts as integers: a sum of comparisons that `aten::histc` adds up as floats is added up anew."""
    total = before_casts(counts)
    flags = total.inputs[0] if total is not None and total.op_type == "ReduceSum" else None
    equal = None if flags is None else before_casts(flags)
    if equal is None or equal.op_type != "Equal" or g.dtype(counts) == DataType.INT64:
        return g.cast(counts, DataType.INT64)
    integers = g.cast(equal.outputs[0], DataType.INT64)
    return g.op("ReduceSum", integers, axes=[0], keepdims=0)


def _set_row_shape(result: Value, input: Value, weight: Value) -> None:
    """The shape of the products of all rows, if it is known."""
    if input.shape is not None and weight.shape is not None:
        result.shape = ir.Shape([input.shape[0], weight.shape[2]])


def _loop_over_groups(
    g: GraphContext, groups: Value, step: Callable[[Value, Value], Value], initial: Value
) -> Value:
    """A Loop over the groups; the shape of the carried value may change."""

    def build(iteration: Value, condition: Value, carried: Value) -> list[Value]:
        return [condition, step(g.op("Gather", groups, iteration, axis=0), carried)]

    body = g.subgraph(build, [*loop_inputs(), Value(name="rows", type=initial.type)], "groups")
    trips = g.constant(g.size(groups, 0), DataType.INT64)
    result = g.op("Loop", trips, None, initial, body=body)
    result.type = initial.type
    return result


def _grouped_sums(g: GraphContext, self: Value, mat2: Value, offs: Value) -> Value:
    """The stacked products of each group of columns of `input` with the same rows of `weight`."""
    starts, ends = _bounds(g, offs)

    def build(iteration: Value, condition: Value, unused: Value) -> list[Value]:
        start, end = _bound_as_list(g, starts, iteration), _bound_as_list(g, ends, iteration)
        columns, rows = _part(g, self, 1, start, end), _part(g, mat2, 0, start, end)
        return [condition, unused, g.cast(g.op("MatMul", columns, rows), accumulated_dtype)]

    dtype = g.dtype(self) or DataType.FLOAT
    accumulated_dtype = DataType.FLOAT if dtype == DataType.BFLOAT16 else dtype
    unused = g.constant(False)
    formal = Value(name="nothing", type=unused.type, shape=unused.shape)
    body = g.subgraph(build, [*loop_inputs(), formal], "groups")
    trips = g.constant(g.size(offs, 0), DataType.INT64)
    _, result = g.op("Loop", trips, None, unused, body=body, outputs=2)
    result.type = ir.TensorType(accumulated_dtype)
    if offs.shape is not None and self.shape is not None and mat2.shape is not None:
        result.shape = ir.Shape([offs.shape[0], self.shape[0], mat2.shape[1]])
    return g.cast(result, dtype)
