"""Conditions on sizes as Python expressions, from sympy's.

The same expression is the text in a file's metadata and, compiled, the function that evaluates the
condition. Evaluating in sympy takes about a hundred times as long.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence

import sympy

from .....registration import CaptureError
from ....captured_graph.size_expressions import MATH
from ....torch_boundary import symbolic_sizes
from ....torch_boundary.symbolic_sizes import functions

_Convert = Callable[..., ast.expr]


class NotPython(CaptureError):
    """An expression of sizes has no form in Python."""


def python_expression(expression: sympy.Basic, names: Mapping[sympy.Basic, str]) -> ast.expr:
    """The syntax tree of an expression of sizes, with Python's meaning of each operation.

    Args:
        names: the name of each symbol.

    Raises:
        NotPython: Python has no operator or function of `math` for a part of it.
    """
    return _Converter(names).convert(expression)


def expression_text(expression: sympy.Basic, names: Mapping[sympy.Basic, str]) -> str:
    """An expression of sizes as Python text; raises as `python_expression` does."""
    return ast.unparse(python_expression(expression, names))


def compile_expression(expression: ast.expr) -> Callable[[Mapping[str, int]], int | float | bool]:
    """The function from sizes by name to the value of an expression."""
    code = compile(ast.fix_missing_locations(ast.Expression(expression)), "<sizes>", "eval")
    return lambda sizes: eval(code, _GLOBALS, sizes)


_GLOBALS: dict[str, object] = {
    "__builtins__": {},
    "math": math,
    **{function.__name__: function for function in (max, min, int, float, round, abs)},
}


def _call(name: str) -> _Convert:
    function = ast.parse(name, mode="eval").body
    return lambda *arguments: ast.Call(function, list(arguments), [])


def _binary(operator: ast.operator) -> _Convert:
    return lambda first, second: ast.BinOp(first, operator, second)


def _compare(relation: ast.cmpop) -> _Convert:
    return lambda first, second: ast.Compare(first, [relation], [second])


def _connect(operator: ast.boolop) -> _Convert:
    return lambda *operands: ast.BoolOp(operator, list(operands))


def _float_of_integer(number: ast.expr) -> ast.expr:
    return _call("float")(_call("int")(number))


def _modular(base: ast.expr, divisor: ast.expr, modulus: ast.expr) -> ast.expr:
    return ast.BinOp(ast.BinOp(base, ast.FloorDiv(), divisor), ast.Mod(), modulus)


def _ceiling_quotient(dividend: ast.expr, divisor: ast.expr) -> ast.expr:
    return _negative(ast.BinOp(_negative(dividend), ast.FloorDiv(), divisor))


def _float_sum(first: ast.expr, second: ast.expr) -> ast.expr:
    if isinstance(second, ast.UnaryOp) and isinstance(second.op, ast.USub):
        return ast.BinOp(first, ast.Sub(), second.operand)
    return ast.BinOp(first, ast.Add(), second)


def _negative(number: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.USub(), number)


_MIXED = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Pow)
"""Operators that convert an integer to a float if the other operand is one."""

_FORMS_OF_TORCH: dict[str, _Convert] = {
    "FloorDiv": _binary(ast.FloorDiv()),
    "CleanDiv": _binary(ast.FloorDiv()),
    "Mod": _binary(ast.Mod()),
    "PythonMod": _binary(ast.Mod()),
    "ModularIndexing": _modular,
    "CeilDiv": _ceiling_quotient,
    "IntTrueDiv": _binary(ast.Div()),
    "FloatTrueDiv": _binary(ast.Div()),
    "FloatPow": _binary(ast.Pow()),
    "PowByNatural": _binary(ast.Pow()),
    "LShift": _binary(ast.LShift()),
    "RShift": _binary(ast.RShift()),
    "BitwiseFn_bitwise_and": _binary(ast.BitAnd()),
    "BitwiseFn_bitwise_or": _binary(ast.BitOr()),
    "BitwiseFn_bitwise_xor": _binary(ast.BitXor()),
    "ToFloat": _call("float"),
    "TruncToInt": _call("int"),
    "TruncToFloat": _float_of_integer,
    "CeilToInt": _call("math.ceil"),
    "FloorToInt": _call("math.floor"),
    "RoundToInt": _call("round"),
    "RoundDecimal": _call("round"),
    "Max": _call("max"),
    "Min": _call("min"),
    "Identity": lambda only: only,
    "Where": lambda test, true, false: ast.IfExp(test, true, false),
    **{f"OpaqueUnaryFn_{name}": _call(f"math.{name}") for name in MATH},
}
"""By the name of torch's function; a release of torch may lack some."""
_FORMS: dict[type[sympy.Basic], _Convert] = {
    **{getattr(functions, name): form for name, form in _FORMS_OF_TORCH.items() if hasattr(functions, name)},
    symbolic_sizes.FloatSum: _float_sum,
    symbolic_sizes.FloatFloorDiv: _binary(ast.FloorDiv()),
    symbolic_sizes.FloatProduct: _binary(ast.Mult()),
    sympy.Mod: _binary(ast.Mod()),
    sympy.ceiling: _call("math.ceil"),
    sympy.floor: _call("math.floor"),
    sympy.Max: _call("max"),
    sympy.Min: _call("min"),
    sympy.Abs: _call("abs"),
    sympy.Eq: _compare(ast.Eq()),
    sympy.Ne: _compare(ast.NotEq()),
    sympy.Le: _compare(ast.LtE()),
    sympy.Lt: _compare(ast.Lt()),
    sympy.Ge: _compare(ast.GtE()),
    sympy.Gt: _compare(ast.Gt()),
    sympy.And: _connect(ast.And()),
    sympy.Or: _connect(ast.Or()),
    sympy.Not: lambda only: ast.UnaryOp(ast.Not(), only),
}
_REMAINDERS = (functions.Mod, functions.PythonMod)


