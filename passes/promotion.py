"""ATen's type promotion: `result_type` over tensors and Python numbers, and a rule per operator.

The semantics are those of c10 (`promoteTypes`, `result_type`, `TensorIterator`); a property test compares
them with torch.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from onnx_ir import DataType, Value

from ..registration import NUMBER
from ..registration.dtypes import FLOATS, of_number

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
_OF_NUMBER_KIND = {"int": DataType.INT64, "float": DEFAULT_FLOAT, "bool": DataType.BOOL}


def promote(a: DataType, b: DataType) -> DataType | None:
    """The element type that two tensors of one category are computed in; None where torch has none."""
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda dtype: _RANK.get(dtype, -1))
    if low not in _RANK:
        return high if high in FLOATS and low in (DataType.UINT16, DataType.UINT32, DataType.UINT64) else None
    if _RANK[low] < _RANK[high]:
        return high
    return DataType.INT16 if DataType.INT8 in (low, high) else DataType.FLOAT


def is_integral(dtype: DataType | None) -> bool:
    """Whether an element type is an integer or BOOL."""
    return dtype is not None and dtype not in FLOATS and _RANK.get(dtype, 9) < 5


class Category(enum.IntEnum):
    """What an operand weighs in promotion, the lightest first."""

    NUMBER = 0
    ZERO_DIM = 1
    DIMENSIONED = 2


def _combine(higher: DataType | None, lower: DataType | None) -> DataType | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher in FLOATS:
        return higher
    if higher == DataType.BOOL or lower in FLOATS:
        return promote(higher, lower)
    return higher


def result_type(operands: Iterable[tuple[DataType, Category]]) -> DataType | None:
    """The element type that operands are computed in together, as `torch.result_type` has it.

    Args:
        operands: element type and category of each; numbers as INT64, BOOL or the default float type.

    Returns:
        The type, or None where torch promotes the operands to none.
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


class Kind(enum.Enum):
    """How an operator promotes."""

    TOGETHER = enum.auto()
    """Operands are promoted together, the result has their type."""
    FLOAT = enum.auto()
    """Likewise, and integers become the default float type."""
    DOUBLE = enum.auto()
    """Computed in DOUBLE whatever comes."""
    COMPARISON = enum.auto()
    """Operands are promoted together, the result is BOOL."""
    LOGICAL = enum.auto()
    """Each operand becomes BOOL."""
    SELF = enum.auto()
    """What is written takes the type of what it is written to."""
    CAST = enum.auto()
    """A `dtype` argument casts the operand before the operator."""
    SUM = enum.auto()
    """Likewise, and without one integers become INT64."""


class Rule(NamedTuple):
    """How one operator promotes.

    Attributes:
        operands: names of the arguments that decide.
        followers: names of the arguments that take the type without deciding it.
    """

    kind: Kind
    operands: tuple[str, ...]
    followers: tuple[str, ...] = ()


_PAIR = ("self", "other")
_SELF = ("self",)


def _table() -> dict[str, Rule]:
    table: dict[str, Rule] = {}

    def enter(names: str, kind: Kind, operands: tuple[str, ...], followers: tuple[str, ...] = ()) -> None:
        table.update(dict.fromkeys(names.split(), Rule(kind, operands, followers)))

    enter(
        "mul multiply maximum minimum max min fmax fmin fmod remainder floor_divide hypot logaddexp "
        "logaddexp2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift __and__ "
        "__or__ __xor__ __lshift__ __rshift__ gcd lcm kron where",
        Kind.TOGETHER,
        _PAIR,
    )
    enter("add sub subtract rsub", Kind.TOGETHER, _PAIR, ("alpha",))
    enter("pow", Kind.TOGETHER, ("self", "exponent"))
    enter("float_power", Kind.DOUBLE, ("self", "exponent"))
    enter("clamp clip clamp_min clamp_max", Kind.TOGETHER, ("self", "min", "max"))
    enter("lerp", Kind.TOGETHER, ("self", "end", "weight"))
    enter("addcmul", Kind.TOGETHER, ("self", "tensor1", "tensor2"), ("value",))
    enter("addcdiv", Kind.TOGETHER, ("self", "tensor1", "tensor2"), ("value",))
    enter("cat concat concatenate stack", Kind.TOGETHER, ("tensors",))
    enter("hstack vstack dstack row_stack column_stack", Kind.TOGETHER, ("tensors",))
    enter("mse_loss l1_loss smooth_l1_loss huber_loss", Kind.TOGETHER, ("self", "target"))
    enter("outer ger", Kind.TOGETHER, ("self", "vec2"))
    enter(
        "div divide true_divide atan2 arctan2 copysign xlogy ldexp special_xlogy special_xlog1py "
        "special_zeta",
        Kind.FLOAT,
        _PAIR,
    )
    enter(
        "acos acosh arccos arccosh asin asinh arcsin arcsinh atan atanh arctan arctanh cos cosh sin "
        "sinh tan tanh sinc exp exp2 expm1 log log10 log1p log2 sqrt rsqrt reciprocal sigmoid logit "
        "erf erfc erfinv lgamma digamma polygamma mvlgamma i0 deg2rad rad2deg angle logsumexp "
        "special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_digamma "
        "special_entr special_erf special_erfc special_erfcx special_erfinv special_exp2 "
        "special_expit special_expm1 special_gammaln special_i0 special_i0e special_i1 special_i1e "
        "special_log1p special_log_ndtr special_logit special_logsumexp special_ndtr special_ndtri "
        "special_polygamma special_psi special_sinc",
        Kind.FLOAT,
        _SELF,
    )
    enter("eq ne lt le gt ge not_equal less less_equal greater greater_equal isclose", Kind.COMPARISON, _PAIR)
    enter("isin", Kind.COMPARISON, ("elements", "test_elements", "element", "test_element"))
    enter("logical_and logical_or logical_xor logical_not", Kind.LOGICAL, _PAIR)
    enter(
        "copy scatter_add scatter_reduce select_scatter slice_scatter diagonal_scatter",
        Kind.SELF,
        _SELF,
        ("src",),
    )
    enter("scatter", Kind.SELF, _SELF, ("src", "value"))
    enter("masked_fill index_fill fill", Kind.SELF, _SELF, ("value",))
    enter("index_put", Kind.SELF, _SELF, ("values",))
    enter("index_copy put masked_scatter", Kind.SELF, _SELF, ("source",))
    enter("index_add", Kind.SELF, _SELF, ("source", "alpha"))
    enter("sum nansum prod cumsum cumprod trace", Kind.SUM, _SELF)
    enter(
        "mean nanmean softmax log_softmax special_softmax special_log_softmax logcumsumexp norm "
        "linalg_norm linalg_matrix_norm linalg_vector_norm",
        Kind.CAST,
        _SELF,
    )
    return table


