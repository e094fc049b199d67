"""Recurrent layers with the inputs, outputs and directions that a consumer knows."""

from typing import Any

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from ....registration.functions.results import as_list
from .arithmetic import register_form_of_operands

_ACTIVATIONS = {"GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh"), "RNN": ("tanh",)}
_STATES = {"GRU": ("initial_h",), "LSTM": ("initial_h", "initial_c"), "RNN": ("initial_h",)}

_MAXIMUM_LAYERS = 8
"""The copies of a layer for a batch: each has the weights of its own in some consumers."""


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


def _reverse_steps(g: GraphContext, sequence: Value, steps: int | Value) -> Value:
    """The steps in reverse: of a known number by their positions, which more consumers read."""
    if isinstance(steps, int):
        return g.op("Gather", sequence, np.arange(steps - 1, -1, -1, dtype=np.int64), axis=0)
    return g.op("Slice", sequence, starts=[-1], ends=[np.iinfo(np.int64).min], axes=[0], steps=[-1])


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
        if sequence_lens is not None or direction == "forward" or layout:
            raise g.refuse("only whole sequences in reverse, their steps first, are read forwards")
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
            data = _reverse_steps(g, X, g.size(X, 0)) if is_reversed else X
            parts = {name: part(arguments[name]) for name in (*_STATES[op_type], "P") if name in arguments}
            named = {**arguments, **parts, **_plain(op_type, chosen, 1)}
            results = as_list(g.op(op_type, data, part(W), part(R), part(B), None, **named, outputs=outputs))
            if is_reversed:
                results[0] = _reverse_steps(g, results[0], g.size(X, 0))
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

        end = np.iinfo(np.int64).max
        if direction != "bidirectional":
            # Consumers know the layer by the Squeeze behind it.
            steps = g.op("Squeeze", sequence, axes=[1])
            first, last = (0, 1) if direction == "reverse" else (-1, end)
            return [sequence, g.op("Slice", steps, starts=[first], ends=[last], axes=[0]), *results[2:]]
        count_of_steps, batch, hidden = _sizes(g, X, R, layout)
        # They know one of two directions by the sequence with the results of both side by side.
        both = g.op("Transpose", sequence, perm=[0, 2, 1, 3])
        both = g.op("Reshape", both, [count_of_steps, batch, 2 * hidden])
        forwards = g.op("Slice", both, starts=[-1, 0], ends=[end, hidden], axes=[0, 2])
        backwards = g.op("Slice", both, starts=[0, hidden], ends=[1, end], axes=[0, 2])
        return [sequence, g.op("Concat", forwards, backwards, axis=0), *results[2:]]


def _register_single_batches(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.single_batches")
    def of_each_sequence(
        g: GraphContext,
        X: Value,
        W: Value,
        R: Value,
        B: Value | None = None,
        sequence_lens: Value | None = None,
        direction: str = "forward",
        layout: int = 0,
        outputs: int = 1,
        **arguments: Any,
    ) -> list[Value]:
        """A layer for each of a few sequences, for consumers without a batch."""
        steps, batch, hidden = _sizes(g, X, R, layout)
        features, directions = g.size(W, 2), g.size(W, 0)
        if sequence_lens is not None or not 1 < batch <= _MAXIMUM_LAYERS:
            raise g.refuse(f"the batch is not of 2 to {_MAXIMUM_LAYERS} whole sequences")
        if not isinstance(features, int) or not isinstance(directions, int):
            raise g.refuse("the sizes of the weights must be known")
        # Sequences are side by side in matrices, because consumers without a batch do not slice or join it.
        lengths = {"X": (steps, features), **dict.fromkeys(_STATES[op_type], (directions, hidden))}
        operands = {"X": X, **{name: arguments.pop(name) for name in _STATES[op_type] if name in arguments}}
        matrices = {
            name: g.op("Reshape", value, [lengths[name][0], batch * lengths[name][1]])
            for name, value in operands.items()
            if value is not None
        }
        layers: list[list[Value]] = []
        for number in range(batch):
            parts = {}
            for name, matrix in matrices.items():
                rows, width = lengths[name]
                start = number * width
                part = g.op("Slice", matrix, starts=[start], ends=[start + width], axes=[1])
                parts[name] = g.op("Reshape", part, [rows, 1, width])
            named = {**arguments, **parts, "W": W, "R": R, "B": B, "direction": direction}
            layers.append(as_list(g.op(op_type, **named, outputs=outputs)))
        matrices_of_results: list[Value] = []
        for number, values in enumerate(zip(*layers, strict=True)):
            if number == 1 and direction == "forward":
                # The last step of all sequences, not last states: their sizes of 1 could be the batch.
                end = np.iinfo(np.int64).max
                matrix = g.op("Slice", matrices_of_results[0], starts=[-1], ends=[end], axes=[0])
            else:
                rows = directions if number else steps * directions
                matrix = g.op("Concat", *(g.op("Reshape", value, [rows, hidden]) for value in values), axis=1)
            matrices_of_results.append(matrix)
        state_shape = [directions, batch, hidden]
        return [
            g.op("Reshape", matrix, state_shape if number else [steps, *state_shape])
            for number, matrix in enumerate(matrices_of_results)
        ]


for _op_type in ("GRU", "LSTM", "RNN"):
    _register_single_batches(_op_type)
    _register_initial_state(_op_type)
    _register_split_directions(_op_type)
    _register_state_of_sequence(_op_type)


def _emit_batch_first(g: GraphContext, op_type: str, operands: list[Value]) -> Value:
    """Write an operator that reads `[steps, 1, features]` for `[1, steps, features]`, between Transposes.

    Consumers without a batch dimension follow it through a Transpose. Where an operator reads steps of one
    batch, they take the batch for a dimension of the data, and a recurrent layer behind it for its steps.
    """
    exchanged: list[Value] = []
    has_steps = False
    for operand in operands:
        shape = g.shape(operand)
        is_of_steps = shape is not None and len(shape) == 3 and shape[0] != 1 == shape[1]
        is_row = shape is not None and (len(shape) < 2 or all(size == 1 for size in shape[:-1]))
        is_weight = op_type == "MatMul" and operand is operands[1] and shape is not None and len(shape) == 2
        if not (is_of_steps or is_row or is_weight):
            raise g.refuse("an operand has neither steps of a batch of one nor one row")
        has_steps = has_steps or is_of_steps
        exchanged.append(g.op("Transpose", operand, perm=[1, 0, 2]) if is_of_steps else operand)
    if not has_steps:
        raise g.refuse("no operand has steps of a batch of one")
    return g.op("Transpose", g.op(op_type, *exchanged), perm=[1, 0, 2])


for _op_type in ("Add", "MatMul", "Mul"):
    register_form_of_operands(_op_type, "batch_first", _emit_batch_first)


@onnx_symbolic("form::Relu.batch_first")
def relu_batch_first(g: GraphContext, X: Value) -> Value:
    """With the batch in front of the steps, between Transposes."""
    return _emit_batch_first(g, "Relu", [X])


@onnx_symbolic("form::Tanh.batch_first")
def tanh_batch_first(g: GraphContext, input: Value) -> Value:
    """With the batch in front of the steps, between Transposes."""
    return _emit_batch_first(g, "Tanh", [input])
