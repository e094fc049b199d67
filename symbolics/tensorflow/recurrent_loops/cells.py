"""Recognises the cells of LSTM, GRU and RNN in the expressions of one loop iteration."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from .expressions import INPUT, Added, Algebra, Expression, Linear, Mapped, Multiplied, Operand, Term, Weights

Bias = Weights | float
Activation = tuple[str, float, float]
"""An activation of ONNX's recurrent operators, with its alpha and beta."""


@dataclasses.dataclass(frozen=True)
class Gate:
    """The weights of one gate.

    Attributes:
        input: the matrix of the input, [features, units].
        hidden: that of the hidden state, [units, units].
        input_biases, hidden_biases: sums of vectors and numbers.
        peephole: the vector of the cell state.
    """

    input: Weights
    hidden: Weights
    input_biases: tuple[Bias, ...] = ()
    hidden_biases: tuple[Bias, ...] = ()
    peephole: Weights | None = None

    @property
    def units(self) -> int | None:
        """The number of units; None if the shapes do not fit together."""
        units = self.hidden.shape[1]
        vectors = [*self.input_biases, *self.hidden_biases, *([self.peephole] if self.peephole else [])]
        fits = self.hidden.shape[0] == units == self.input.shape[1]
        fits = fits and all(item.shape == (units,) for item in vectors if isinstance(item, Weights))
        return units if fits else None


@dataclasses.dataclass(frozen=True)
class Cell:
    """A recurrent operator of ONNX.

    Attributes:
        op_type: the operator.
        gates: its gates, in the operator's order.
        activations: those of the operator.
        states: the positions of the loop's variables that are the hidden state and the cell state.
        linear_before_reset: the attribute of GRU.
    """

    op_type: str
    gates: tuple[Gate, ...]
    activations: tuple[Activation, ...]
    states: tuple[int, ...]
    linear_before_reset: int | None = None

    @property
    def units(self) -> int:
        """The number of units."""
        return self.gates[0].hidden.shape[1]


def find_cell(algebra: Algebra, states: Sequence[int], results: Sequence[Term | None]) -> Cell | None:
    """The cell that computes the states, if it is one of ONNX's.

    Args:
        states: the positions of the states among the loop's variables.
        results: a term for each variable after an iteration.
    """
    after = [results[place] for place in states]
    if any(term is None or isinstance(term, (float, Weights)) for term in after):
        return None
    finder = _Finder(algebra)
    found = None
    if len(states) == 1:
        found = finder.rnn(states[0], after[0]) or finder.gru(states[0], after[0])  # type: ignore[arg-type]
    elif len(states) == 2:
        for (hidden, new_hidden), (cell, new_cell) in itertools.permutations(zip(states, after, strict=True)):
            found = found or finder.lstm(hidden, cell, new_hidden, new_cell)  # type: ignore[arg-type]
    if found is None:
        return None
    [units, *others] = {gate.units for gate in found.gates}
    features = {gate.input.shape[0] for gate in found.gates}
    return found if units is not None and not others and len(features) == 1 else None


