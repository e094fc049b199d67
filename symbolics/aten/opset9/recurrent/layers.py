"""Recurrent layers: ATen's lstm, gru, rnn_tanh and rnn_relu as LSTM, GRU and RNN.

ATen's parameters for each layer and direction are `w_ih, w_hh[, b_ih, b_hh][, w_hr]`, with the gates stacked
along the first dimension (torch.nn.LSTM, torch.nn.GRU). ONNX orders the gates differently and has the
directions of a layer in one tensor: one Gather from the concatenated parameters does both.

`packed::lstm` and the other operators of this domain are ATen's layers over packed sequences, but take padded
sequences and lengths. Results beyond a sequence's length are undefined.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from .....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....compositions.initial_states import drop_zero_state
from ....compositions.size_arithmetic import compute, static_size
from .recurrent_steps import CELLS, LSTM, Parameters, RecurrentCell, by_steps, hidden_size, zero_state

_DIRECTIONS = ("forward", "reverse")


def _parameters(g: GraphContext, params: Sequence[Value], has_biases: bool, runs: int) -> list[Parameters]:
    """A `Parameters` for each of the `runs` layers and directions."""
    minimum_count = 4 if has_biases else 2
    count, excess = divmod(len(params), runs)
    if excess or count not in (minimum_count, minimum_count + 1):
        raise g.refuse(f"{len(params)} parameters do not fit {runs} layers and directions")
    groups = [params[start : start + count] for start in range(0, len(params), count)]
    return [
        Parameters(
            group[0],
            group[1],
            tuple(group[2:minimum_count]),
            group[minimum_count] if count > minimum_count else None,
        )
        for group in groups
    ]


def _arrange_gates(
    g: GraphContext, cell: RecurrentCell, tensors: Sequence[Value], hidden: int, directions: int
) -> Value:
    """Reorder ATen's parameters into one ONNX tensor `[directions, gates * hidden, ...]`."""
    stacked = tensors[0] if len(tensors) == 1 else g.op("Concat", *tensors, axis=0)
    gates = len(cell.order)
    rows = np.arange(len(tensors) * gates * hidden).reshape(len(tensors), gates, hidden)
    return g.op("Gather", stacked, rows[:, list(cell.order)].reshape(directions, -1), axis=0)


def _run(
    g: GraphContext,
    cell: RecurrentCell,
    x: Value,
    sets: Sequence[Parameters],
    initial: Sequence[Value | None],
    direction: str,
    lengths: Value | None,
) -> list[Value]:
    """Emit one operator: Y `[length, directions, batch, hidden]`, Y_h, Y_c `[directions, batch, hidden]`."""
    directions = len(sets)
    hidden = hidden_size(g, cell, sets[0].hidden)
    biases = [bias for parameters in sets for bias in parameters.biases]
    named = dict(zip(("initial_h", "initial_c"), initial, strict=False))
    results = g.op(
        cell.op_type,
        x,
        _arrange_gates(g, cell, [parameters.input for parameters in sets], hidden, directions),
        _arrange_gates(g, cell, [parameters.hidden for parameters in sets], hidden, directions),
        _arrange_gates(g, cell, biases, hidden, directions) if biases else None,
        hidden_size=hidden,
        direction=direction,
        activations=list(cell.activations) * directions or None,
        linear_before_reset=1 if cell.op_type == "GRU" else None,
        outputs=1 + len(initial),
        sequence_lens=None if lengths is None else g.cast(lengths, DataType.INT32),
        **named,
    )
    shape = g.shape(x)
    length, batch = (None, None) if shape is None else shape[:2]
    results[0].shape = ir.Shape([length, directions, batch, hidden])
    for final in results[1:]:
        final.shape = ir.Shape([directions, batch, hidden])
    return results


def _run_projected(
    g: GraphContext,
    x: Value,
    parameters: Parameters,
    initial: Sequence[Value | None],
    direction: str,
    lengths: Value | None,
) -> list[Value]:
    """An LSTM whose hidden state is `w_hr @ (o * tanh(c))`, which ONNX does not have (`proj_size`).

    The recurrence uses the state only through `w_hh`, so `w_hh @ w_hr` on the unprojected state is
    equivalent, and the projection follows at the end. A given initial state is already projected: it becomes
    additional columns of the first step's input, with weights `w_hh`.
    """
    weight, (start, cell_state) = parameters.input, initial
    if start is not None:
        x = g.op("Concat", x, _at_first_step(g, x, start, direction, lengths), axis=2)
        weight = g.op("Concat", weight, parameters.hidden, axis=1)
    # A product of weights, which is folded at export.
    recurrence = g.op("MatMul", parameters.hidden, parameters.projection)
    unprojected = Parameters(weight, recurrence, parameters.biases)
    y, y_h, y_c = _run(g, LSTM, x, [unprojected], [None, cell_state], direction, lengths)
    projection = g.op("Transpose", parameters.projection, perm=[1, 0])
    return [g.op("MatMul", y, projection), g.op("MatMul", y_h, projection), y_c]


def _at_first_step(g: GraphContext, x: Value, start: Value, direction: str, lengths: Value | None) -> Value:
    """A state as a sequence: at the first step of its direction, and zero at the other steps."""
    if direction == "reverse" and lengths is not None:
        positions = g.op("Unsqueeze", g.call("packed::positions", count=g.size(x, 0)), axes=[1])
        last = g.op("Unsqueeze", g.op("Sub", lengths, 1), axes=[0])
        # The reverse direction starts at the last element of each sequence.
        mask = g.op("Unsqueeze", g.op("Equal", positions, last), axes=[2])
        return g.op("Mul", start, g.cast(mask, g.dtype(x) or DataType.FLOAT))
    zeros = zero_state(g, g.size(start, 2), x, compute(g, "sub", g.size(x, 0), 1))
    return g.op("Concat", *((start, zeros) if direction == "forward" else (zeros, start)), axis=0)


