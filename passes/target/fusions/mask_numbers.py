"""What is known of the numbers in the masks that are added to the scores of an attention."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ..constants.initializers import Initializers
from ..node_pass import maker_of
from .patterns import constant_operand, number

MAXIMUM_MASK = 2**22
"""Elements of a mask that is read."""
_MAXIMUM_COMPUTED = 2**18
"""Elements of a mask that is computed to see which numbers it has."""
_MAXIMUM_SOURCES = 64
"""Values that are looked at to see which numbers a mask has."""
_LOWEST = {ir.DataType.FLOAT: np.finfo(np.float32).min, ir.DataType.FLOAT16: np.finfo(np.float16).min}
"""The element types that onnxruntime's Attention has a kernel for, and the lowest number of each."""
_MOVED = frozenset("Expand Flatten Gather Identity Reshape Slice Squeeze Transpose Unsqueeze".split())
"""Operators whose numbers are those of their first input."""
_INTEGERS = (ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64)


class MaskNumbers(NamedTuple):
    """What numbers a mask may hold.

    Attributes:
        lowest: whether it may hold the lowest number of its type.
        infinite: whether it may hold -inf or NaN.
    """

    lowest: bool
    infinite: bool


_UNKNOWN = MaskNumbers(True, True)


def contents(known: Initializers, value: ir.Value | None) -> np.ndarray | None:
    """The numbers of a constant whose contents are already computed; None for others."""
    tensor = value.const_value if value is not None and known.is_constant(value) else None
    if tensor is None or isinstance(tensor, ir.LazyTensor) or tensor.size > MAXIMUM_MASK:
        return None
    return tensor.numpy()


def floats(known: Initializers, value: ir.Value | None) -> np.ndarray | None:
    """The contents of a constant as float32."""
    array = contents(known, value)
    return None if array is None else array.astype(np.float32)


def leaves_scores(mask: np.ndarray | None, lowest: float = -np.inf) -> bool:
    """Whether a mask has no NaN or inf, and a number above `lowest` in each row."""
    if mask is None or not mask.size or np.isnan(mask).any() or (mask == np.inf).any():
        return False
    return bool((mask > lowest).any(axis=-1).all()) if mask.ndim else bool(mask > lowest)


def lowest_number(dtype: ir.DataType | None) -> float | None:
    """The lowest number of a type that onnxruntime's Attention takes; None for other types."""
    return float(_LOWEST[dtype]) if dtype in _LOWEST else None


def numbers_of(known: Initializers, value: ir.Value | None) -> MaskNumbers:
    """What numbers an added mask may hold, as far as constants and the nodes that make it show."""
    lowest = lowest_number(value.dtype) if value is not None else None
    return _UNKNOWN if lowest is None else _numbers_behind(known, value, lowest, {})


def _numbers_behind(
    known: Initializers, value: ir.Value | None, lowest: float, found: dict[ir.Value, MaskNumbers]
) -> MaskNumbers:
    """The numbers of a value; `found` has those of other values, and bounds how many are looked at."""
    if value is None or len(found) >= _MAXIMUM_SOURCES:
        return found.get(value, _UNKNOWN) if value is not None else _UNKNOWN
    if value not in found:
        found[value] = _UNKNOWN
        node = value.producer() if not known.is_constant(value) else None
        if node is None or node.domain or node.op_type not in (*_MOVED, "Add", "Where"):
            found[value] = _numbers_at(known, value, lowest)
        elif node.op_type in _MOVED:
            found[value] = _numbers_behind(known, node.inputs[0], lowest, found)
        else:
            a, b = (_numbers_behind(known, each, lowest, found) for each in node.inputs[-2:])
            # The sum of two lowest numbers is -inf.
            is_overflow = node.op_type == "Add" and a.lowest and b.lowest
            found[value] = MaskNumbers(a.lowest or b.lowest, a.infinite or b.infinite or is_overflow)
    return found[value]


def _numbers_at(known: Initializers, value: ir.Value, lowest: float) -> MaskNumbers:
    """What numbers a constant, one repeated number, or a product of flags and a number, may hold."""
    filled = maker_of(value, "ConstantOfShape")
    filler = filled.attributes.get("value") if filled is not None else None
    array = np.zeros(1) if filled is not None and filler is None else _numbers(known, value)
    array = filler.as_tensor().numpy() if filler is not None else array
    if array is not None:
        return MaskNumbers(bool((array == lowest).any()), not np.isfinite(array).all())
    product = maker_of(value, "Mul")
    found = constant_operand(product) if product is not None else None
    if found is not None and _is_flag(found[0]):
        return MaskNumbers(found[1] == lowest, not np.isfinite(found[1]))
    return _UNKNOWN


def _numbers(known: Initializers, value: ir.Value) -> np.ndarray | None:
    """The numbers of a constant. Small ones are computed, such as the position bias of T5."""
    tensor = value.const_value if known.is_constant(value) else None
    return None if tensor is None or tensor.size > _MAXIMUM_COMPUTED else tensor.numpy()


def _is_flag(value: ir.Value) -> bool:
    """Whether a value is `m`, or `1 - m`, of a mask `m` of bools or integers.

    Integers stand for 0 and 1 here: others are no mask.
    """
    inverted = maker_of(value, "Sub")
    if inverted is not None and number(inverted.inputs[0]) == 1:
        return _is_flag_cast(inverted.inputs[1])
    return _is_flag_cast(value)


def _is_flag_cast(value: ir.Value | None) -> bool:
    node = maker_of(value, "Cast", *_MOVED)
    for _ in range(_MAXIMUM_SOURCES):
        if node is None or node.op_type == "Cast":
            break
        node = maker_of(node.inputs[0], "Cast", *_MOVED)
    cast = node if node is not None and node.op_type == "Cast" else None
    return cast is not None and cast.inputs[0] is not None and cast.inputs[0].dtype in _INTEGERS