RULES = _table()


def rule_of(name: str, arguments: Mapping[str, Any]) -> Rule | None:
    """The rule of an ATen operator, by its name without the domain; None where nothing is promoted."""
    rule = RULES.get(name)
    if rule is not None and rule.kind is Kind.FLOAT and arguments.get("rounding_mode") is not None:
        return rule._replace(kind=Kind.TOGETHER)
    return rule


def _operands(rule: Rule, arguments: Mapping[str, Any]) -> Iterable[Any]:
    for name in rule.operands:
        item = arguments.get(name)
        if isinstance(item, list):
            yield from item
        elif item is not None:
            yield item


def _together(rule: Rule, arguments: Mapping[str, Any], expected: DataType | None) -> DataType | None:
    operands: list[tuple[DataType, Category]] = []
    tensors: set[DataType] = set()
    rank_unknown = False
    for item in _operands(rule, arguments):
        if not isinstance(item, Value):
            if not isinstance(item, (bool, int, float)):
                return None
            operands.append((of_number(item), Category.NUMBER))
        elif NUMBER in item.metadata_props:
            operands.append((_OF_NUMBER_KIND[item.metadata_props[NUMBER]], Category.NUMBER))
        elif item.dtype is None:
            return None
        else:
            tensors.add(item.dtype)
            rank_unknown = rank_unknown or item.shape is None
            zero_dim = item.shape is not None and len(item.shape) == 0
            operands.append((item.dtype, Category.ZERO_DIM if zero_dim else Category.DIMENSIONED))
    if rank_unknown and len(tensors) > 1:
        return None if rule.kind is Kind.COMPARISON else expected
    return result_type(operands) if operands else None


def compute_dtype(
    rule: Rule, arguments: Mapping[str, Any], expected: DataType | None = None
) -> DataType | None:
    """The element type that an operator computes in, None where it cannot be told.

    Args:
        expected: the type that its result is known to have, for operands whose rank is unknown.
    """
    if rule.kind in (Kind.TOGETHER, Kind.FLOAT, Kind.COMPARISON):
        dtype = _together(rule, arguments, expected)
        return DEFAULT_FLOAT if rule.kind is Kind.FLOAT and is_integral(dtype) else dtype
    if rule.kind is Kind.DOUBLE:
        return DataType.DOUBLE
    if rule.kind is Kind.LOGICAL:
        return DataType.BOOL
    operand = arguments.get("self")
    own = operand.dtype if isinstance(operand, Value) else None
    if rule.kind is Kind.SELF:
        return own
    wanted = arguments.get("dtype")
    if isinstance(wanted, DataType):
        return wanted
    return DataType.INT64 if rule.kind is Kind.SUM and is_integral(own) else own


def output_dtype(name: str, arguments: Mapping[str, Any]) -> DataType | None:
    """The element type of an ATen operator's result, as far as a rule tells it."""
    rule = rule_of(name, arguments)
    if rule is None:
        return None
    return DataType.BOOL if rule.kind is Kind.COMPARISON else compute_dtype(rule, arguments)
