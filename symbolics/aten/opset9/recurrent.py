"""Recurrent layers: ATen's lstm, gru, rnn_tanh and rnn_relu as the operators LSTM, GRU and RNN.

ATen's parameters are, per layer and direction, `w_ih, w_hh[, b_ih, b_hh][, w_hr]`, the gates of each
stacked along its first dimension (torch.nn.LSTM, torch.nn.GRU). ONNX has the gates in another order and the
directions of a layer in one tensor: one Gather from the concatenated parameters says both.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...sizes import compute, static_size

_DIRECTIONS = ("forward", "reverse")
_NARROW = (DataType.FLOAT16, DataType.BFLOAT16)


@dataclasses.dataclass(frozen=True)
class _Cell:
    """How ONNX says a cell.

    Attributes:
        op_type: its operator.
        order: for each of ONNX's gates, its position among ATen's.
        activations: of one direction, where they are not the operator's own.
    """

    op_type: str
    order: tuple[int, ...]
    activations: tuple[str, ...] = ()


_LSTM = _Cell("LSTM", (0, 3, 1, 2))  # ATen: i, f, g, o; ONNX: i, o, f, c
_CELLS = {
    "gru": _Cell("GRU", (1, 0, 2)),  # ATen: r, z, n; ONNX: z, r, h
    "rnn_tanh": _Cell("RNN", (0,), ("Tanh",)),
    "rnn_relu": _Cell("RNN", (0,), ("Relu",)),
}


@dataclasses.dataclass(frozen=True)
class _Parameters:
    """The parameters of one direction of a layer: two matrices, no or two biases, no or one projection."""

    input: Value
    hidden: Value
    biases: tuple[Value, ...] = ()
    projection: Value | None = None


def _parameters(g: GraphContext, params: Sequence[Value], has_biases: bool, runs: int) -> list[_Parameters]:
    """One `_Parameters` for each layer and direction, of which there are `runs`."""
    plain = 4 if has_biases else 2
    each, rest = divmod(len(params), runs)
    if rest or each not in (plain, plain + 1):
        raise g.refuse(f"{len(params)} parameters are not those of {runs} layers and directions")
    groups = [params[start : start + each] for start in range(0, len(params), each)]
    return [
        _Parameters(group[0], group[1], tuple(group[2:plain]), group[plain] if each > plain else None)
        for group in groups
    ]


def _arranged(g: GraphContext, cell: _Cell, parts: Sequence[Value], hidden: int, directions: int) -> Value:
    """Parameters of ATen's order as one tensor `[directions, gates * hidden, ...]` of ONNX's."""
    joined = parts[0] if len(parts) == 1 else g.op("Concat", *parts, axis=0)
    gates = len(cell.order)
    rows = np.arange(len(parts) * gates * hidden).reshape(len(parts), gates, hidden)
    return g.op("Gather", joined, rows[:, list(cell.order)].reshape(directions, -1), axis=0)


def _hidden_size(g: GraphContext, cell: _Cell, weight: Value) -> int:
    rows = static_size(g, weight, 0)
    if rows is None:
        raise g.refuse("the shape of its weights is unknown")
    return rows // len(cell.order)


def _run(
    g: GraphContext,
    cell: _Cell,
    x: Value,
    sets: Sequence[_Parameters],
    initial: Sequence[Value | None],
    direction: str,
) -> list[Value]:
    """One operator: Y `[length, directions, batch, hidden]`, Y_h and Y_c `[directions, batch, hidden]`."""
    directions = len(sets)
    hidden = _hidden_size(g, cell, sets[0].hidden)
    biases = [bias for each in sets for bias in each.biases]
    named = dict(zip(("initial_h", "initial_c"), initial, strict=False))
    results = g.op(
        cell.op_type,
        x,
        _arranged(g, cell, [each.input for each in sets], hidden, directions),
        _arranged(g, cell, [each.hidden for each in sets], hidden, directions),
        _arranged(g, cell, biases, hidden, directions) if biases else None,
        hidden_size=hidden,
        direction=direction,
        activations=list(cell.activations) * directions or None,
        linear_before_reset=1 if cell.op_type == "GRU" else None,
        outputs=1 + len(initial),
        **named,
    )
    shape = g.shape(x)
    length, batch = (None, None) if shape is None else shape[:2]
    results[0].shape = ir.Shape([length, directions, batch, hidden])
    for final in results[1:]:
        final.shape = ir.Shape([directions, batch, hidden])
    return results


def _run_projected(
    g: GraphContext, x: Value, each: _Parameters, initial: Sequence[Value | None], direction: str
) -> list[Value]:
    """An LSTM whose hidden state is `w_hr @ (o * tanh(c))`, which ONNX does not have (`proj_size`).

    The recurrence sees the state through `w_hh` only, so `w_hh @ w_hr` over the state before its projection
    is the same, and the projection follows at the end. A given state is projected already: it enters
    as further columns of the first step's input, whose weights are `w_hh`.
    """
    weight, (start, cell_state) = each.input, initial
    if start is not None:
        width = static_size(g, each.hidden, 1)
        if width is None:
            raise g.refuse("the shape of its weights is unknown")
        zeros = g.constant(np.zeros((1, 1, width)), g.dtype(x))
        others = g.op("Tile", zeros, [compute(g, "sub", g.size(x, 0), 1), g.size(x, 1), 1])
        parts = (start, others) if direction == "forward" else (others, start)
        x = g.op("Concat", x, g.op("Concat", *parts, axis=0), axis=2)
        weight = g.op("Concat", weight, each.hidden, axis=1)
    recurrence = g.op("MatMul", each.hidden, each.projection)
    unprojected = _Parameters(weight, recurrence, each.biases)
    y, y_h, y_c = _run(g, _LSTM, x, [unprojected], [None, cell_state], direction)
    projection = g.op("Transpose", each.projection, perm=[1, 0])
    return [g.op("MatMul", y, projection), g.op("MatMul", y_h, projection), y_c]


def _layer(
    g: GraphContext, cell: _Cell, x: Value, sets: Sequence[_Parameters], initial: Sequence[Value | None]
) -> list[Value]:
    """One layer: Y, Y_h and Y_c as `_run` gives them, the directions apart where they must be."""
    double = g.dtype(x) == DataType.DOUBLE
    if sets[0].projection is None and not double:
        return _run(g, cell, x, sets, initial, "bidirectional" if len(sets) > 1 else "forward")
    runs = []
    for index, (each, direction) in enumerate(zip(sets, _DIRECTIONS, strict=False)):
        own = [_rows(g, state, index, 1, len(sets)) for state in initial]
        if double:
            states = [state for state in own if state is not None]
            runs.append(_unrolled(g, cell, x, each, states, direction))
        else:
            runs.append(_run_projected(g, x, each, own, direction))
    if len(runs) == 1:
        return runs[0]
    first, *rest = zip(*runs, strict=True)
    return [g.op("Concat", *first, axis=1), *(g.op("Concat", *parts, axis=0) for parts in rest)]


def _rows(g: GraphContext, state: Value | None, start: int, count: int, total: int) -> Value | None:
    """Some of the layers and directions of a state, of which there are `total`."""
    if state is None or count == total:
        return state
    return g.op("Slice", state, starts=[start], ends=[start + count], axes=[0])


def _given(g: GraphContext, state: Value) -> Value | None:
    """An initial state, None where it is zero: ONNX's default, and what torch.nn's modules start from."""
    source: Value | None = state
    node = state.producer()
    while node is not None and node.op_type in ("Cast", "Expand", "Identity"):
        source = node.inputs[0]
        node = None if source is None else source.producer()
    if node is not None and node.op_type == "ConstantOfShape":
        content = node.attributes.get("value")
        return state if content is not None and np.any(content.value.numpy()) else None
    array = g.constant_value(source) if source is not None and g.is_foldable(source) else None
    return state if array is None or np.any(array) else None


def _merged(g: GraphContext, y: Value, features: int | None, directions: int, batch_first: bool) -> Value:
    """Y as ATen has it: the directions beside one another in the last dimension."""
    if directions == 1:
        y = g.op("Squeeze", y, axes=[1])
        return g.op("Transpose", y, perm=[1, 0, 2]) if batch_first else y
    if features is None:
        raise g.refuse("the shape of its weights is unknown")
    y = g.op("Transpose", y, perm=[2, 0, 1, 3] if batch_first else [0, 2, 1, 3])
    return g.op("Reshape", y, [0, 0, directions * features])


def _step(
    g: GraphContext, cell: _Cell, inward: Value, recurrent: Value, states: list[Value], hidden: int
) -> list[Value]:
    """The states after a step, from what the input and the hidden state give to each of ATen's gates."""
    if cell.op_type == "RNN":
        return [g.op(cell.activations[0], g.op("Add", inward, recurrent))]

    def split(value: Value) -> list[Value]:
        gates = len(cell.order)
        return g.op("Split", value, axis=2, split=[hidden] * gates, outputs=gates)

    if cell.op_type == "LSTM":
        i, f, c, o = split(g.op("Add", inward, recurrent))
        kept = g.op("Mul", g.op("Sigmoid", f), states[1])
        new = g.op("Add", kept, g.op("Mul", g.op("Sigmoid", i), g.op("Tanh", c)))
        return [g.op("Mul", g.op("Sigmoid", o), g.op("Tanh", new)), new]
    (r_in, z_in, n_in), (r_h, z_h, n_h) = split(inward), split(recurrent)
    reset, update = (g.op("Sigmoid", g.op("Add", a, b)) for a, b in ((r_in, r_h), (z_in, z_h)))
    new = g.op("Tanh", g.op("Add", n_in, g.op("Mul", reset, n_h)))
    return [g.op("Add", new, g.op("Mul", update, g.op("Sub", states[0], new)))]


