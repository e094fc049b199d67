"""Type promotion: the element type in which operands are computed together.

The semantics are those of c10 (`promoteTypes`, `result_type`); a property test compares them with torch.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from onnx_ir import DataType, Value

from .dtypes import FLOATS, of_number
from .metadata import NUMBER

DEFAULT_FLOAT = DataType.FLOAT

_RANK = {
    DataType.BOOL: 0,
    DataType.UINT8: 1,
    DataType.INT8: 1,
    DataType.INT16: 2,
    DataType.INT32: 3,
    DataType.INT64: 4,
    DataType.FLOAT16: 5,
    DataType.BFLOAT16: 5,
    DataType.FLOAT: 6,
    DataType.DOUBLE: 7,
}
_WIDE_UNSIGNED = (DataType.UINT16, DataType.UINT32, DataType.UINT64)
_OF_NUMBER_KIND = {"int": DataType.INT64, "float": DEFAULT_FLOAT, "bool": DataType.BOOL}
_MOST_CASES = 20_000
"""The most combinations of element types and categories that `settle` tries."""


def promote(a: DataType, b: DataType) -> DataType | None:
    """The promoted element type of two tensors of the same category; None if torch has none."""
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda dtype: _RANK.get(dtype, -1))
    if low not in _RANK:
        # torch promotes wide unsigned integers with floats only.
        return high if high in FLOATS and low in _WIDE_UNSIGNED else None
    if _RANK[low] < _RANK[high]:
        return high
    # Of one rank are INT8 and UINT8, which INT16 holds, and both half precisions, which FLOAT holds.
    return DataType.INT16 if DataType.INT8 in (low, high) else DataType.FLOAT


def is_integral(dtype: DataType | None) -> bool:
    """Whether an element type is an integer or BOOL."""
    return dtype in _WIDE_UNSIGNED or (dtype is not None and _RANK.get(dtype, 9) < 5)


class Category(enum.IntEnum):
    """The categories of operands in promotion, lowest priority first."""

    NUMBER = 0
    ZERO_DIM = 1
    DIMENSIONED = 2


def _combine(higher: DataType | None, lower: DataType | None) -> DataType | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher in FLOATS:
        return higher
    # A lower category decides only between bool, integers and floats, not between their widths.
    if higher == DataType.BOOL or lower in FLOATS:
        return promote(higher, lower)
    return higher


def result_type(operands: Iterable[tuple[DataType, Category]]) -> DataType | None:
    """The promoted element type of operands, as in `torch.result_type`.

    Args:
        operands: element type and category of each; numbers as INT64, BOOL or the default float type.

    Returns:
        The type, or None if torch has none.
    """
    of_category: dict[Category, DataType] = {}
    for dtype, category in operands:
        seen = of_category.get(category)
        joint = dtype if seen is None else promote(seen, dtype)
        if joint is None:
            return None
        of_category[category] = joint
    zero_dim, number = of_category.get(Category.ZERO_DIM), of_category.get(Category.NUMBER)
    return _combine(of_category.get(Category.DIMENSIONED), _combine(zero_dim, number))


class Operand(NamedTuple):
    """The known properties of one operand.

    Attributes:
        value: the graph value; None for a Python number.
        dtype: its element type, None if unknown.
        category: None for a tensor of unknown rank.
    """

    value: Value | None
    dtype: DataType | None
    category: Category | None


def operand(item: Value | bool | int | float, number: str | None = None, uniform: bool = False) -> Operand:
    """Describe an argument that takes part in promotion.

    Args:
        number: `int`, `float` or `bool` for a value that is a Python number; its own metadata says so too.
        uniform: the operator gives zero-dim tensors a dimension before it promotes them.
    """
    if not isinstance(item, Value):
        return Operand(None, of_number(item), Category.NUMBER)
    number = number or item.metadata_props.get(NUMBER)
    if number is not None:
        return Operand(item, _OF_NUMBER_KIND[number], Category.NUMBER)
    if uniform:
        return Operand(item, item.dtype, Category.DIMENSIONED)
    if item.shape is None:
        return Operand(item, item.dtype, None)
    return Operand(item, item.dtype, Category.DIMENSIONED if len(item.shape) else Category.ZERO_DIM)


def settle(
    operands: Sequence[Operand], integers: DataType | None, expected: DataType | None
) -> DataType | Value | None:
    """Find the promoted type of operands, if unknown properties cannot change it.

    Args:
        integers: the type that integers and BOOL become, or None.
        expected: the result's element type, if known; it decides between possibilities.

    Returns:
        The element type; or a value of unknown element type, if the promoted type is certainly that of the
        value; or None, if it depends on unknown element types and ranks.
    """
    distinct = _distinct(operands)
    dtypes_of = [(o.dtype,) if o.dtype is not None else (*_RANK, *_WIDE_UNSIGNED) for o in distinct]
    categories_of = [
        (o.category,) if o.category is not None else (Category.ZERO_DIM, Category.DIMENSIONED)
        for o in distinct
    ]
    cases = 1
    for dtypes, categories in zip(dtypes_of, categories_of, strict=True):
        cases *= len(dtypes) * len(categories)
    # Each unknown operand multiplies the cases; the source's own type is as good as a guess can be.
    if cases > _MOST_CASES:
        return expected
    results: set[DataType] = set()
    same_dtype_indices = {index for index, o in enumerate(distinct) if o.dtype is None}
    choices = [list(itertools.product(*pair)) for pair in zip(dtypes_of, categories_of, strict=True)]
    for case in itertools.product(*choices):
        result = result_type(case)
        if result is None:
            # torch refuses these types together, so this combination cannot occur.
            continue
        result = integers if integers is not None and is_integral(result) else result
        results.add(result)
        same_dtype_indices = {index for index in same_dtype_indices if case[index][0] == result}
    if len(results) == 1:
        return results.pop()
    if expected is not None and expected in results:
        return expected
    return distinct[min(same_dtype_indices)].value if same_dtype_indices else None


def _distinct(operands: Sequence[Operand]) -> list[Operand]:
    """Remove redundant operands: keep each value once, and at most two operands with equal properties.

    Two, because one of two tensors of unknown rank may be zero-dim and the other not.
    """
    distinct_operands: list[Operand] = []
    for candidate in operands:
        if candidate.dtype is None:
            repeated = any(candidate.value is previous.value for previous in distinct_operands)
        else:
            equal_count = sum(candidate[1:] == previous[1:] for previous in distinct_operands)
            repeated = equal_count >= (2 if candidate.category is None else 1)
        if not repeated:
            distinct_operands.append(candidate)
    return distinct_operands