def _layer(
    g: GraphContext,
    cell: RecurrentCell,
    x: Value,
    sets: Sequence[Parameters],
    initial: Sequence[Value | None],
    lengths: Value | None,
) -> list[Value]:
    """One layer: Y, Y_h and Y_c as in `_run`; directions run separately if necessary."""
    has_kernel = g.has_kernel(cell.op_type, x)
    # One operator computes both directions.
    if sets[0].projection is None and has_kernel:
        return _run(g, cell, x, sets, initial, "bidirectional" if len(sets) > 1 else "forward", lengths)
    runs = []
    for index, (parameters, direction) in enumerate(zip(sets, _DIRECTIONS, strict=False)):
        states = [_rows(g, state, index, 1, len(sets)) for state in initial]
        if not has_kernel:
            runs.append(by_steps(g, cell, x, parameters, states, direction, lengths))
        else:
            runs.append(_run_projected(g, x, parameters, states, direction, lengths))
    if len(runs) == 1:
        return runs[0]
    sequences, *final_states = zip(*runs, strict=True)
    return [g.op("Concat", *sequences, axis=1), *(g.op("Concat", *parts, axis=0) for parts in final_states)]


def _rows(g: GraphContext, state: Value | None, start: int, count: int, total: int) -> Value | None:
    """Some of the `total` layers and directions of a state."""
    if state is None or count == total:
        return state
    return g.op("Slice", state, starts=[start], ends=[start + count], axes=[0])


def _merge_directions(
    g: GraphContext, y: Value, features: int | None, directions: int, batch_first: bool
) -> Value:
    """Y in ATen's layout: the directions concatenated in the last dimension."""
    if directions == 1:
        y = g.op("Squeeze", y, axes=[1])
        return g.op("Transpose", y, perm=[1, 0, 2]) if batch_first else y
    if features is None:
        raise g.refuse("the shape of its weights is unknown")
    y = g.op("Transpose", y, perm=[2, 0, 1, 3] if batch_first else [0, 2, 1, 3])
    return g.op("Reshape", y, [0, 0, directions * features])


def _recurrent(
    g: GraphContext,
    cell: RecurrentCell,
    input: Value,
    states: Sequence[Value | None],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    directions: int,
    batch_first: bool,
    lengths: Value | None,
) -> list[Value]:
    """All layers: the output, then the final states.

    The input is `[length, batch, features]` or batch first; a state of None is zero. Half precision is
    computed in FLOAT, and DOUBLE step by step.
    """
    if g.rank(input) not in (3, None):
        raise g.refuse(f"its input must have 3 dimensions, not {g.rank(input)}")
    dtype = g.dtype(input) or g.dtype(params[0])
    compute_dtype = DataType.FLOAT if dtype in dtypes.HALVES else dtype
    if compute_dtype is not None:
        # Cast an unknown element type to that of the weights.
        input = g.cast(input, compute_dtype)
        states = [None if state is None else g.cast(state, compute_dtype) for state in states]
        params = [g.cast(value, compute_dtype) for value in params]
    sets = _parameters(g, params, has_biases, num_layers * directions)
    nonzero_states = states if dtype == DataType.DOUBLE else [drop_zero_state(g, state) for state in states]
    x = g.op("Transpose", input, perm=[1, 0, 2]) if batch_first else input
    finals: list[list[Value]] = [[] for _ in states]
    for start in range(0, len(sets), directions):
        layer_sets = sets[start : start + directions]
        initial = [_rows(g, state, start, directions, len(sets)) for state in nonzero_states]
        y, *ends = _layer(g, cell, x, layer_sets, initial, lengths)
        is_last = start + directions == len(sets)
        x = _merge_directions(
            g, y, static_size(g, layer_sets[0].hidden, 1), directions, batch_first and is_last
        )
        for layer_states, end in zip(finals, ends, strict=True):
            layer_states.append(end)
    final_states = [
        layer_states[0] if len(layer_states) == 1 else g.op("Concat", *layer_states, axis=0)
        for layer_states in finals
    ]
    return [g.cast(value, dtype) if dtype is not None else value for value in (x, *final_states)]


def _register(name: str, cell: RecurrentCell) -> None:
    """Register a cell's layers over padded sequences; the operators of domain `packed` also take lengths."""

    @onnx_symbolic([f"aten::{name}.input", f"packed::{name}"])
    def recurrent(
        g: GraphContext,
        input: Value,
        hx: Value | list[Value | None] | None,
        params: list[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
        lengths: Value | None = None,
    ) -> list[Value]:
        if train and dropout > 0 and num_layers > 1:
            raise g.refuse(
                "ONNX's recurrent operators have no dropout between layers in training mode; call eval() "
                "before the export, or build the model of single layers"
            )
        states: Sequence[Value | None] = [hx] if isinstance(hx, Value) else hx or [None] * cell.states
        runs = 1 + bidirectional
        return _recurrent(g, cell, input, states, params, has_biases, num_layers, runs, batch_first, lengths)


for _name, _cell in {"lstm": LSTM, **CELLS}.items():
    _register(_name, _cell)
