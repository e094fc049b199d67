"""Arithmetic on the dimensions of shapes: numbers, and names or expressions of names as polynomials.

A dimension keeps its text until a new one is computed from it. Texts are read and written as torch and
torch.onnx write them: `64*batch`, `2*height*width + 1`, `(length//2)`, `Min(512, length)`. Sizes are at
least 0.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Sequence

import onnx_ir as ir

from .polynomials import Bounds, Monomial, Polynomial, decide

Dim = int | ir.SymbolicDim
Dims = tuple[Dim, ...]
SizePolynomial = Polynomial[str]
"""The atoms are names, and the texts of expressions without a polynomial form."""

UNKNOWN = ir.SymbolicDim(None)
MAXIMUM_DIMENSION_NAME = 1000
"""Bound on the length of a dimension's name in a file, which is written for every value that has it."""
# Texts come from files, and a short one may stand for millions of terms: (a + b + c + d)**8.
_LONGEST_TEXT = 256
_MOST_TERMS = 16
_MOST_OPERANDS = 8
_LARGEST_DEGREE = 8
_RELATIONS = {"Min": "le", "Max": "ge"}
"""The relation of the first operand to the second that makes the first the result."""
# torch writes spaces around a binary sign. Without them the sign is a part of a name: `batch-size`.
_SIGN_IN_NAME = re.compile(r"[\w)][-+][\w(]")
_MULTIPLE = re.compile(r"(\d+)\*(.+)")
_NO_EXPRESSION = (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError)


def drop_long_names(value: ir.Value) -> None:
    """Make sizes unknown whose expressions are too long for a name of a dimension in a file."""
    dims = value.shape.dims if value.shape is not None else ()
    is_long = [not isinstance(dim, int) and len(dim.value or "") > MAXIMUM_DIMENSION_NAME for dim in dims]
    if any(is_long):
        value.shape = ir.Shape([UNKNOWN if long else dim for dim, long in zip(dims, is_long, strict=True)])


