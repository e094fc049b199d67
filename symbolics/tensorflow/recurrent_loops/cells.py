"""Recognises the cells of LSTM, GRU and RNN in the expressions of one loop iteration."""

import dataclasses
import itertools
from collections.abc import Sequence

from .expressions import (
    INPUT,
    Added,
    Algebra,
    Expression,
    Linear,
    LoopOperand,
    Mapped,
    Multiplied,
    Term,
    Weights,
)

Bias = Weights | float
Activation = tuple[str, float, float]
"""An activation of ONNX's recurrent operators, with its alpha and beta."""


@dataclasses.dataclass(frozen=True)
class Gate:
    """The weights of one gate.

    Attributes:
        input: the matrix of the input, [features, units].
        hidden: the matrix of the hidden state, [units, units].
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
class RecurrentCell:
    """A recurrent operator of ONNX.

    Attributes:
        op_type: the operator.
        gates: its gates, in the operator's order.
        activations: its activations, in the operator's order.
        states: the indices of the loop variables that are the hidden state and the cell state.
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


def find_cell(
    algebra: Algebra, states: Sequence[int], results: Sequence[Term | None]
) -> RecurrentCell | None:
    """The ONNX cell that computes the new states; None if there is none.

    `states` are indices of loop variables, and `results` has a term for each variable after an iteration.
    """
    new_states = [results[position] for position in states]
    if any(term is None or isinstance(term, (float, Weights)) for term in new_states):
        return None
    finder = _Finder(algebra)
    matched = None
    if len(states) == 1:
        matched = finder.rnn(states[0], new_states[0]) or finder.gru(states[0], new_states[0])  # type: ignore[arg-type]
    elif len(states) == 2:
        for (hidden, new_hidden), (cell, new_cell) in itertools.permutations(
            zip(states, new_states, strict=True)
        ):
            matched = matched or finder.lstm(hidden, cell, new_hidden, new_cell)  # type: ignore[arg-type]
    if matched is None:
        return None
    [units, *further_units] = {gate.units for gate in matched.gates}
    features = {gate.input.shape[0] for gate in matched.gates}
    return matched if units is not None and not further_units and len(features) == 1 else None


