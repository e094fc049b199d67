"""Evaluates expressions of dimension names in Python's notation, which the metadata of files contains.

Supports Python's operators, `int`, `float`, `round`, `max`, `min`, `abs` and functions of `math`. The text
may come from an untrusted file, so nothing else is called, and the size of numbers is limited.
"""

from __future__ import annotations

import ast
import functools
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping

_MOST_BITS = 1 << 12
"""The most bits of an integer that is computed, because a power in a file could fill the memory."""
_MOST_DIGITS = 400
_NO_VALUE = (SyntaxError, ValueError, LookupError, ArithmeticError, TypeError, RecursionError, MemoryError)


def _ceiling_quotient(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _round_to_even(number: float, digits: int | None = None) -> float:
    """Call Python's `round`, but refuse a huge number of digits."""
    # `round` computes 10 ** digits.
    if digits is not None and abs(digits) > _MOST_DIGITS:
        raise OverflowError("more digits than any float has")
    return round(number, digits)


def _power(base: float, exponent: float) -> object:
    if isinstance(base, int) and isinstance(exponent, int):
        # Tested before, because computing `9**9**9` would not end.
        if exponent >= 0 and base.bit_length() * exponent > _MOST_BITS:
            raise OverflowError("a larger integer than any size")
        return base**exponent
    return float(base) ** float(exponent)


def _shift_left(number: int, count: int) -> int:
    if number.bit_length() + count > _MOST_BITS:
        raise OverflowError("a larger integer than any size")
    return number << count


_BINARY: dict[type, Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.LShift: _shift_left,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_UNARY: dict[type, Callable[..., object]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_COMPARISONS: dict[type, Callable[..., object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
MATH = tuple(
    "acos acosh asin asinh atan atanh ceil cos cosh exp floor log log2 sin sinh sqrt tan tanh trunc".split()
)
"""The names of the functions of `math` that conditions may call."""
_FUNCTIONS: dict[str, Callable[..., object]] = {
    **{function.__name__: function for function in (max, min, int, float, abs, bool)},
    "round": _round_to_even,
    **{f"math.{name}": getattr(math, name) for name in MATH},
    # torch's names of these functions, which older files contain.
    "Max": max,
    "Min": min,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": _ceiling_quotient,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": float,
    "TruncToInt": math.trunc,
    "TruncToFloat": lambda number: float(math.trunc(number)),
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "RoundToInt": _round_to_even,
    "RoundDecimal": _round_to_even,
    "PowByNatural": _power,
    "FloatPow": lambda base, exponent: float(base) ** float(exponent),
    **{f"OpaqueUnaryFn_{name}": getattr(math, name) for name in MATH},
}


def evaluate(text: str, sizes: Mapping[str, int]) -> object:
    """Evaluate an expression of dimensions as Python does.

    Args:
        text: the expression.
        sizes: the size of each dimension by name. A name need not be an identifier: `batch size`.

    Returns:
        An int, float or bool. None if the expression has no value at these sizes (such as a division by
        zero), names other dimensions, or is not arithmetic.
    """
    if text in sizes:
        return sizes[text]
    try:
        # Only the names in the text: a file may declare thousands of dimensions.
        tree, names = parse(text, tuple(name for name in sizes if name in text))
        return _value(tree, {variable: sizes[name] for variable, name in names.items()})
    except _NO_VALUE:
        return None


def is_about_remainder(text: str, names: Iterable[str]) -> bool:
    """Whether a condition fixes the remainder of a division by a number: `height * width % 2 == 0`.

    Args:
        text: the condition.
        names: the names of the dimensions.
    """
    tree, _ = parse(text, tuple(name for name in names if name in text))
    if not isinstance(tree, ast.Compare) or not isinstance(tree.ops[0], ast.Eq):
        return False
    remainder = tree.left
    if not isinstance(remainder, ast.BinOp) or not isinstance(remainder.op, ast.Mod):
        return False
    return all(isinstance(item, ast.Constant) for item in (remainder.right, *tree.comparators))


@functools.lru_cache(maxsize=512)
def parse(text: str, names: tuple[str, ...]) -> tuple[ast.expr, dict[str, str]]:
    """Return the syntax tree of an expression, and the dimension name of each variable in it.

    Raises:
        SyntaxError: the text is not an expression.
    """
    variables = {name: name for name in names if name.isidentifier() and not keyword.iskeyword(name)}
    # Other names, such as `batch size`, become identifiers; longest first, as one may contain another.
    for position, name in enumerate(sorted(set(names) - variables.keys(), key=len, reverse=True)):
        variable = f"_dimension_{position}"
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", variable, text)
        variables[variable] = name
    return ast.parse(text.strip(), mode="eval").body, variables


def _value(node: ast.expr, sizes: Mapping[str, int]) -> object:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.BinOp):
        return _check_magnitude(_BINARY[type(node.op)](_value(node.left, sizes), _value(node.right, sizes)))
    if isinstance(node, ast.UnaryOp):
        return _UNARY[type(node.op)](_value(node.operand, sizes))
    if isinstance(node, ast.BoolOp):
        return _boolean_value(node, sizes)
    if isinstance(node, ast.Compare):
        return _comparison_value(node, sizes)
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, sizes) else node.orelse, sizes)
    if isinstance(node, ast.Call) and not node.keywords:
        return _check_magnitude(
            _FUNCTIONS[_function_name(node.func)](*(_value(item, sizes) for item in node.args))
        )
    if isinstance(node, ast.Attribute) and _function_name(node) == "math.inf":
        return math.inf
    raise ValueError("it is not an expression of sizes")


def _boolean_value(node: ast.BoolOp, sizes: Mapping[str, int]) -> object:
    """Evaluate `and` or `or`, which stop at the operand that decides."""
    value = None
    for operand in node.values:
        value = _value(operand, sizes)
        if bool(value) is isinstance(node.op, ast.Or):
            break
    return value


def _comparison_value(node: ast.Compare, sizes: Mapping[str, int]) -> bool:
    left_value = _value(node.left, sizes)
    for relation, operand in zip(node.ops, node.comparators, strict=True):
        right_value = _value(operand, sizes)
        if not _COMPARISONS[type(relation)](left_value, right_value):
            return False
        left_value = right_value
    return True


def _function_name(node: ast.expr) -> str:
    """Return the name of a called function, such as `max` or `math.ceil`; "" for another expression."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _check_magnitude(number: object) -> object:
    if isinstance(number, int) and number.bit_length() > _MOST_BITS:
        raise OverflowError("a larger integer than any size")
    return number
