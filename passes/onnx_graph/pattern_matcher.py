"""Patterns of ONNX nodes: formulas, matched from a result back to the values that it is computed from.

    X, TOTAL = value("x"), 1 + op("Erf", value("x") / near(math.sqrt(2)))
    GELU = X * TOTAL * 0.5 | X * 0.5 * TOTAL | X * (TOTAL * 0.5)
    match = GELU.find(node)

1. `+` and `*` stand for Add and Mul with operands in either order; `-`, `/` and `**` for Sub, Div and Pow in
   the written order. A Python number stands for a constant of one element that equals it.
2. `a | b` matches what one of the two does, tried in this order.
3. A name stands for one value: where it occurs again, the value must be the same.
4. Nodes outside of a match read none of its values but the last, which `find` returns; so the matched nodes
   can be removed. Nodes of `shared` patterns may have further readers.
5. A pattern has a fixed number of nodes, so looking for it at each node of a graph takes linear time.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx_ir as ir

_PRECISION = {ir.DataType.FLOAT16: 1e-3, ir.DataType.BFLOAT16: 8e-3}
"""The relative error of a rounded number in an element type; for other types it is 1e-6."""
_COMMUTATIVE = frozenset(("Add", "Mul"))


@dataclasses.dataclass(frozen=True)
class PatternMatch:
    """Values and nodes for which a pattern holds.

    Attributes:
        values: the named values.
        nodes: the nodes that no other node may read, in the order in which they were matched.
    """

    values: Mapping[str, ir.Value]
    nodes: tuple[ir.Node, ...]

    def __getitem__(self, name: str) -> ir.Value:
        """A named value."""
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        """Whether the alternative that holds has this name."""
        return name in self.values

    def node(self, name: str) -> ir.Node:
        """The node that computes a named value."""
        producer = self.values[name].producer()
        assert producer is not None
        return producer

    def number(self, name: str) -> float:
        """The number in a named constant."""
        constant = number(self.values[name])
        assert constant is not None
        return constant

    def is_closed(self, last: ir.Node) -> bool:
        """Whether nodes outside of the match read only the last node, and graphs return only that one."""
        return all(
            not result.is_graph_output() and all(reader in self.nodes for reader, _ in result.uses())
            for node in self.nodes
            if node is not last
            for result in node.outputs
        )


_EMPTY = PatternMatch({}, ())


class Pattern(abc.ABC):
    """What a value may be."""

    @abc.abstractmethod
    def matches(self, matched: ir.Value | None, match: PatternMatch = _EMPTY) -> Iterator[PatternMatch]:
        """The ways in which a value extends a match."""

    def find(self, node: ir.Node, is_closed: bool = True) -> PatternMatch | None:
        """The first match that ends in a node.

        Args:
            is_closed: whether no other node may read intermediate results (rule 4).
        """
        matches = self.matches(node.outputs[0])
        return next((match for match in matches if not is_closed or match.is_closed(node)), None)

    def label(self, name: str) -> Pattern:
        """The same pattern, whose value gets a name."""
        return _Named(name, self)

    def __or__(self, other: Pattern) -> Pattern:
        return _OneOf((self, other))

    def __add__(self, other: Operand) -> Pattern:
        return op("Add", self, other)

    def __radd__(self, other: Operand) -> Pattern:
        return op("Add", other, self)

    def __mul__(self, other: Operand) -> Pattern:
        return op("Mul", self, other)

    def __sub__(self, other: Operand) -> Pattern:
        return op("Sub", self, other)

    def __truediv__(self, other: Operand) -> Pattern:
        return op("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Pattern:
        return op("Div", other, self)

    def __pow__(self, other: Operand) -> Pattern:
        return op("Pow", self, other)


Operand = Pattern | float
"""A pattern, or the number that an operand must be."""


def value(name: str) -> Pattern:
    """Any value, under a name."""
    return _Named(name, None)


def constant(name: str) -> Pattern:
    """A constant of one number, under a name."""
    return _Named(name, _Number(None, False))


def near(expected: float) -> Pattern:
    """A constant of one number that equals the expected one within the precision of its element type."""
    return _Number(expected, True)


def op(
    op_type: str,
    *operands: Operand,
    where: Callable[[ir.Node, PatternMatch], bool] | None = None,
    output: int = 0,
    shared: bool = False,
) -> Pattern:
    """The result of a node of ONNX's own domain.

    Args:
        operands: its first inputs; further ones are not looked at.
        where: a further condition for the node; it sees the names in the operands, and those matched before.
        output: the index of the result.
        shared: whether nodes outside of the match may read the results too.
    """
    patterns = [operand if isinstance(operand, Pattern) else _Number(operand, False) for operand in operands]
    return _Operation(op_type, patterns, where, output, shared)


def number(value: ir.Value | None) -> float | None:
    """The number in a constant of one element that callers cannot replace."""
    if value is None or value.const_value is None or value.const_value.size != 1 or value.is_graph_input():
        return None
    return float(value.const_value.numpy().item())


def is_near(constant: float, expected: float, dtype: ir.DataType | None) -> bool:
    """Whether a number equals the expected one within the precision of an element type."""
    # Exporters round numbers such as sqrt(2) to the element type of the formula.
    precision = 1e-6 if dtype is None else _PRECISION.get(dtype, 1e-6)
    return math.isclose(constant, expected, rel_tol=precision)


def constant_operand(node: ir.Node) -> tuple[ir.Value, float] | None:
    """The operands of a binary node that has one number: the other operand, and the number."""
    a, b = node.inputs
    for first, second in ((a, b), (b, a)):
        constant = number(second)
        if first is not None and constant is not None:
            return first, constant
    return None


@dataclasses.dataclass(frozen=True)
class _Named(Pattern):
    name: str
    pattern: Pattern | None

    def matches(self, matched: ir.Value | None, match: PatternMatch = _EMPTY) -> Iterator[PatternMatch]:
        if matched is None or match.values.get(self.name, matched) is not matched:
            return
        # The name comes first: a condition inside the pattern may ask for it.
        named = PatternMatch({**match.values, self.name: matched}, match.nodes)
        if self.pattern is None:
            yield named
        else:
            yield from self.pattern.matches(matched, named)


@dataclasses.dataclass(frozen=True)
class _Number(Pattern):
    expected: float | None
    is_rounded: bool

    def matches(self, matched: ir.Value | None, match: PatternMatch = _EMPTY) -> Iterator[PatternMatch]:
        constant = number(matched)
        if matched is None or constant is None:
            return
        if self.is_rounded and self.expected is not None:
            is_equal = is_near(constant, self.expected, matched.dtype)
        else:
            is_equal = self.expected is None or constant == self.expected
        if is_equal:
            yield match


@dataclasses.dataclass(frozen=True)
class _OneOf(Pattern):
    alternatives: Sequence[Pattern]

    def matches(self, matched: ir.Value | None, match: PatternMatch = _EMPTY) -> Iterator[PatternMatch]:
        for pattern in self.alternatives:
            yield from pattern.matches(matched, match)


@dataclasses.dataclass(frozen=True)
class _Operation(Pattern):
    op_type: str
    operands: Sequence[Pattern]
    where: Callable[[ir.Node, PatternMatch], bool] | None
    output: int
    shared: bool

    def matches(self, matched: ir.Value | None, match: PatternMatch = _EMPTY) -> Iterator[PatternMatch]:
        node = matched.producer() if matched is not None else None
        if node is None or node.op_type != self.op_type or node.domain:
            return
        if node.outputs[self.output : self.output + 1] != (matched,) or len(node.inputs) < len(self.operands):
            return
        # Nodes of shared patterns stay in the graph, and are free to have other readers.
        extended = match if self.shared else PatternMatch(match.values, (*match.nodes, node))
        # Which operand is which may show only in a later part of the pattern, so both orders are tried.
        orders = [node.inputs]
        if self.op_type in _COMMUTATIVE:
            orders.append(node.inputs[::-1])
        for inputs in orders:
            for complete in _match_all(self.operands, inputs, extended):
                if self.where is None or self.where(node, complete):
                    yield complete


def _match_all(
    patterns: Sequence[Pattern], values: Sequence[ir.Value | None], match: PatternMatch
) -> Iterator[PatternMatch]:
    """The matches in which each pattern holds for the value at its position."""
    if not patterns:
        yield match
        return
    for extended in patterns[0].matches(values[0], match):
        yield from _match_all(patterns[1:], values[1:], extended)