class _Finder:
    """Matches expressions with the equations of ONNX's operators."""

    def __init__(self, algebra: Algebra):
        self._algebra = algebra

    def _match_activated_linear(self, a: Expression) -> tuple[Activation, Linear] | None:
        """An activation and its argument, which must be a linear combination."""
        linear = self._algebra.linear(a)
        if linear is not None:
            return ("Affine", 1.0, 0.0), linear
        if not isinstance(a, Mapped) or a.function == "Clip":
            return None
        linear = self._algebra.linear(a.argument)
        return None if linear is None else ((a.function, a.alpha, a.beta), linear)

    def _gate(self, a: Linear, hidden: int, peephole: Expression | None = None) -> Gate | None:
        """A gate that reads the input, the hidden state and, if there is one, the peephole's expression."""
        products = dict(a.products)
        if len(a.products) != 2 or len(products) != 2:
            return None
        weights_by_position = {
            key.position: weights for key, weights in products.items() if isinstance(key, LoopOperand)
        }
        if set(weights_by_position) != {INPUT, hidden}:
            return None
        peephole_weights = None
        if a.peepholes:
            [(operand, peephole_weights), *further_peepholes] = a.peepholes
            if further_peepholes or operand is not peephole:
                return None
        return Gate(
            weights_by_position[INPUT], weights_by_position[hidden], a.biases, peephole=peephole_weights
        )

    def rnn(self, hidden: int, new_hidden: Expression) -> RecurrentCell | None:
        """`h' = f(x W + h R + b)`."""
        activated = self._match_activated_linear(new_hidden)
        gate = None if activated is None else self._gate(activated[1], hidden)
        if activated is None or gate is None:
            return None
        return RecurrentCell("RNN", (gate,), (activated[0],), (hidden,))

    def lstm(
        self, hidden: int, cell: int, new_hidden: Expression, new_cell: Expression
    ) -> RecurrentCell | None:
        """`c' = f * c + i * g` and `h' = o * a(c')`."""
        if not isinstance(new_hidden, Multiplied) or not isinstance(new_cell, Added):
            return None
        # The operands of products and sums may stand in either order.
        for output, activated_cell in (new_hidden.factors, new_hidden.factors[::-1]):
            activation = _match_activation(activated_cell, new_cell)
            o = self._match_activated_linear(output) if activation is not None else None
            if activation is None or o is None:
                continue
            for carried_term, candidate_term in (new_cell.terms, new_cell.terms[::-1]):
                matched = self._lstm(hidden, cell, carried_term, candidate_term, o, new_cell)
                if matched is not None:
                    return dataclasses.replace(matched, activations=(*matched.activations, activation))
        return None

    def _lstm(
        self,
        hidden: int,
        cell: int,
        carried_term: Expression,
        candidate_term: Expression,
        o: tuple[Activation, Linear],
        new_cell: Expression,
    ) -> RecurrentCell | None:
        """The cell with the gates i, o, f and c, without its last activation."""
        forget = _other_factor(carried_term, cell)
        if forget is None or not isinstance(candidate_term, Multiplied):
            return None
        state = next(factor for factor in carried_term.factors if _is_state(factor, cell))  # type: ignore[union-attr]
        f = self._match_activated_linear(forget)
        pair = [self._match_activated_linear(factor) for factor in candidate_term.factors]
        # ONNX's LSTM has one activation for the gates i, o and f.
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
                return RecurrentCell("LSTM", tuple(gates), (f[0], c[0]), (hidden, cell))  # type: ignore[arg-type]
        return None

    def gru(self, hidden: int, new_hidden: Expression) -> RecurrentCell | None:
        """`h' = z * h + (1 - z) * n`."""
        if not isinstance(new_hidden, Added):
            return None
        for carried_term, candidate_term in (new_hidden.terms, new_hidden.terms[::-1]):
            update = _other_factor(carried_term, hidden)
            if update is None or not isinstance(candidate_term, Multiplied):
                continue
            complement = self._algebra.affine(update, -1.0, 1.0)
            new = next(
                # Equal expressions are one object, so `is` recognises 1 - z.
                (a for a, b in (candidate_term.factors, candidate_term.factors[::-1]) if b is complement),
                None,
            )
            z = self._match_activated_linear(update)
            gate = None if z is None else self._gate(z[1], hidden)
            if z is None or gate is None or new is None:
                continue
            matched = self._gru(hidden, z[0], gate, new)
            if matched is not None:
                return matched
        return None

    def _gru(self, hidden: int, activation: Activation, z: Gate, new: Expression) -> RecurrentCell | None:
        """The cell whose candidate is `new`, with the gates z, r and h."""
        activated = self._match_activated_linear(new)
        if activated is not None:
            candidate_activation, linear = activated
            reset_products = [
                (key, weights) for key, weights in linear.products if isinstance(key, Multiplied)
            ]
            if len(reset_products) != 1 or linear.peepholes or len(linear.products) != 2:
                return None
            [(product, recurrent)] = reset_products
            reset = _other_factor(product, hidden)
            [input_weights] = [weights for key, weights in linear.products if key is not product]
            gru_input = next(key for key, _ in linear.products if key is not product)
            candidate = Gate(input_weights, recurrent, linear.biases)
            linear_before_reset = 0
        elif isinstance(new, Mapped) and isinstance(new.argument, Added) and new.function != "Clip":
            candidate_activation = (new.function, new.alpha, new.beta)
            parts = self._reset_after(hidden, new.argument)
            if parts is None:
                return None
            gru_input, candidate, reset = parts
            # The reset gate multiplies the product with the hidden state, not the state itself.
            linear_before_reset = 1
        else:
            return None
        r = None if reset is None else self._match_activated_linear(reset)
        gate = None if r is None else self._gate(r[1], hidden)
        if r is None or gate is None or r[0] != activation:
            return None
        if not isinstance(gru_input, LoopOperand) or gru_input.position != INPUT:
            return None
        return RecurrentCell(
            "GRU", (z, gate, candidate), (activation, candidate_activation), (hidden,), linear_before_reset
        )

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
                [(gru_input, input_weights)], [(_, weights)] = linear.products, inner.products
                return gru_input, Gate(input_weights, weights, linear.biases, inner.biases), reset
        return None


def _is_state(a: Expression, position: int) -> bool:
    return isinstance(a, LoopOperand) and a.position == position


def _other_factor(a: Expression, position: int) -> Expression | None:
    """The other factor of a product with a state; None if the expression is something else."""
    if not isinstance(a, Multiplied):
        return None
    first, second = a.factors
    if _is_state(second, position):
        return first
    return second if _is_state(first, position) else None


def _match_activation(a: Expression, argument: Expression) -> Activation | None:
    """The activation that maps one expression to another."""
    if a is argument:
        return "Affine", 1.0, 0.0
    if isinstance(a, Mapped) and a.argument is argument and a.function != "Clip":
        return a.function, a.alpha, a.beta
    return None
