"""Recurrent layers composed step by step: the cells, and layers that onnxruntime has no kernel for."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from .....registration import GraphContext, Value
from ....compositions.list_values import loop_inputs
from ....compositions.size_arithmetic import Size, compute, static_size


@dataclasses.dataclass(frozen=True)
class RecurrentCell:
    """How ONNX represents a cell.

    Attributes:
        op_type: its ONNX operator.
        order: for each of ONNX's gates, its position among ATen's gates.
        activations: those of one direction, if they are not the operator's default.
        states: the number of states.
    """

    op_type: str
    order: tuple[int, ...]
    activations: tuple[str, ...] = ()
    states: int = 1


LSTM = RecurrentCell("LSTM", (0, 3, 1, 2), states=2)  # ATen: i, f, g, o; ONNX: i, o, f, c
CELLS = {
    "gru": RecurrentCell("GRU", (1, 0, 2)),  # ATen: r, z, n; ONNX: z, r, h
    "rnn_tanh": RecurrentCell("RNN", (0,), ("Tanh",)),
    "rnn_relu": RecurrentCell("RNN", (0,), ("Relu",)),
}


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameters of one direction of a layer: two matrices, optionally two biases and a projection."""

    input: Value
    hidden: Value
    biases: tuple[Value, ...] = ()
    projection: Value | None = None


def hidden_size(g: GraphContext, cell: RecurrentCell, weight: Value) -> int:
    """The hidden size, from a matrix with all gates in its rows.

    Raises:
        UnsupportedError: the shape of the matrix is unknown.
    """
    rows = static_size(g, weight, 0)
    if rows is None:
        raise g.refuse("the shape of its weights is unknown")
    return rows // len(cell.order)


def zero_state(g: GraphContext, width: Size, x: Value, count: Size = 1) -> Value:
    """Zeros `[count, batch, width]` for the batch of a time-major input."""
    zero = g.constant(np.zeros((1, 1, 1)), g.dtype(x))
    return g.op("Tile", zero, [count, g.size(x, 1), width])


def advance(
    g: GraphContext,
    cell: RecurrentCell,
    inward: Value,
    recurrent: Value,
    states: Sequence[Value],
    split: Callable[[Value], Sequence[Value]],
) -> list[Value]:
    """The states after a step, from the contributions of the input and the hidden state to ATen's gates.

    Args:
        split: splits the gates.
    """
    if cell.op_type == "RNN":
        return [g.op(cell.activations[0], g.op("Add", inward, recurrent))]

    if cell.op_type == "LSTM":
        i, f, c, o = split(g.op("Add", inward, recurrent))
        remembered = g.op("Mul", g.op("Sigmoid", f), states[1])
        new = g.op("Add", remembered, g.op("Mul", g.op("Sigmoid", i), g.op("Tanh", c)))
        return [g.op("Mul", g.op("Sigmoid", o), g.op("Tanh", new)), new]
    (r_in, z_in, n_in), (r_h, z_h, n_h) = split(inward), split(recurrent)
    # The reset gate applies after the matrix product, as with `linear_before_reset=1`.
    reset, update = (g.op("Sigmoid", g.op("Add", a, b)) for a, b in ((r_in, r_h), (z_in, z_h)))
    new = g.op("Tanh", g.op("Add", n_in, g.op("Mul", reset, n_h)))
    return [g.op("Add", new, g.op("Mul", update, g.op("Sub", states[0], new)))]


def by_steps(
    g: GraphContext,
    cell: RecurrentCell,
    x: Value,
    parameters: Parameters,
    initial: Sequence[Value | None],
    direction: str,
    lengths: Value | None,
) -> list[Value]:
    """One direction of a layer, with outputs as of LSTM, GRU or RNN: unrolled, or a Loop over the length.

    Args:
        x: time first.
        initial: `[1, batch, width]` each; None is zero.
        direction: `forward` or `reverse`.
        lengths: the lengths of the sequences; the states do not change beyond them.

    Returns:
        Y `[length, 1, batch, hidden]`, then the final states.
    """
    length = g.size(x, 0)
    hidden, gates = hidden_size(g, cell, parameters.hidden), len(cell.order)
    by_name = {"input": parameters.input, "hidden": parameters.hidden, "projection": parameters.projection}
    matrices = {k: g.op("Transpose", v, perm=[1, 0]) for k, v in by_name.items() if v is not None}

    def linear(value: Value, name: str, bias: int) -> Value:
        product = g.op("MatMul", value, matrices[name])
        return g.op("Add", product, parameters.biases[bias]) if parameters.biases else product

    def split(value: Value) -> list[Value]:
        return g.op("Split", value, axis=2, split=[hidden] * gates, outputs=gates)

    inward = linear(x, "input", 0)
    widths = (g.size(parameters.hidden, 1), hidden)
    states = [zero_state(g, w, x) if s is None else s for s, w in zip(initial, widths, strict=False)]
    masks = None if lengths is None else g.call("packed::mask", lengths=lengths, count=length)

    def step(position: Value, *states: Value) -> list[Value]:
        current = g.op("Gather", inward, position, axis=0)
        new_states = advance(g, cell, current, linear(states[0], "hidden", 1), states, split)
        if parameters.projection is not None:
            new_states[0] = g.op("MatMul", new_states[0], matrices["projection"])
        if masks is None:
            return new_states
        mask = g.op("Unsqueeze", g.op("Gather", masks, position, axis=0), axes=[2])
        # Beyond its end a sequence keeps its last state.
        pairs = zip(new_states, states, strict=True)
        return [g.call("packed::chosen", mask=mask, self=a, other=b) for a, b in pairs]

    if isinstance(length, Value):
        y, *states = _loop_over_steps(g, step, length, states, direction)
    else:
        outputs = []
        for position in range(length) if direction == "forward" else reversed(range(length)):
            states = step(g.constant([position]), *states)
            outputs.append(g.op("Unsqueeze", states[0], axes=[0]))
        ordered = outputs if direction == "forward" else outputs[::-1]
        y = ordered[0] if length == 1 else g.op("Concat", *ordered, axis=0)
    y.shape = ir.Shape([static_size(g, x, 0), 1, None, static_size(g, parameters.hidden, 1)])
    return [y, *states]


def _loop_over_steps(
    g: GraphContext, step: Callable[..., list[Value]], length: Value, states: Sequence[Value], direction: str
) -> list[Value]:
    """A Loop over the steps of a sequence: the stacked hidden states, and the final states."""
    last = compute(g, "sub", length, 1)

    def build(iteration: Value, keep_going: Value, *states: Value) -> list[Value]:
        position = iteration if direction == "forward" else g.op("Sub", last, iteration)
        new_states = step(g.op("Unsqueeze", position, axes=[0]), *states)
        return [g.constant(True), *new_states, new_states[0]]

    formals = [Value(name="state", type=state.type, shape=ir.Shape([1, None, None])) for state in states]
    body = g.subgraph(build, [*loop_inputs("going"), *formals], "steps")
    *ends, y = g.op("Loop", length, None, *states, body=body, outputs=len(states) + 1)
    y.type = states[0].type
    for end, state in zip(ends, states, strict=True):
        end.type, end.shape = state.type, state.shape
    if direction == "reverse":
        y = g.op("Gather", y, g.op("Sub", last, g.call("packed::positions", count=length)), axis=0)
    return [y, *ends]
