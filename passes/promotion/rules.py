"""ATen's type promotion: a rule per operator.

The semantics are those of `TensorIterator`, and of operators with their own promotion. Property tests compare
them with torch, and compare the list of operators with torch's OpInfo database.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from onnx_ir import DataType, Value

from ...registration.promotion import DEFAULT_FLOAT, operand, settle


class Promotion(enum.Enum):
    """How an operator promotes."""

    TOGETHER = enum.auto()
    """Operands are promoted together; the result has that type."""
    FLOAT = enum.auto()
    """Operands are promoted together, and integers become the default float type."""
    DOUBLE = enum.auto()
    """Always computed in DOUBLE."""
    COMPARISON = enum.auto()
    """Operands are promoted together; the result is BOOL."""
    SEARCH = enum.auto()
    """Operands are promoted together; the result is an INT64 position."""
    LOGICAL = enum.auto()
    """Each operand becomes BOOL."""
    SELF = enum.auto()
    """The written tensor is cast to the type of its destination."""
    CAST = enum.auto()
    """A `dtype` argument casts the operand before the operator."""
    SUM = enum.auto()
    """A `dtype` argument casts the operand first; without it integers become INT64."""


class Rule(NamedTuple):
    """How one operator promotes.

    Attributes:
        operands: names of the arguments that decide the element type.
        followers: names of the arguments that are cast to this type but do not decide it.
        uniform: whether tensors of rank 0 count as much as other tensors.
        result: the argument whose element type each element of the result has, before a `reduction`; None if
            the result has the element type that the operator computes in.
    """

    promotion: Promotion
    operands: tuple[str, ...]
    followers: tuple[str, ...] = ()
    uniform: bool = False
    result: str | None = None


_PAIR = ("self", "other")
_SELF = ("self",)


_ENTRIES: tuple[tuple[str, Rule], ...] = (
    (
        "mul multiply maximum minimum max min fmax fmin fmod remainder floor_divide hypot logaddexp "
        "logaddexp2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift __and__ "
        "__or__ __xor__ __lshift__ __rshift__ gcd lcm where nextafter igamma igammac special_gammainc "
        "special_gammaincc",
        Rule(Promotion.TOGETHER, _PAIR),
    ),
    # `kron` gives a zero-dim operand the rank of the other one before it multiplies.
    ("kron", Rule(Promotion.TOGETHER, _PAIR, uniform=True)),
    ("add sub subtract rsub", Rule(Promotion.TOGETHER, _PAIR, ("alpha",))),
    ("pow", Rule(Promotion.TOGETHER, ("self", "exponent"))),
    ("float_power", Rule(Promotion.DOUBLE, ("self", "exponent"))),
    ("clamp clip clamp_min clamp_max", Rule(Promotion.TOGETHER, ("self", "min", "max"))),
    ("lerp", Rule(Promotion.TOGETHER, ("self", "end", "weight"))),
    ("addcmul", Rule(Promotion.TOGETHER, ("self", "tensor1", "tensor2"), ("value",))),
    ("addcdiv", Rule(Promotion.TOGETHER, ("self", "tensor1", "tensor2"), ("value",))),
    ("block_diag cat concat concatenate stack", Rule(Promotion.TOGETHER, ("tensors",))),
    ("hstack vstack dstack row_stack column_stack", Rule(Promotion.TOGETHER, ("tensors",), uniform=True)),
    ("mse_loss l1_loss smooth_l1_loss", Rule(Promotion.TOGETHER, ("self", "target"))),
    ("huber_loss", Rule(Promotion.TOGETHER, ("self", "target"), result="self")),
    ("outer ger", Rule(Promotion.TOGETHER, ("self", "vec2"))),
    # `addr` expands `self` to a matrix before it adds.
    ("addr", Rule(Promotion.TOGETHER, ("self", "vec1", "vec2"), ("beta", "alpha"), uniform=True)),
    ("dist inner", Rule(Promotion.TOGETHER, _PAIR)),
    ("diff", Rule(Promotion.TOGETHER, ("self", "prepend", "append"))),
    ("cosine_similarity", Rule(Promotion.TOGETHER, ("x1", "x2"), uniform=True)),
    ("bucketize", Rule(Promotion.SEARCH, ("self", "boundaries"))),
    ("searchsorted", Rule(Promotion.SEARCH, ("sorted_sequence", "self"))),
    (
        "div divide true_divide atan2 arctan2 copysign xlogy ldexp special_xlogy special_xlog1py "
        "special_zeta",
        Rule(Promotion.FLOAT, _PAIR),
    ),
    (
        "acos acosh arccos arccosh asin asinh arcsin arcsinh atan atanh arctan arctanh cos cosh sin "
        "sinh tan tanh sinc exp exp2 expm1 log log10 log1p log2 sqrt rsqrt reciprocal sigmoid logit "
        "erf erfc erfinv lgamma digamma polygamma mvlgamma i0 deg2rad rad2deg angle logsumexp "
        "special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_digamma "
        "special_entr special_erf special_erfc special_erfcx special_erfinv special_exp2 "
        "special_expit special_expm1 special_gammaln special_i0 special_i0e special_i1 special_i1e "
        "special_log1p special_log_ndtr special_logit special_logsumexp special_ndtr special_ndtri "
        "special_polygamma special_psi special_sinc special_multigammaln special_modified_bessel_i0 "
        "special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1",
        Rule(Promotion.FLOAT, _SELF),
    ),
    (
        "special_airy_ai special_spherical_bessel_j0 special_scaled_modified_bessel_k0 "
        "special_scaled_modified_bessel_k1",
        Rule(Promotion.FLOAT, ("x",)),
    ),
    (
        "special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v "
        "special_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_t "
        "special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v "
        "special_shifted_chebyshev_polynomial_w special_hermite_polynomial_h "
        "special_hermite_polynomial_he special_laguerre_polynomial_l special_legendre_polynomial_p",
        Rule(Promotion.FLOAT, ("x", "n")),
    ),
    (
        "eq ne lt le gt ge not_equal less less_equal greater greater_equal isclose",
        Rule(Promotion.COMPARISON, _PAIR),
    ),
    ("isin", Rule(Promotion.COMPARISON, ("elements", "test_elements", "element", "test_element"))),
    ("logical_and logical_or logical_xor logical_not", Rule(Promotion.LOGICAL, _PAIR)),
    (
        "copy scatter_add scatter_reduce select_scatter slice_scatter diagonal_scatter as_strided_scatter",
        Rule(Promotion.SELF, _SELF, ("src",)),
    ),
    ("scatter", Rule(Promotion.SELF, _SELF, ("src", "value"))),
    ("masked_fill index_fill fill", Rule(Promotion.SELF, _SELF, ("value",))),
    ("soft_margin_loss", Rule(Promotion.SELF, _SELF, ("target",))),
    ("threshold", Rule(Promotion.SELF, _SELF, ("threshold", "value"))),
    ("index_put _unsafe_index_put", Rule(Promotion.SELF, _SELF, ("values",))),
    ("index_copy put masked_scatter", Rule(Promotion.SELF, _SELF, ("source",))),
    ("index_add", Rule(Promotion.SELF, _SELF, ("source", "alpha"))),
    ("sum nansum prod cumsum cumprod trace", Rule(Promotion.SUM, _SELF)),
    (
        "mean nanmean softmax log_softmax special_softmax special_log_softmax logcumsumexp norm "
        "linalg_norm linalg_matrix_norm linalg_vector_norm",
        Rule(Promotion.CAST, _SELF),
    ),
)
RULES = {name: rule for names, rule in _ENTRIES for name in names.split()}


def rule_of(name: str, arguments: Mapping[str, object]) -> Rule | None:
    """Return the rule of an ATen operator by its name without the domain; None if it does not promote."""
    rule = RULES.get(name)
    if rule is not None and rule.promotion is Promotion.FLOAT and arguments.get("rounding_mode") is not None:
        # `div` with a rounding mode returns integers for integers.
        return rule._replace(promotion=Promotion.TOGETHER)
    return rule


def has_computed_type(rule: Rule) -> bool:
    """Whether the result has the element type that the operator computes in."""
    return rule.result is None and rule.promotion not in (Promotion.COMPARISON, Promotion.SEARCH)


def members(rule: Rule, arguments: Mapping[str, object]) -> list[Any]:
    """Return the operands that decide the element type, with lists of tensors flattened."""
    return list(_members(rule, arguments))


def _members(rule: Rule, arguments: Mapping[str, object]) -> Iterator[Any]:
    for name in rule.operands:
        argument = arguments.get(name)
        if isinstance(argument, list):
            yield from argument
        elif argument is not None:
            yield argument


def integers_become(rule: Rule) -> DataType | None:
    """Return the element type to which an operator promotes integers and BOOL; None if they stay."""
    return {Promotion.FLOAT: DEFAULT_FLOAT, Promotion.SUM: DataType.INT64}.get(rule.promotion)


def compute_dtype(
    rule: Rule, arguments: Mapping[str, object], expected: DataType | None = None
) -> DataType | Value | None:
    """Determine the element type that an operator computes in.

    Args:
        expected: the known type of the result; it decides if ranks or types are unknown.

    Returns:
        The type; or a value of unknown type that has the same type; or None if it is unknown or nothing is
        promoted.
    """
    if rule.promotion is Promotion.DOUBLE:
        return DataType.DOUBLE
    if rule.promotion is Promotion.LOGICAL:
        return DataType.BOOL
    tensor = arguments.get("self")
    if rule.promotion is Promotion.SELF:
        return (
            # A value of unknown type represents its type, to which lowering casts.
            tensor if isinstance(tensor, Value) and tensor.dtype is None else getattr(tensor, "dtype", None)
        )
    requested_dtype = arguments.get("dtype")
    if rule.promotion in (Promotion.CAST, Promotion.SUM) and isinstance(requested_dtype, DataType):
        return requested_dtype
    if rule.promotion is Promotion.CAST:
        return tensor.dtype if isinstance(tensor, Value) else None
    items = members(rule, arguments)
    # The table of types has no complex numbers and no None.
    if not items or not all(isinstance(item, (Value, bool, int, float)) for item in items):
        return None
    operands = [operand(item, uniform=rule.uniform) for item in items]
    return settle(operands, integers_become(rule), expected if has_computed_type(rule) else None)


def output_dtype(name: str, arguments: Mapping[str, object]) -> DataType | None:
    """Return the element type of an ATen operator's result; None if no rule gives it."""
    rule = rule_of(name, arguments)
    if rule is None:
        return None
    if rule.result is not None:
        return getattr(arguments.get(rule.result), "dtype", None)
    if rule.promotion is Promotion.COMPARISON:
        return DataType.BOOL
    if rule.promotion is Promotion.SEARCH:
        return DataType.INT32 if arguments.get("out_int32") else DataType.INT64
    computed = compute_dtype(rule, arguments)
    return computed if isinstance(computed, DataType) else None
