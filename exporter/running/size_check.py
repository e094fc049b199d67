"""`SizeCheck`: the check of a call's sizes, with what does not depend on the call computed once."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..source import dimensions

_ARITHMETIC: dict[type, Callable[[int, int], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
Evaluation = Callable[[Mapping[str, int]], Any]
"""Gives the value of an expression for sizes by name."""


class SizeCheck:
    """Refuses the sizes for which a model is not valid, as `dimensions.check` does.

    `dimensions.check` reads the metadata and parses its expressions in each call, which would take as long
    as a step of a small decoder. So expressions of integer arithmetic are parsed once; sizes that meet all of
    them are accepted. `dimensions.check` decides about all other sizes and all other expressions.

    Attributes:
        dimensions: the dimensions by name, in order.

    Args:
        inputs: the declared inputs of the model.
        metadata: the metadata of the model.

    Raises:
        DimensionError: the metadata does not have the documented form.
    """

    def __init__(self, inputs: Sequence[dimensions.Input], metadata: Mapping[str, str]):
        self._inputs = list(inputs)
        self._metadata = dict(metadata)
        self.dimensions = dimensions.dimensions(self._inputs, metadata)
        names = frozenset(self.dimensions)
        axes = [
            (position, axis, dim)
            for position, (_, shape) in enumerate(self._inputs)
            for axis, dim in enumerate(shape)
            if isinstance(dim, str)
        ]
        self._named = [entry for entry in axes if entry[2] in names]
        self._computed: list[tuple[int, int, Evaluation]] = []
        self._conditions: list[Evaluation] = []
        self._is_arithmetic = True
        try:
            for position, axis, dim in axes:
                if dim not in names:
                    self._computed.append((position, axis, parse_arithmetic(dim, names)))
            for restriction in dimensions.read(metadata):
                self._conditions.append(parse_arithmetic(restriction.condition, names))
        except ValueError:
            self._is_arithmetic = False

    def __call__(self, shapes: Sequence[Sequence[int]]) -> None:
        """Check the shapes of a call, one for each input.

        Raises:
            DimensionError: the model is not valid for a size.
        """
        if not (self._is_arithmetic and self._accepts(shapes)):
            dimensions.check(self._inputs, self._metadata, shapes)

    def _accepts(self, shapes: Sequence[Sequence[int]]) -> bool:
        sizes: dict[str, int] = {}
        try:
            for position, axis, name in self._named:
                size = shapes[position][axis]
                if sizes.setdefault(name, size) != size:
                    return False
            if any(shapes[position][axis] != value(sizes) for position, axis, value in self._computed):
                return False
            return all(condition(sizes) is True for condition in self._conditions)
        except (IndexError, ZeroDivisionError):
            return False


def parse_arithmetic(text: str, names: frozenset[str]) -> Evaluation:
    """The function of an expression of integers and names with `+ - * // %`, comparisons and `and`.

    Args:
        names: the names that have a size.

    Raises:
        ValueError: it is another expression.
    """
    try:
        return _evaluation(ast.parse(text, mode="eval").body, names)
    except (SyntaxError, LookupError, RecursionError, MemoryError) as error:
        raise ValueError(f"'{text}' is not an expression of integers") from error


def _evaluation(node: ast.AST, names: frozenset[str]) -> Evaluation:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        number = node.value
        return lambda sizes: number
    if isinstance(node, ast.Name) and node.id in names:
        return operator.itemgetter(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _evaluation(node.operand, names)
        return lambda sizes: -operand(sizes)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        parts = [_evaluation(part, names) for part in node.values]
        return lambda sizes: all(part(sizes) is True for part in parts)
    if isinstance(node, ast.BinOp):
        first, second, operation = node.left, node.right, _ARITHMETIC[type(node.op)]
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        first, second, operation = node.left, node.comparators[0], _ARITHMETIC[type(node.ops[0])]
    else:
        raise ValueError("it is not an expression of integers")
    left, right = _evaluation(first, names), _evaluation(second, names)
    return lambda sizes: operation(left(sizes), right(sizes))
