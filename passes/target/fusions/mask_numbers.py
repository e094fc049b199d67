"""What is known of the numbers in the masks that are added to the scores of an attention."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ..constants.initializers import Initializers
from ..node_pass import maker_of
from .patterns import constant_operand, number

_MAXIMUM_MASK = 2**22
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


def contents(known: Initializers, value: ir.Value | None) -> np.ndarray | None:
    """The numbers of a constant whose contents are already computed; None for others."""
    tensor = value.const_value if value is not None and known.is_constant(value) else None
    if tensor is None or isinstance(tensor, ir.LazyTensor) or tensor.size > _MAXIMUM_MASK:
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
    if lowest is None:
        return MaskNumbers(True, True)
    may_be_lowest = may_be_infinite = False
    sources, seen = [value], set[ir.Value]()
    while sources:
        source = sources.pop()
        if source in seen:
            continue
        node = source.producer() if source is not None and not known.is_constant(source) else None
        if source is None or len(seen) == _MAXIMUM_SOURCES:
            return MaskNumbers(True, True)
        seen.add(source)
        if node is not None and not node.domain and node.op_type in _MOVED:
            sources.append(node.inputs[0])
        elif node is not None and not node.domain and node.op_type == "Where":
            sources += node.inputs[1:]
        else:
            found = _numbers_at(known, source, lowest)
            may_be_lowest, may_be_infinite = may_be_lowest or found.lowest, may_be_infinite or found.infinite
    return MaskNumbers(may_be_lowest, may_be_infinite)


def _numbers_at(known: Initializers, value: ir.Value, lowest: float) -> MaskNumbers:
    """What numbers a constant, or a product of flags and a number, may hold."""
    array = _numbers(known, value)
    if array is not None:
        return MaskNumbers(bool((array == lowest).any()), not np.isfinite(array).all())
    product = maker_of(value, "Mul")
    found = constant_operand(product) if product is not None else None
    if found is not None and _is_flag(found[0]):
        return MaskNumbers(found[1] == lowest, not np.isfinite(found[1]))
    return MaskNumbers(True, True)


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