class _Finder:
    """Matches expressions with the equations of ONNX's operators."""

    def __init__(self, algebra: Algebra):
        self._algebra = algebra

    def _activated(self, a: Expression) -> tuple[Activation, Linear] | None:
        """An activation and the linear combination that it is applied to."""
        linear = self._algebra.linear(a)
        if linear is not None:
            return ("Affine", 1.0, 0.0), linear
        if not isinstance(a, Mapped) or a.function == "Clip":
            return None
        linear = self._algebra.linear(a.argument)
        return None if linear is None else ((a.function, a.alpha, a.beta), linear)

    def _gate(self, a: Linear, hidden: int, peephole: Expression | None = None) -> Gate | None:
        """A gate of the input and the hidden state, and of the peephole's expression if it is given."""
        products = dict(a.products)
        if len(a.products) != 2 or len(products) != 2:
            return None
        read = {key.place: weights for key, weights in products.items() if isinstance(key, Operand)}
        if set(read) != {INPUT, hidden}:
            return None
        seen = None
        if a.peepholes:
            [(operand, seen), *others] = a.peepholes
            if others or operand is not peephole:
                return None
        return Gate(read[INPUT], read[hidden], a.biases, peephole=seen)

    def rnn(self, hidden: int, after: Expression) -> Cell | None:
        """`h' = f(x W + h R + b)`."""
        activated = self._activated(after)
        gate = None if activated is None else self._gate(activated[1], hidden)
        if activated is None or gate is None:
            return None
        return Cell("RNN", (gate,), (activated[0],), (hidden,))

    def lstm(self, hidden: int, cell: int, new_hidden: Expression, new_cell: Expression) -> Cell | None:
        """`c' = f * c + i * g` and `h' = o * a(c')`."""
        if not isinstance(new_hidden, Multiplied) or not isinstance(new_cell, Added):
            return None
        for output, shown in (new_hidden.factors, new_hidden.factors[::-1]):
            activation = _match_activation(shown, new_cell)
            o = self._activated(output) if activation is not None else None
            if activation is None or o is None:
                continue
            for kept, added in (new_cell.terms, new_cell.terms[::-1]):
                found = self._lstm(hidden, cell, kept, added, o, new_cell)
                if found is not None:
                    return dataclasses.replace(found, activations=(*found.activations, activation))
        return None

    def _lstm(
        self,
        hidden: int,
        cell: int,
        kept: Expression,
        added: Expression,
        o: tuple[Activation, Linear],
        new_cell: Expression,
    ) -> Cell | None:
        """The cell with the gates i, o, f and c, without its last activation."""
        forget = _other_factor(kept, cell)
        if forget is None or not isinstance(added, Multiplied):
            return None
        state = next(factor for factor in kept.factors if _is_state(factor, cell))  # type: ignore[union-attr]
        f = self._activated(forget)
        pair = [self._activated(factor) for factor in added.factors]
        if f is None or pair[0] is None or pair[1] is None or f[0] != o[0]:
            return None
        for i, c in (pair, pair[::-1]):
            assert i is not None
            assert c is not None
            gates = [
                self._gate(i[1], hidden, state),
                self._gate(o[1], hidden, new_cell),
                self._gate(f[1], hidden, state),
                self._gate(c[1], hidden),
            ]
            if i[0] == f[0] and all(gate is not None for gate in gates):
                return Cell("LSTM", tuple(gates), (f[0], c[0]), (hidden, cell))  # type: ignore[arg-type]
        return None

    def gru(self, hidden: int, after: Expression) -> Cell | None:
        """`h' = z * h + (1 - z) * n`."""
        if not isinstance(after, Added):
            return None
        for kept, added in (after.terms, after.terms[::-1]):
            update = _other_factor(kept, hidden)
            if update is None or not isinstance(added, Multiplied):
                continue
            rest = self._algebra.affine(update, -1.0, 1.0)
            new = next((a for a, b in (added.factors, added.factors[::-1]) if b is rest), None)
            z = self._activated(update)
            gate = None if z is None else self._gate(z[1], hidden)
            if z is None or gate is None or new is None:
                continue
            found = self._gru(hidden, z[0], gate, new)
            if found is not None:
                return found
        return None

    def _gru(self, hidden: int, activation: Activation, z: Gate, new: Expression) -> Cell | None:
        """The cell whose candidate is `new`, with the gates z, r and h."""
        before = self._activated(new)
        if before is not None:
            kind, linear = before
            inner = [(key, weights) for key, weights in linear.products if isinstance(key, Multiplied)]
            if len(inner) != 1 or linear.peepholes or len(linear.products) != 2:
                return None
            [(product, recurrent)] = inner
            reset = _other_factor(product, hidden)
            [own] = [weights for key, weights in linear.products if key is not product]
            read = next(key for key, _ in linear.products if key is not product)
            candidate = Gate(own, recurrent, linear.biases)
            after = 0
        elif isinstance(new, Mapped) and isinstance(new.argument, Added) and new.function != "Clip":
            kind = (new.function, new.alpha, new.beta)
            parts = self._reset_after(hidden, new.argument)
            if parts is None:
                return None
            read, candidate, reset = parts
            after = 1
        else:
            return None
        r = None if reset is None else self._activated(reset)
        gate = None if r is None else self._gate(r[1], hidden)
        if r is None or gate is None or r[0] != activation:
            return None
        if not isinstance(read, Operand) or read.place != INPUT:
            return None
        return Cell("GRU", (z, gate, candidate), (activation, kind), (hidden,), after)

    def _reset_after(self, hidden: int, a: Added) -> tuple[Expression, Gate, Expression] | None:
        """`x W + b + r * (h R + d)`: x, the weights, and r."""
        for plain, gated in (a.terms, a.terms[::-1]):
            linear = self._algebra.linear(plain)
            if linear is None or not isinstance(gated, Multiplied):
                continue
            for reset, recurrent in (gated.factors, gated.factors[::-1]):
                inner = self._algebra.linear(recurrent)
                if inner is None or len(linear.products) != 1 or len(inner.products) != 1:
                    continue
                if linear.peepholes or inner.peepholes or not _is_state(inner.products[0][0], hidden):
                    continue
                [(read, own)], [(_, weights)] = linear.products, inner.products
                return read, Gate(own, weights, linear.biases, inner.biases), reset
        return None


def _is_state(a: Expression, place: int) -> bool:
    return isinstance(a, Operand) and a.place == place


def _other_factor(a: Expression, place: int) -> Expression | None:
    """The factor of a state in a product."""
    if not isinstance(a, Multiplied):
        return None
    first, second = a.factors
    if _is_state(second, place):
        return first
    return second if _is_state(first, place) else None


def _match_activation(a: Expression, argument: Expression) -> Activation | None:
    """The activation that maps one expression to another."""
    if a is argument:
        return "Affine", 1.0, 0.0
    if isinstance(a, Mapped) and a.argument is argument and a.function != "Clip":
        return a.function, a.alpha, a.beta
    return None
