"""Infers shapes during emission from ranks and constants.

This does not replace onnx's shape inference. Symbolic functions need the rank of intermediate values, and
`Shape` of a known shape is folded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ..errors import UnsupportedError
from ..size_algebra.dimensions import UNKNOWN, Dims, broadcast, total
from .constant_integers import MAXIMUM_RANK, integers

Attributes = Mapping[str, Any]

_SAME_AS_FIRST = frozenset(
    "Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization BitwiseNot Cast Ceil Celu Clip Cos Cosh "
    "CumProd CumSum DequantizeLinear Dropout DynamicQuantizeLinear Elu Erf Exp Floor Gelu "
    "GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN "
    "LayerNormalization LeakyRelu Log LogSoftmax LpNormalization Mish Neg Not PRelu QuantizeLinear "
    "RMSNormalization Reciprocal Relu Round ScatterElements ScatterND Selu Sigmoid Sign Sin Sinh Softmax "
    "Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu".split()
)
BROADCASTING = frozenset(
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual "
    "Max Mean Min Mod Mul Or Pow Sub Sum Where Xor".split()
)
"""Operators whose result has the shape to which their operands are broadcast."""


def _broadcast_operands(shapes: Sequence[Dims]) -> Dims:
    """The broadcast of the shapes of operands.

    Raises:
        UnsupportedError: they do not broadcast.
    """
    result = broadcast(shapes)
    # `broadcast` prefers numbers over names, so only two numbers can contradict each other.
    for shape in shapes:
        if shape is result or shape == result:
            continue
        for size, result_size in zip(reversed(shape), reversed(result), strict=False):
            if size != result_size and size != 1 and isinstance(size, int) and isinstance(result_size, int):
                shapes_text = " and ".join(str(_sizes_text(item)) for item in shapes)
                raise UnsupportedError(f"tensors of the shapes {shapes_text} do not broadcast")
    return result


def _sizes_text(shape: Dims) -> list[int | str]:
    return [size if isinstance(size, int) else size.value or "?" for size in shape]


def _axes(inputs: Sequence[ir.Value | None], attributes: Attributes) -> list[int] | None:
    return integers(inputs[1]) if len(inputs) > 1 else attributes.get("axes")


def _transpose(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims:
    dims = shapes[0]
    perm = attributes.get("perm")
    return tuple([dims[axis] for axis in perm]) if perm else dims[::-1]


def _unsqueeze(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims | None:
    axes = _axes(inputs, attributes)
    if axes is None:
        return None
    rank = len(shapes[0]) + len(axes)
    inserted = {axis % rank for axis in axes}
    sizes = iter(shapes[0])
    return tuple(1 if axis in inserted else next(sizes) for axis in range(rank))


def _squeeze(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims | None:
    axes = _axes(inputs, attributes)
    if axes is None:
        return None
    removed = {axis % len(shapes[0]) for axis in axes}
    wrong = [axis for axis in removed if isinstance(shapes[0][axis], int) and shapes[0][axis] != 1]
    if wrong:
        raise UnsupportedError(f"axis {wrong[0]} has {shapes[0][wrong[0]]} elements, and cannot be removed")
    return tuple(size for axis, size in enumerate(shapes[0]) if axis not in removed)


def _concat(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims:
    if any(len(shape) != len(shapes[0]) for shape in shapes):
        raise UnsupportedError(
            f"tensors of {', '.join(str(len(s)) for s in shapes)} dimensions cannot be joined"
        )
    axis = attributes["axis"] % len(shapes[0])
    for shape in shapes:
        for dim, (size, first) in enumerate(zip(shape, shapes[0], strict=True)):
            if dim != axis and size != first and isinstance(size, int) and isinstance(first, int):
                raise UnsupportedError(
                    f"the shapes {_sizes_text(shapes[0])} and {_sizes_text(shape)} cannot be joined at axis "
                    f"{axis}"
                )
    joined = total([shape[axis] for shape in shapes])
    return (*shapes[0][:axis], joined, *shapes[0][axis + 1 :])


def _shape_from_sizes(value: ir.Value | None) -> Dims | None:
    """Return the shape that a tensor of sizes states: its numbers if constant, else only its rank."""
    sizes = integers(value)
    if sizes is not None:
        return tuple(sizes)
    if value is not None and value.shape is not None and len(value.shape) == 1:
        length = value.shape[0]
        return (UNKNOWN,) * length if isinstance(length, int) and length <= MAXIMUM_RANK else None
    return None


def _reshape(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims | None:
    target_shape = _shape_from_sizes(inputs[1])
    if target_shape is None:
        return None
    zero_copies = not attributes.get("allowzero")
    sizes = [shapes[0][i] if size == 0 and zero_copies else size for i, size in enumerate(target_shape)]
    # -1 is left to onnx's inference, and to the passes that read vectors of sizes.
    return tuple(UNKNOWN if size == -1 else size for size in sizes)


def _expand(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims | None:
    target_shape = _shape_from_sizes(inputs[1])
    return None if target_shape is None else _broadcast_operands([shapes[0], target_shape])


def _matmul(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims | None:
    a, b = shapes
    if not a or not b:
        raise UnsupportedError("a scalar cannot be an operand of a matrix product")
    inner = a[-1], b[-2] if len(b) > 1 else b[0]
    if inner[0] != inner[1] and isinstance(inner[0], int) and isinstance(inner[1], int):
        raise UnsupportedError(
            f"the shapes {_sizes_text(a)} and {_sizes_text(b)} do not fit for a matrix product"
        )
    if len(a) < 2 or len(b) < 2:
        return None
    batch = _broadcast_operands([a[:-2], b[:-2]]) if len(a) > 2 or len(b) > 2 else ()
    return (*batch, a[-2], b[-1])


def _gather(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims:
    axis = attributes.get("axis", 0) % len(shapes[0])
    return (*shapes[0][:axis], *shapes[1], *shapes[0][axis + 1 :])


def _gemm(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims:
    rows = shapes[0][1 if attributes.get("transA") else 0]
    columns = shapes[1][0 if attributes.get("transB") else 1]
    return rows, columns


def _reduce(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims | None:
    if len(inputs) > 1 and integers(inputs[1]) is None:
        return None
    axes = _axes(inputs, attributes)
    if not axes and attributes.get("noop_with_empty_axes"):
        return shapes[0]
    removed = {axis % len(shapes[0]) for axis in axes} if axes else set(range(len(shapes[0])))
    keepdims = attributes.get("keepdims", 1)
    return tuple(
        1 if axis in removed else size
        for axis, size in enumerate(shapes[0])
        if keepdims or axis not in removed
    )


def _same_rank(shapes: list[Dims], inputs: Sequence[ir.Value | None], attributes: Attributes) -> Dims:
    return (UNKNOWN,) * len(shapes[0])


_Rule = Callable[[list[Dims], Sequence[ir.Value | None], Attributes], Dims | None]
_RULES: dict[str, _Rule] = {
    "Concat": _concat,
    "DFT": lambda shapes, inputs, attributes: (*(UNKNOWN,) * (len(shapes[0]) - 1), 2),
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": lambda shapes, inputs, attributes: shapes[1],
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Shape": lambda shapes, inputs, attributes: (len(shapes[0]),) if not attributes else None,
    "Size": lambda shapes, inputs, attributes: (),
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
_RULES |= dict.fromkeys(("Slice", "Pad", "Tile", "Split", "TopK", "Upsample", "Resize"), _same_rank)
_RULES |= dict.fromkeys(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare".split(),
    _reduce,
)
_OF_ALL_SHAPES = frozenset({"Concat", "MatMul", "Gather", "GatherElements", "Gemm"})
"""Operators whose rule reads the shape of each input."""
_UNCHECKED = frozenset(
    "BatchNormalization CumProd CumSum DFT GatherElements Gemm GroupNormalization Hardmax "
    "InstanceNormalization LayerNormalization LogSoftmax LpNormalization PRelu RMSNormalization "
    "ScatterElements ScatterND Softmax Trilu".split()
)
"""Operators whose demands on ranks and sizes emission checks in part only."""
_CHECKED = (_SAME_AS_FIRST | BROADCASTING | _RULES.keys()) - _UNCHECKED


def checks_operands(op_type: str) -> bool:
    """Whether emission refuses operands of an operator whose sizes do not fit, if all sizes are known."""
    return op_type in _CHECKED


def infer(
    op_type: str, inputs: Sequence[ir.Value | None], attributes: Attributes, expected: ir.Shape | None = None
) -> ir.Shape | None:
    """The shape of an operator's first output, None if unknown.

    Args:
        expected: a shape that the result shares if it is equal.

    Raises:
        UnsupportedError: the operator does not take operands of these shapes.
    """
    first = inputs[0].shape if inputs and inputs[0] is not None else None
    if op_type in _SAME_AS_FIRST:
        return first
    shapes = [None if value is None or (shape := value.shape) is None else shape.dims for value in inputs]
    if op_type in BROADCASTING:
        dims = None if None in shapes else _broadcast_operands(shapes)  # type: ignore[arg-type]
        if dims is not None and dims == shapes[0]:
            return first
    else:
        dims = _apply_rule(op_type, shapes, inputs, attributes)
    if dims is None or len(dims) > MAXIMUM_RANK:
        return None
    return expected if expected is not None and expected.dims == dims else ir.Shape(dims)


def _apply_rule(
    op_type: str, shapes: list[Dims | None], inputs: Sequence[ir.Value | None], attributes: Attributes
) -> Dims | None:
    if op_type == "ConstantOfShape":
        return _shape_from_sizes(inputs[0])
    rule = _RULES.get(op_type)
    if rule is None:
        return None
    if not shapes or shapes[0] is None:
        return (UNKNOWN,) if op_type == "Shape" else None
    if op_type in _OF_ALL_SHAPES and None in shapes:
        return None
    try:
        return rule(shapes, inputs, attributes)  # type: ignore[arg-type]
    except (LookupError, ArithmeticError, RuntimeError, ValueError):
        # An axis or an order that does not fit the rank; the check of all nodes names the node.
        return None
