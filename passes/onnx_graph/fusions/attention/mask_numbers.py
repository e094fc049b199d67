"""The special numbers in the masks that are added to the scores of an attention: the lowest, -inf, NaN."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ...constants.initializers import Initializers
from ...node_pass import producer_of
from ...pattern_matcher import constant_operand, number

MAXIMUM_MASK = 2**22
"""Maximum elements of a mask that is read."""
_MAXIMUM_COMPUTED = 2**18
"""Maximum elements of a mask that is computed to see which numbers it has."""
_MAXIMUM_SOURCES = 64
"""Maximum number of values that are examined to see which numbers a mask has."""
_LOWEST = {ir.DataType.FLOAT: np.finfo(np.float32).min, ir.DataType.FLOAT16: np.finfo(np.float16).min}
"""The element types that onnxruntime's Attention has a kernel for, and the lowest number of each."""
_MOVING = frozenset("Expand Flatten Gather Identity Reshape Slice Squeeze Transpose Unsqueeze".split())
"""Operators whose numbers are those of their first input."""
_INTEGERS = (ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64)


class MaskNumbers(NamedTuple):
    """The special numbers that a mask may contain.

    Attributes:
        lowest: whether it may contain the lowest number of its type.
        infinite: whether it may contain -inf or NaN.
    """

    lowest: bool
    infinite: bool


_UNKNOWN = MaskNumbers(True, True)


def contents(initializers: Initializers, value: ir.Value | None) -> np.ndarray | None:
    """The numbers of a constant whose contents are already computed; None for others."""
    tensor = value.const_value if value is not None and initializers.is_constant(value) else None
    if tensor is None or isinstance(tensor, ir.LazyTensor) or tensor.size > MAXIMUM_MASK:
        return None
    return tensor.numpy()


def floats(initializers: Initializers, value: ir.Value | None) -> np.ndarray | None:
    """The contents of a constant as float32."""
    array = contents(initializers, value)
    return None if array is None else array.astype(np.float32)


def leaves_scores(mask: np.ndarray | None, lowest: float = -np.inf) -> bool:
    """Whether a mask has no NaN or inf, and a number above `lowest` in each row."""
    if mask is None or not mask.size or np.isnan(mask).any() or (mask == np.inf).any():
        return False
    return bool((mask > lowest).any(axis=-1).all()) if mask.ndim else bool(mask > lowest)


def lowest_number(dtype: ir.DataType | None) -> float | None:
    """The lowest number of a type that onnxruntime's Attention takes; None for other types."""
    return float(_LOWEST[dtype]) if dtype in _LOWEST else None


def numbers_of(initializers: Initializers, value: ir.Value | None) -> MaskNumbers:
    """The special numbers that an added mask may contain, from constants and the nodes that compute it."""
    lowest = lowest_number(value.dtype) if value is not None else None
    return _UNKNOWN if lowest is None else _numbers_behind(initializers, value, lowest, {})


def _numbers_behind(
    initializers: Initializers,
    value: ir.Value | None,
    lowest: float,
    numbers_by_value: dict[ir.Value, MaskNumbers],
) -> MaskNumbers:
    """The numbers of a value; `numbers_by_value` has those of other values, and limits their number."""
    if value is None or len(numbers_by_value) >= _MAXIMUM_SOURCES:
        return numbers_by_value.get(value, _UNKNOWN) if value is not None else _UNKNOWN
    if value not in numbers_by_value:
        # Set before the inputs are examined, so that it counts towards the limit.
        numbers_by_value[value] = _UNKNOWN
        node = value.producer() if not initializers.is_constant(value) else None
        if node is None or node.domain or node.op_type not in (*_MOVING, "Add", "Where"):
            numbers_by_value[value] = _numbers_at(initializers, value, lowest)
        elif node.op_type in _MOVING:
            numbers_by_value[value] = _numbers_behind(initializers, node.inputs[0], lowest, numbers_by_value)
        else:
            a, b = (
                _numbers_behind(initializers, operand, lowest, numbers_by_value)
                for operand in node.inputs[-2:]
            )
            # The sum of two lowest numbers is -inf.
            is_overflow = node.op_type == "Add" and a.lowest and b.lowest
            numbers_by_value[value] = MaskNumbers(
                a.lowest or b.lowest, a.infinite or b.infinite or is_overflow
            )
    return numbers_by_value[value]


def _numbers_at(initializers: Initializers, value: ir.Value, lowest: float) -> MaskNumbers:
    """The special numbers of a constant, one repeated number, or a product of flags and a number."""
    # Without the attribute `value`, ConstantOfShape gives zeros.
    filled = producer_of(value, "ConstantOfShape")
    filler = filled.attributes.get("value") if filled is not None else None
    array = np.zeros(1) if filled is not None and filler is None else _numbers(initializers, value)
    array = filler.as_tensor().numpy() if filler is not None else array
    if array is not None:
        return MaskNumbers(bool((array == lowest).any()), not np.isfinite(array).all())
    product = producer_of(value, "Mul")
    factors = constant_operand(product) if product is not None else None
    if factors is not None and _is_flag(factors[0]):
        return MaskNumbers(factors[1] == lowest, not np.isfinite(factors[1]))
    return _UNKNOWN


def _numbers(initializers: Initializers, value: ir.Value) -> np.ndarray | None:
    """The numbers of a constant. Small ones are computed, such as the position bias of T5."""
    tensor = value.const_value if initializers.is_constant(value) else None
    return None if tensor is None or tensor.size > _MAXIMUM_COMPUTED else tensor.numpy()


def _is_flag(value: ir.Value) -> bool:
    """Whether a value is `m`, or `1 - m`, of a mask `m` of bools or integers.

    Integers are taken to be 0 and 1; other integers would be no mask.
    """
    inverted = producer_of(value, "Sub")
    if inverted is not None and number(inverted.inputs[0]) == 1:
        return _is_flag_cast(inverted.inputs[1])
    return _is_flag_cast(value)


def _is_flag_cast(value: ir.Value | None) -> bool:
    node = producer_of(value, "Cast", *_MOVING)
    for _ in range(_MAXIMUM_SOURCES):
        if node is None or node.op_type == "Cast":
            break
        node = producer_of(node.inputs[0], "Cast", *_MOVING)
    cast = node if node is not None and node.op_type == "Cast" else None
    return cast is not None and cast.inputs[0] is not None and cast.inputs[0].dtype in _INTEGERS
