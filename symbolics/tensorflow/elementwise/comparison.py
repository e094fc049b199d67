"""Comparisons, logic, and choices between two tensors."""

from collections.abc import Callable

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.integers import widen_integers
from ...compositions.operator_tables import register_functions
from .._common import END, binary, select_elements, set_shape
from ..lookup_tables import positions_of_strings, string_of


def _comparable(g: GraphContext, value: Value) -> Value:
    """Cast narrow integers to INT32 or INT64, which runtimes compare."""
    return value if g.dtype(value) == DataType.UINT64 else widen_integers(g, value)


def _comparison(op_type: str) -> Callable[..., Value]:
    return lambda g, x, y: g.op(op_type, _comparable(g, x), _comparable(g, y))


register_functions(
    "tf",
    "x y",
    {
        "Less": _comparison("Less"),
        "LessEqual": _comparison("LessOrEqual"),
        "Greater": _comparison("Greater"),
        "GreaterEqual": _comparison("GreaterOrEqual"),
    },
)


def _may_broadcast(g: GraphContext, x: Value, y: Value) -> bool:
    """Whether two possibly unknown shapes may broadcast."""
    first, second = g.shape(x), g.shape(y)
    if first is None or second is None:
        return True
    pairs = zip(reversed(first), reversed(second), strict=False)
    return not any(isinstance(a, int) and isinstance(b, int) and a != b and 1 not in (a, b) for a, b in pairs)


@onnx_symbolic("tf::Equal")
def equal(g: GraphContext, x: Value, y: Value, incompatible_shape_error: bool = True) -> Value:
    """Shapes that do not broadcast are unequal, a scalar false, if `incompatible_shape_error` is false."""
    if not incompatible_shape_error and not _may_broadcast(g, x, y):
        return g.constant(False)
    if g.dtype(x) == DataType.STRING and not g.has("Equal", dtype=DataType.STRING):
        x, y = _number_strings(g, x, y)
    return g.call("aten::eq", _comparable(g, x), _comparable(g, y))


def _number_strings(g: GraphContext, x: Value, y: Value) -> tuple[Value, Value]:
    """Integers that are equal where strings are: the Equal of older opsets does not compare strings."""
    first, second = g.constant_value(x), g.constant_value(y)
    if first is not None or second is not None:
        constant = second if first is None else first
        assert constant is not None
        names = list(dict.fromkeys(string_of(g, item) for item in constant.reshape(-1).tolist()))
        return positions_of_strings(g, x, names), positions_of_strings(g, y, names)
    if not g.has("Unique"):
        raise g.refuse("it compares computed strings", first_opset=11)
    flat = [g.op("Reshape", value, [-1]) for value in (x, y)]
    numbers = g.op("Unique", g.op("Concat", *flat, axis=0), outputs=3)[2]
    count = g.op("Reshape", g.op("Size", x), [1])
    parts = (
        g.op("Slice", numbers, starts=[0], ends=count, axes=[0]),
        g.op("Slice", numbers, starts=count, ends=[END], axes=[0]),
    )
    first_numbers, second_numbers = (
        set_shape(g.op("Reshape", part, g.op("Shape", value)), g.shape(value))
        for part, value in zip(parts, (x, y), strict=True)
    )
    return first_numbers, second_numbers


@onnx_symbolic("tf::NotEqual")
def not_equal(g: GraphContext, x: Value, y: Value, incompatible_shape_error: bool = True) -> Value:
    return g.op("Not", g.call("tf::Equal", x, y, incompatible_shape_error))


@onnx_symbolic("tf::ApproximateEqual")
def approximate_equal(g: GraphContext, x: Value, y: Value, tolerance: float = 1e-5) -> Value:
    """Whether the distance is less than the tolerance, in the element type of the operands."""
    distance = g.call("tf::Abs", binary(g, "Sub", x, y))
    if g.dtype(x) in (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BFLOAT16, None):
        return g.op("Less", distance, tolerance)
    return g.op("Less", widen_integers(g, distance), int(tolerance))


@onnx_symbolic("tf::Select")
def select(g: GraphContext, condition: Value, t: Value, e: Value) -> Value:
    """A one-dimensional condition selects slices of the first dimension."""
    rank, operand_rank = g.rank(condition), g.rank(t)
    if operand_rank is None:
        operand_rank = g.rank(e)
    if rank is None or operand_rank is None:
        if rank != 0:
            condition = _append_dimensions(g, condition, t)
    elif rank == 1 and operand_rank > 1:
        condition = g.op("Unsqueeze", condition, axes=list(range(1, operand_rank)))
    return select_elements(g, condition, t, e)


def _append_dimensions(g: GraphContext, condition: Value, like: Value) -> Value:
    """Append dimensions of size 1 to the condition up to the rank of another tensor."""
    shape = g.op("Shape", like)
    rank = g.op("Shape", shape)
    unit_sizes = g.op("ConstantOfShape", rank, value=g.constant_value(g.constant([1])))
    target = g.op("Concat", g.op("Shape", condition), unit_sizes, axis=0)
    return g.op(
        "Reshape", condition, g.call("aten::slice", self=target, start=0, end=g.op("Squeeze", rank, axes=[0]))
    )


register_functions("tf", "condition t e", {"SelectV2": select_elements})
