"""ONNX operators whose result may overwrite an operand, and ONNX operators whose result may be a view.

These are facts about the operators, at opset 7 and up; lifetimes of values are not considered here. Source:
the operators' definitions (https://onnx.ai/onnx/operators/).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from ....registration.schemas import operator_schema

_T = TypeVar("_T")

FIRST_OPSET = 7
"""The lowest opset with annotations. Below it, attributes control broadcasting."""

STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""Domains whose operators put every output into new memory, except those listed here."""

Dims = Sequence[int | str | None]
"""Sizes: numbers, names of symbolic sizes, None where unknown."""

VIEWS = frozenset("BitCast Cast CastLike Dropout Flatten Identity Reshape Squeeze Unsqueeze".split())
"""Operators whose output 0 may be a view of input 0; see `is_view`."""

CONTAINERS = frozenset(
    "ConcatFromSequence Optional OptionalGetElement SequenceAt SequenceConstruct SequenceErase "
    "SequenceInsert SplitToSequence".split()
)
"""Operators over sequences and optionals, which hold tensors by reference."""

CONTROL_FLOW = frozenset("If Loop Scan SequenceMap".split())
"""Operators that pass values to and from their sub-graphs by reference; see `bindings`."""

SHARING = VIEWS | CONTAINERS | CONTROL_FLOW | {"Constant"}
"""Operators with results that may share memory with other values, or that belong to the model."""

# Each element of output 0 depends on the same element of input 0, and on any elements of other inputs.
_ELEMENTWISE = frozenset(
    "Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli BitCast BitwiseNot Cast CastLike Ceil "
    "Celu Clip Cos Cosh Dropout Elu Erf Exp Flatten Floor Gelu HardSigmoid HardSwish Identity LeakyRelu Log "
    "Mish Neg Not RandomNormalLike RandomUniformLike Reciprocal Relu Reshape Round Selu Shrink Sigmoid Sign "
    "Sin Sinh Softplus Softsign Sqrt Squeeze Swish Tan Tanh ThresholdedRelu Trilu Unsqueeze".split()
)
# Statistics of whole rows come first, then each element depends on itself and on them.
_NORMALIZING = frozenset(
    "BatchNormalization GroupNormalization Hardmax InstanceNormalization LayerNormalization LogSoftmax "
    "LpNormalization MeanVarianceNormalization RMSNormalization Softmax".split()
)
# Output 0 is input 0 with some elements replaced.
_UPDATING = frozenset("Scatter ScatterElements ScatterND TensorScatter".split())
_FIRST = _ELEMENTWISE | _NORMALIZING | _UPDATING

_BROADCASTING = frozenset(
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual "
    "Max Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor".split()
)
"""Each element of the output depends on one element of every operand; any of full size may be overwritten."""

# The matrix product is added to beta * C, which must have the full size.
_ACCUMULATING = {"Gemm": 2}


# Their results depend on positions or random numbers, or their outputs are no function of input 0 alone.
_NOT_BY_ELEMENT = frozenset({"Bernoulli", "Dropout", "RandomNormalLike", "RandomUniformLike", "Trilu"})


def is_elementwise(op_type: str) -> bool:
    """Whether each element of output 0 is a function of the same element of input 0, and of whole others."""
    return op_type in _ELEMENTWISE and op_type not in _NOT_BY_ELEMENT


def is_broadcasting(op_type: str) -> bool:
    """Whether each element of output 0 depends on one element of every operand."""
    return op_type in _BROADCASTING


def overwritable(op_type: str, opset: int, inputs: int) -> range:
    """The inputs that output 0 may overwrite, for an operator of the ONNX domain.

    The caller checks their element type, size and later readers.
    """
    if opset < FIRST_OPSET:
        return range(0)
    if op_type in _BROADCASTING:
        return range(inputs)
    if op_type in _FIRST:
        return range(min(inputs, 1))
    index = _ACCUMULATING.get(op_type)
    return range(0) if index is None or index >= inputs else range(index, index + 1)


def bound_inputs(op_type: str, inputs: Sequence[_T | None], formals: int) -> Sequence[_T | None]:
    """For each of the sub-graph's inputs, the control flow node's input that it takes, or None."""
    if op_type == "If":
        return ()
    if op_type == "Loop":
        return (None, *inputs[1:])
    # At opset 8 Scan's first input has the lengths of the sequences.
    return inputs[max(0, len(inputs) - formals) :]


def bindings(
    op_type: str,
    inputs: Sequence[_T | None],
    formals: Sequence[_T],
    results: Sequence[_T],
    outputs: Sequence[_T | None],
) -> Iterator[tuple[_T | None, ...]]:
    """The values that one sub-graph of a control flow operator connects, by position.

    Each entry has the node's input, the sub-graph's input, the sub-graph's output and the node's output, or
    None. All four may be one tensor, or slices of one.
    """
    shift = 1 if op_type == "Loop" else 0
    actuals = bound_inputs(op_type, inputs, len(formals))
    # The first input of a Loop body is the iteration number, its first output the condition.
    yield from itertools.zip_longest(actuals[shift:], formals[shift:], results, [None] * shift + [*outputs])


def is_view(op_type: str, operand: int | None, result: int | None) -> bool:
    """Whether output 0 of an ONNX operator may be a view of input 0, given their element types."""
    if op_type in ("Cast", "CastLike"):
        return operand is None or result is None or operand == result
    return op_type in VIEWS


def allows_twice(op_type: str) -> bool:
    """Whether the overwritten operand may also be another operand of the node."""
    return op_type in _BROADCASTING


def same_element_type(
    op_type: str, opset: int, position: int, operand: int | None, result: int | None
) -> bool:
    """Whether output 0 certainly has the element type of the input at `position`.

    Known types decide; otherwise both must share a type variable of the schema.
    """
    if operand is not None and result is not None:
        return operand == result
    schema = operator_schema(op_type, opset)
    if schema is None or not schema.inputs:
        return False
    last = schema.inputs[-1]
    formal = schema.inputs[position] if position < len(schema.inputs) else last
    if formal.variadic and not formal.homogeneous:
        return False
    return formal.variable != "" and formal.variable == schema.outputs[0].variable


def keeps_size(op_type: str) -> bool:
    """Whether output 0 has as many elements as the input that it may overwrite, whatever their shapes."""
    return op_type in _FIRST


def same_size(op_type: str, position: int, operands: Mapping[int, Dims | None], result: Dims | None) -> bool:
    """Whether output 0 certainly has as many elements as the input at `position`, in the same order.

    Args:
        operands: the shape of the input at `position`, and those of the inputs that are other values.
        result: the shape of output 0, or None.
    """
    if keeps_size(op_type):
        return True
    operand_shape = operands[position]
    if operand_shape is not None and result is not None and _equal(operand_shape, result):
        return True
    if op_type not in _BROADCASTING:
        return False
    other_shapes = [shape for index, shape in operands.items() if index != position]
    return not other_shapes or (
        operand_shape is not None and all(_fits(shape, operand_shape) for shape in other_shapes)
    )


def _equal(a: Dims, b: Dims) -> bool:
    return None not in a and tuple(a) == tuple(b)


def _fits(shape: Dims | None, into: Dims) -> bool:
    """Whether a shape broadcasts to another without changing it."""
    if shape is None or len(shape) > len(into):
        return False
    pairs = zip(shape, into[len(into) - len(shape) :], strict=True)
    return all(size == 1 or (size is not None and size == full_size) for size, full_size in pairs)