def _unrolled(
    g: GraphContext, cell: _Cell, x: Value, each: _Parameters, states: list[Value], direction: str
) -> list[Value]:
    """What `_run` gives for one direction, step by step."""
    length = static_size(g, x, 0)
    if length is None:
        raise g.refuse("onnxruntime has no recurrent kernel of DOUBLE, and the sequence length is not static")
    hidden = _hidden_size(g, cell, each.hidden)
    by_name = {"input": each.input, "hidden": each.hidden, "projection": each.projection}
    matrices = {k: g.op("Transpose", v, perm=[1, 0]) for k, v in by_name.items() if v is not None}

    def linear(value: Value, name: str, bias: int) -> Value:
        product = g.op("MatMul", value, matrices[name])
        return g.op("Add", product, each.biases[bias]) if each.biases else product

    inward = linear(x, "input", 0)
    outputs = []
    for step in range(length) if direction == "forward" else reversed(range(length)):
        now = g.op("Slice", inward, starts=[step], ends=[step + 1], axes=[0])
        states = _step(g, cell, now, linear(states[0], "hidden", 1), states, hidden)
        if each.projection is not None:
            states[0] = g.op("MatMul", states[0], matrices["projection"])
        outputs.append(states[0])
    ordered = outputs if direction == "forward" else outputs[::-1]
    y = ordered[0] if length == 1 else g.op("Concat", *ordered, axis=0)
    y = g.op("Unsqueeze", y, axes=[1])
    y.shape = ir.Shape([length, 1, None, static_size(g, each.hidden, 1)])
    return [y, *states]