class _Converter:
    def __init__(self, names: Mapping[sympy.Basic, str]):
        self._names = names

    def convert(self, expression: sympy.Basic) -> ast.expr:
        """The tree of an expression."""
        if expression in self._names:
            return ast.Name(self._names[expression], ast.Load())
        if expression in (sympy.true, sympy.false):
            return ast.Constant(bool(expression))
        if expression.is_Number or expression.is_infinite:
            return _number(expression)
        if expression.is_Add:
            return self._sum(expression.as_ordered_terms())
        if expression.is_Mul:
            return self._product(expression)
        if expression.is_Pow:
            return self._power(*expression.args)
        if isinstance(expression, sympy.Piecewise):
            return self._choice(expression.args)
        if isinstance(expression, sympy.core.relational.Relational):
            return self._relation(expression)
        form = _FORMS.get(expression.func)
        if form is None:
            raise NotPython(
                f"the model makes a decision on sizes that a file cannot state: {expression} has no form in "
                "Python; make the dimensions static"
            )
        return _plain_operands(form(*map(self.convert, expression.args)))

    def _relation(self, expression: sympy.Basic) -> ast.expr:
        relation = type(expression)
        first, second = expression.args
        if isinstance(first, _REMAINDERS) and first.args[1].is_positive and second == 0:
            # Such a remainder is never negative.
            relation = {sympy.Le: sympy.Eq, sympy.Gt: sympy.Ne}.get(relation, relation)
        return _plain_operands(_FORMS[relation](self.convert(first), self.convert(second)))

    def _sum(self, terms: Sequence[sympy.Expr]) -> ast.expr:
        total: ast.expr | None = None
        # The positive terms come first: `n - 1`, not `-1 + n`.
        for term in sorted(terms, key=lambda term: term.could_extract_minus_sign()):
            if total is None:
                total = self.convert(term)
            elif term.could_extract_minus_sign():
                total = _plain_operands(ast.BinOp(total, ast.Sub(), self.convert(-term)))
            else:
                total = _plain_operands(ast.BinOp(total, ast.Add(), self.convert(term)))
        assert total is not None
        return total

    def _product(self, expression: sympy.Basic) -> ast.expr:
        coefficient, remaining_factors = expression.as_coeff_Mul()
        if coefficient.is_Rational and coefficient < 0:
            return _negative(self.convert(-expression))
        if coefficient.is_Rational and coefficient.q != 1:
            dividend = self.convert(remaining_factors * coefficient.p)
            return ast.BinOp(dividend, ast.Div(), ast.Constant(int(coefficient.q)))
        product: ast.expr | None = None
        divisors = []
        for factor in expression.as_ordered_factors():
            if factor.is_Pow and factor.args[1].is_Integer and factor.args[1] < 0:
                divisors.append(self.convert(factor.args[0] ** -factor.args[1]))
            else:
                operand = self.convert(factor)
                product = (
                    operand if product is None else _plain_operands(ast.BinOp(product, ast.Mult(), operand))
                )
        for divisor in divisors:
            product = ast.BinOp(product or ast.Constant(1), ast.Div(), divisor)
        assert product is not None
        return product

    def _power(self, base: sympy.Expr, exponent: sympy.Expr) -> ast.expr:
        if exponent.is_Integer and exponent < 0:
            return ast.BinOp(ast.Constant(1), ast.Div(), self.convert(base ** (-exponent)))
        if exponent.is_Rational and not exponent.is_Integer:
            return ast.BinOp(self.convert(base), ast.Pow(), ast.Constant(float(exponent)))
        return ast.BinOp(self.convert(base), ast.Pow(), self.convert(exponent))

    def _choice(self, branches: Sequence[sympy.Basic]) -> ast.expr:
        """`a if condition else b`; the last branch needs no condition."""
        value, condition = branches[0].args
        if len(branches) == 1:
            if condition != sympy.true:
                raise NotPython(f"a choice without a last branch: {value}, {condition}")
            return self.convert(value)
        return ast.IfExp(self.convert(condition), self.convert(value), self._choice(branches[1:]))


