"""Recurrent layers with the inputs, outputs and directions that a consumer knows."""

from typing import Any

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from ....registration.functions.results import as_list

_ACTIVATIONS = {"GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh"), "RNN": ("tanh",)}
_STATES = {"GRU": ("initial_h",), "LSTM": ("initial_h", "initial_c"), "RNN": ("initial_h",)}


def _sizes(g: GraphContext, X: Value, R: Value, batch_first: int) -> tuple[int, int, int]:
    """Steps, batch and hidden size, which must be known."""
    shape, weights = g.shape(X), g.shape(R)
    sizes = [] if shape is None or weights is None else [*shape, weights[2]]
    known_sizes = [size for size in sizes if isinstance(size, int)]
    if len(known_sizes) != 4 or batch_first:
        raise g.refuse("the sizes of the sequence must be known, and its steps first")
    return known_sizes[0], known_sizes[1], known_sizes[3]


def _plain(op_type: str, activations: list[str] | None, directions: int) -> dict[str, Any]:
    """The activations, unless they are the usual ones."""
    usual = [*_ACTIVATIONS[op_type]] * directions
    if activations is None or [name.lower() for name in activations] == usual:
        return {}
    return {"activations": activations}


def _register_initial_state(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.initial_state")
    def with_states(
        g: GraphContext,
        X: Value,
        W: Value,
        R: Value,
        B: Value | None = None,
        sequence_lens: Value | None = None,
        activations: list[str] | None = None,
        direction: str = "forward",
        layout: int = 0,
        outputs: int = 1,
        **arguments: Any,
    ) -> list[Value]:
        """States of zeros and a bias as inputs, and no activations that are the usual ones."""
        _, batch, hidden = _sizes(g, X, R, layout)
        directions = 2 if direction == "bidirectional" else 1
        named = _plain(op_type, activations, directions)
        has_states = all(arguments.get(name) is not None for name in _STATES[op_type])
        if has_states and B is not None and (activations is None or named):
            raise g.refuse("it has a state and a bias already")
        zeros = np.zeros((directions, batch, hidden), np.float32)
        states = {
            name: g.constant(zeros, g.dtype(X)) if arguments.get(name) is None else arguments[name]
            for name in _STATES[op_type]
        }
        gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op_type]
        bias = (
            B
            if B is not None
            else g.constant(np.zeros((directions, 2 * gates * hidden), np.float32), g.dtype(X))
        )
        named |= {**arguments, **states}
        return as_list(
            g.op(op_type, X, W, R, bias, sequence_lens, direction=direction, **named, outputs=outputs)
        )


def _register_split_directions(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.split_directions")
    def with_one_direction(
        g: GraphContext,
        X: Value,
        W: Value,
        R: Value,
        B: Value | None = None,
        sequence_lens: Value | None = None,
        activations: list[str] | None = None,
        direction: str = "forward",
        layout: int = 0,
        outputs: int = 1,
        **arguments: Any,
    ) -> list[Value]:
        """A layer forwards for each direction, of which one reads the steps in reverse."""
        steps, _, _ = _sizes(g, X, R, layout)
        if sequence_lens is not None or direction == "forward":
            raise g.refuse("only whole sequences in reverse are read forwards")
        order = np.arange(steps - 1, -1, -1, dtype=np.int64)
        per_direction: list[list[Value]] = []
        for number, is_reversed in enumerate([True] if direction == "reverse" else [False, True]):

            def part(value: Value | None, number: int = number) -> Value | None:
                if value is None or direction == "reverse":
                    return value
                array = g.constant_value(value)
                if array is not None:
                    return g.constant(array[number : number + 1])
                return g.op("Slice", value, starts=[number], ends=[number + 1], axes=[0])

            count = len(_ACTIVATIONS[op_type])
            chosen = activations and activations[number * count : (number + 1) * count]
            data = g.op("Gather", X, order, axis=0) if is_reversed else X
            parts = {name: part(arguments[name]) for name in (*_STATES[op_type], "P") if name in arguments}
            named = {**arguments, **parts, **_plain(op_type, chosen, 1)}
            results = as_list(g.op(op_type, data, part(W), part(R), part(B), None, **named, outputs=outputs))
            if is_reversed:
                results[0] = g.op("Gather", results[0], order, axis=0)
            per_direction.append(results)
        if len(per_direction) == 1:
            return per_direction[0]
        joined = zip(*per_direction, strict=True)
        return [g.op("Concat", *pair, axis=0 if number else 1) for number, pair in enumerate(joined)]


def _register_state_of_sequence(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.state_of_sequence")
    def with_derived_state(
        g: GraphContext,
        X: Value,
        W: Value,
        R: Value,
        sequence_lens: Value | None = None,
        direction: str = "forward",
        layout: int = 0,
        outputs: int = 1,
        **arguments: Any,
    ) -> list[Value]:
        """The last hidden state is the last step of the sequence, or the first of one in reverse."""
        if sequence_lens is not None or layout or outputs < 2:
            raise g.refuse("only a last state of whole sequences is a step of the sequence")
        count = outputs if op_type == "LSTM" and outputs == 3 else 1
        results = as_list(g.op(op_type, X, W, R, direction=direction, **arguments, outputs=count))
        sequence = results[0]

        def step(number: int) -> Value:
            end = np.iinfo(np.int64).max if number < 0 else number + 1
            return g.op("Squeeze", g.op("Slice", sequence, starts=[number], ends=[end], axes=[0]), axes=[0])

        if direction != "bidirectional":
            return [sequence, step(0 if direction == "reverse" else -1), *results[2:]]
        forwards = g.op("Slice", step(-1), starts=[0], ends=[1], axes=[0])
        backwards = g.op("Slice", step(0), starts=[1], ends=[2], axes=[0])
        state = g.op("Concat", forwards, backwards, axis=0)
        return [sequence, state, *results[2:]]


for _op_type in ("GRU", "LSTM", "RNN"):
    _register_initial_state(_op_type)
    _register_split_directions(_op_type)
    _register_state_of_sequence(_op_type)