def _recurrent(
    g: GraphContext,
    cell: _Cell,
    input: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    directions: int,
    batch_first: bool,
) -> list[Value]:
    """All layers: the output, then the final states.

    onnxruntime's kernels compute in FLOAT only (those of DOUBLE are registered, and refuse when run): what
    is narrower runs as FLOAT, and DOUBLE is unrolled.
    """
    dtype = g.dtype(input)
    if dtype in _NARROW:
        input, *states = (g.cast(value, DataType.FLOAT) for value in (input, *states))
        params = [g.cast(value, DataType.FLOAT) for value in params]
    sets = _parameters(g, params, has_biases, num_layers * directions)
    given = states if dtype == DataType.DOUBLE else [_given(g, state) for state in states]
    x = g.op("Transpose", input, perm=[1, 0, 2]) if batch_first else input
    finals: list[list[Value]] = [[] for _ in states]
    for start in range(0, len(sets), directions):
        own = sets[start : start + directions]
        initial = [_rows(g, state, start, directions, len(sets)) for state in given]
        y, *ends = _layer(g, cell, x, own, initial)
        last = start + directions == len(sets)
        x = _merged(g, y, static_size(g, own[0].hidden, 1), directions, batch_first and last)
        for parts, end in zip(finals, ends, strict=True):
            parts.append(end)
    joined = [parts[0] if len(parts) == 1 else g.op("Concat", *parts, axis=0) for parts in finals]
    return [g.cast(value, dtype) if dtype is not None else value for value in (x, *joined)]


def _check_dropout(g: GraphContext, num_layers: int, dropout: float, train: bool) -> None:
    if train and dropout > 0 and num_layers > 1:
        raise g.refuse(
            "dropout between its layers in training mode has no form in ONNX's recurrent operators; "
            "call eval() before the export, or build it of single layers"
        )


@onnx_symbolic("aten::lstm.input")
def lstm(
    g: GraphContext,
    input: Value,
    hx: list[Value],
    params: list[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Value]:
    _check_dropout(g, num_layers, dropout, train)
    return _recurrent(g, _LSTM, input, hx, params, has_biases, num_layers, 1 + bidirectional, batch_first)


def _of_cell(cell: _Cell) -> Callable[..., list[Value]]:
    def recurrent(
        g: GraphContext,
        input: Value,
        hx: Value,
        params: list[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Value]:
        _check_dropout(g, num_layers, dropout, train)
        return _recurrent(
            g, cell, input, [hx], params, has_biases, num_layers, 1 + bidirectional, batch_first
        )

    return recurrent


def _packed(
    g: GraphContext,
    data: Value,
    batch_sizes: Value,
    hx: Value | list[Value],
    params: list[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> list[Value]:
    raise g.refuse(
        "a packed sequence has no form in ONNX's recurrent operators: pass the module the padded tensor"
    )


for _name, _cell in _CELLS.items():
    onnx_symbolic(f"aten::{_name}.input")(_of_cell(_cell))
for _name in ("lstm", *_CELLS):
    onnx_symbolic(f"aten::{_name}.data")(_packed)