def _number(number: sympy.Number) -> ast.expr:
    if number.is_infinite:
        infinity = ast.Attribute(ast.Name("math", ast.Load()), "inf", ast.Load())
        return _negative(infinity) if number.is_negative else infinity
    if number.is_Rational and not number.is_Integer:
        return ast.BinOp(_number(sympy.Integer(number.p)), ast.Div(), ast.Constant(int(number.q)))
    value = int(number) if number.is_Integer else float(number)
    # Python has no negative literals: -2 ** 2 is -4.
    return _negative(ast.Constant(-value)) if value < 0 else ast.Constant(value)


def _plain_operands(node: ast.expr) -> ast.expr:
    """Simplify `float(n) * 0.5` to `n * 0.5`: Python converts the integer; comparisons are exact."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _MIXED):
        if _is_float(node.right):
            node.left = _without_float(node.left)
        if _is_float(node.left):
            node.right = _without_float(node.right)
    elif isinstance(node, ast.Compare):
        node.left = _without_float(node.left)
        node.comparators = [_without_float(operand) for operand in node.comparators]
    return node


def _is_float(node: ast.expr) -> bool:
    """Whether a number is certainly a float."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, float)
    if isinstance(node, ast.BinOp):
        is_division = isinstance(node.op, ast.Div)
        return is_division or (
            isinstance(node.op, _MIXED) and (_is_float(node.left) or _is_float(node.right))
        )
    if isinstance(node, ast.UnaryOp):
        return _is_float(node.operand)
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "float"


def _without_float(node: ast.expr) -> ast.expr:
    """The argument of a call of `float`; another node itself."""
    is_call = isinstance(node, ast.Call) and ast.unparse(node.func) == "float"
    return node.args[0] if is_call and isinstance(node, ast.Call) else node