def same_size(a: Dim, b: Dim) -> bool:
    """Whether two sizes are known to be equal: the same number, or expressions with the same value."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    if a.value is None or b.value is None:
        return False
    if a.value == b.value:
        return True
    # Different names need no polynomials; most dimensions are names.
    return not (a.value.isidentifier() and b.value.isidentifier()) and _parse(a.value) == _parse(b.value)


def same_shape(a: ir.Shape | None, b: ir.Shape | None) -> bool:
    """Whether two shapes have the same rank, and sizes that are known to be equal."""
    return a is not None and b is not None and len(a) == len(b) and all(map(same_size, a, b))


def product(a: Dim, b: Dim) -> Dim:
    """The product of two sizes; also of a negative number and another number."""
    return a * b if isinstance(a, int) and isinstance(b, int) else _combine(_multiply, a, b)


def total(sizes: Sequence[Dim]) -> Dim:
    """The sum of sizes."""
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(numbers) == len(sizes):
        return sum(numbers)
    polynomial = SizePolynomial({})
    for size in sizes:
        # Many different names could make a text that is too long to be read again.
        if not _is_size(size) or len(polynomial.terms) > _MOST_TERMS:
            return UNKNOWN
        polynomial = polynomial + polynomial_of(size)
    return _dimension(polynomial, *sizes)


def quotient(a: Dim, b: Dim) -> Dim:
    """The quotient of two sizes; unknown if it may not be a whole number."""
    if UNKNOWN in (a, b) or (isinstance(b, int) and b < 1):
        return UNKNOWN
    exact = polynomial_of(a).divide(polynomial_of(b))
    return UNKNOWN if exact is None else _dimension(exact, a)


def least(a: Dim, b: Dim) -> Dim:
    """The lesser of two sizes."""
    return _combine(functools.partial(_extreme, "Min"), a, b)


def _combine(operation: Callable[[SizePolynomial, SizePolynomial], SizePolynomial], a: Dim, b: Dim) -> Dim:
    if not (_is_size(a) and _is_size(b)):
        return UNKNOWN
    try:
        return _dimension(operation(polynomial_of(a), polynomial_of(b)), a, b)
    except OverflowError:
        return UNKNOWN


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """The broadcast of two sizes: the one that is not 1; unknown if undecided."""
    # Most dimensions are the same object, and comparing polynomials takes much longer.
    if a is b:
        return a
    if type(a) is int:
        return b if a == 1 else a
    if type(b) is int:
        return a if b == 1 else b
    if same_size(a, b):
        return a
    return b if _is_limited(a, b) else a if _is_limited(b, a) else UNKNOWN


def broadcast(shapes: Sequence[Dims]) -> Dims:
    """The broadcast of shapes of any ranks."""
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    # Shapes are aligned at their last dimensions; the longest gives the first ones.
    first, *shorter_shapes = sorted(shapes, key=len, reverse=True)
    result: list[Dim] = list(first)
    for shape in shorter_shapes:
        for position, size in enumerate(shape, start=len(result) - len(shape)):
            if size is not result[position]:
                result[position] = broadcast_dim(result[position], size)
    return tuple(result)


def _is_limited(narrow: Dim, wide: Dim) -> bool:
    """Whether one size is Min(n, s), and the other is s.

    The first is broadcast with s only where they are equal or one of them is 1. n is over 1, so that the
    result is s.
    """
    if isinstance(narrow, int) or "Min(" not in (narrow.value or "") or wide == UNKNOWN:
        return False
    alternatives = _alternatives("Min", polynomial_of(narrow))
    limits = [operand.number for operand in alternatives if operand != polynomial_of(wide)]
    return len(limits) < len(alternatives) and all(limit is not None and limit > 1 for limit in limits)


def _is_size(size: Dim) -> bool:
    return size >= 0 if isinstance(size, int) else size.value is not None


def polynomial_of(size: Dim) -> SizePolynomial:
    """The polynomial of a size that is known."""
    return SizePolynomial.of_number(size) if isinstance(size, int) else _parse(size.value or "")


def text_of(polynomial: SizePolynomial) -> str:
    """A polynomial in Python's notation, with its terms in sympy's order."""
    # Higher powers of the first names come first, and the constant comes last.
    terms = sorted(polynomial.terms.items(), key=lambda term: (*term[0], "\U0010ffff"))
    signed = [(" - " if factor < 0 else " + ", _term_text(term, abs(factor))) for term, factor in terms]
    text = "".join(sign + term for sign, term in signed) or " + 0"
    return text[3:] if text.startswith(" + ") else f"-{text[3:]}"


def _term_text(term: Monomial[str], factor: int) -> str:
    exponents = {atom: term.count(atom) for atom in term}
    powers = [atom if exponent == 1 else f"{atom}**{exponent}" for atom, exponent in exponents.items()]
    return "*".join(powers if powers and factor == 1 else [str(factor), *powers])


def _dimension(polynomial: SizePolynomial, *operands: Dim) -> Dim:
    """The dimension of a polynomial: an operand if it is equal; unknown if its text would be long."""
    if polynomial.number is not None:
        return polynomial.number
    for operand in operands:
        # The text that the user gave is better than an equal one of ours.
        if polynomial_of(operand) == polynomial:
            return operand
    if len(polynomial.terms) > _MOST_TERMS or polynomial.degree > _LARGEST_DEGREE:
        return UNKNOWN
    text = text_of(polynomial)
    # The product of the names `x y` and `z` could not be read again, and a long text neither.
    return ir.SymbolicDim(text) if _parse(text) == polynomial else UNKNOWN


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> SizePolynomial:
    if text.isidentifier() or len(text) > _LONGEST_TEXT:
        return SizePolynomial.of_atom(text)
    try:
        if _SIGN_IN_NAME.search(text):
            raise ValueError("a name with a sign")
        polynomial = _read_expression(ast.parse(text.strip(), mode="eval").body)
    except _NO_EXPRESSION:
        # A multiple of a name that is no expression: `64*batch size`.
        multiple = _MULTIPLE.fullmatch(text)
        if multiple is None:
            return SizePolynomial.of_atom(text)
        return SizePolynomial.of_number(int(multiple[1])) * _parse(multiple[2])
    # A file may name a dimension `1`, or `-1`, although its size is another.
    return SizePolynomial.of_atom(text) if polynomial.number is not None else polynomial


def _read_expression(node: ast.expr) -> SizePolynomial:
    """The polynomial of an expression.

    Raises:
        OverflowError: it has too many terms.
    """
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return SizePolynomial.of_number(node.value)
    if isinstance(node, ast.Name):
        return SizePolynomial.of_atom(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_read_expression(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)):
        first, second = _read_expression(node.left), _read_expression(node.right)
        if isinstance(node.op, ast.Add):
            return first + second
        if isinstance(node.op, ast.Sub):
            return first - second
        return _multiply(first, second) if isinstance(node.op, ast.Mult) else _divide_down(first, second)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        exponent = _read_expression(node.right).number
        if exponent is not None and 0 < exponent <= _LARGEST_DEGREE:
            return functools.reduce(_multiply, [_read_expression(node.left)] * exponent)
    text = ast.unparse(node)
    if isinstance(node, ast.Call):
        name = node.func.id.capitalize() if isinstance(node.func, ast.Name) else ""
        if name in _RELATIONS and node.args and not node.keywords:
            return functools.reduce(functools.partial(_extreme, name), map(_read_expression, node.args))
        return SizePolynomial.of_atom(text)
    return SizePolynomial.of_atom(f"({text})")


def _multiply(a: SizePolynomial, b: SizePolynomial) -> SizePolynomial:
    if len(a.terms) * len(b.terms) > _MOST_TERMS**2 or a.degree + b.degree > _LARGEST_DEGREE:
        raise OverflowError("a product with too many terms")
    return a * b


def _divide_down(a: SizePolynomial, b: SizePolynomial) -> SizePolynomial:
    """The quotient, rounded down."""
    # torch reads a quotient of sizes only where the divisor is not 0, so a common factor cancels.
    exact = a.divide(b)
    if exact is None and b.number is not None and b.number > 0:
        exact = a.divide_down(b.number)
    if exact is not None:
        return exact
    dividend, divisor = (text_of(p) if _is_factor(p) else f"({text_of(p)})" for p in (a, b))
    return SizePolynomial.of_atom(f"({dividend}//{divisor})")


def _is_factor(polynomial: SizePolynomial) -> bool:
    """Whether the text of a polynomial needs no parentheses: one atom, or a number that is not negative."""
    [(term, factor), *others] = polynomial.terms.items() or [((), 0)]
    return not others and ((len(term) == 1 and factor == 1) or (not term and factor >= 0))


def _extreme(name: str, a: SizePolynomial, b: SizePolynomial) -> SizePolynomial:
    """The least ("Min") or the greatest ("Max") of two sizes, each of which may itself be one of several."""
    # One operand may exclude another: the lesser of n, n + 1 and 512 is Min(512, n).
    operands: list[SizePolynomial] = []
    for size in (*_alternatives(name, a), *_alternatives(name, b)):
        if not any(_decides(name, operand, size) for operand in operands):
            operands = [operand for operand in operands if not _decides(name, size, operand)]
            operands.append(size)
    if len(operands) == 1:
        return operands[0]
    if len(operands) > _MOST_OPERANDS:
        raise OverflowError("more sizes than can be compared with each other")
    # Numbers come first, as in sympy's texts.
    texts = sorted(map(text_of, operands), key=lambda text: (not text.isdecimal(), text))
    return SizePolynomial.of_atom(f"{name}({', '.join(texts)})")


def _decides(name: str, size: SizePolynomial, other_size: SizePolynomial) -> bool:
    """Whether a size is always the result, whatever the other one is."""
    return decide(_RELATIONS[name], size, other_size, lambda difference: difference.bounds(_range)) is True


def _alternatives(name: str, size: SizePolynomial) -> tuple[SizePolynomial, ...]:
    """The sizes of which a size is the least ("Min") or the greatest ("Max"); only itself otherwise."""
    [(term, factor), *other_terms] = size.terms.items() or [((), 0)]
    if other_terms or len(term) != 1 or factor != 1 or not term[0].startswith(name):
        return (size,)
    return _operands(term[0]) or (size,)


@functools.lru_cache(maxsize=1024)
def _operands(atom: str) -> tuple[SizePolynomial, ...]:
    """The operands of an atom that is the lesser or the greater of some sizes; none of another."""
    try:
        call = ast.parse(atom, mode="eval").body if atom[:4] in ("Min(", "Max(") else None
        return tuple(map(_read_expression, call.args)) if isinstance(call, ast.Call) else ()
    except _NO_EXPRESSION:
        return ()


def _range(atom: str) -> Bounds:
    """The smallest and the largest value of an atom."""
    if atom.isidentifier():
        return 0, None
    ranges = [operand.bounds(_range) for operand in _operands(atom)]
    if not ranges:
        return None, None
    ends = [[bound for bound in bounds if bound is not None] for bounds in zip(*ranges, strict=True)]
    # The lesser value is below each of the upper ends, but only above the lowest of the lower ends.
    choose, weak = (min, 0) if atom.startswith("Min") else (max, 1)
    low, high = (
        None if not bounds or (side == weak and len(bounds) < len(ranges)) else choose(bounds)
        for side, bounds in enumerate(ends)
    )
    return low, high
