"""Recurrent cells and layers that are single TensorFlow operators.

Semantics: tensorflow/core/kernels/rnn/lstm_ops.cc and gru_ops.cc.
"""

import dataclasses
import math
from collections.abc import Sequence

import onnx_ir as ir

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.list_values import loop_inputs
from ...compositions.operator_tables import register_variant
from ...compositions.outputs import is_used
from ...compositions.size_arithmetic import Size, compute, static_size
from .._common import flatten, number, set_shape
from .layout import set_rank


@dataclasses.dataclass(frozen=True)
class _BlockCell:
    """An LSTM with the parameters of TensorFlow's block operators.

    Attributes:
        w: the matrix, `[inputs + units, 4 * units]`.
        b: the bias, `[4 * units]`.
        peepholes: the peephole vectors of the gates i, f and o.
        forget_first: whether the columns of the forget gate come before those of the cell candidate.
    """

    w: Value
    b: Value
    peepholes: tuple[Value, Value, Value] | None
    forget_bias: float
    cell_clip: float
    forget_first: bool

    def step(self, g: GraphContext, x: Value, cs_prev: Value, h_prev: Value) -> list[Value]:
        """The outputs of a step: i, cs, f, o, ci, co and h."""
        gates = g.op("Add", g.op("MatMul", g.op("Concat", x, h_prev, axis=1), self.w), self.b)
        i, second, third, o = _split_gates(g, gates, 4, self.w)
        f, ci = (second, third) if self.forget_first else (third, second)
        if self.forget_bias:
            f = g.op("Add", f, self.forget_bias)
        if self.peepholes is not None:
            # The gates i and f see the previous cell state, the gate o below the new one.
            i = g.op("Add", i, g.op("Mul", cs_prev, self.peepholes[0]))
            f = g.op("Add", f, g.op("Mul", cs_prev, self.peepholes[1]))
        i, f, ci = g.op("Sigmoid", i), g.op("Sigmoid", f), g.op("Tanh", ci)
        cs = g.op("Add", g.op("Mul", ci, i), g.op("Mul", cs_prev, f))
        if self.cell_clip > 0:
            cs = g.call("aten::clamp", cs, -self.cell_clip, self.cell_clip)
        if self.peepholes is not None:
            o = g.op("Add", o, g.op("Mul", cs, self.peepholes[2]))
        o, co = g.op("Sigmoid", o), g.op("Tanh", cs)
        return [i, cs, f, o, ci, co, g.op("Mul", co, o)]


def _split_gates(g: GraphContext, gates: Value, count: int, weight: Value) -> list[Value]:
    """Split the gates, which are concatenated along the second of two axes."""
    columns = static_size(g, weight, 1) if g.rank(weight) is not None else None
    if columns is not None:
        parts = g.op("Split", gates, axis=1, split=[columns // count] * count, outputs=count)
        return [set_rank(g, part, 2) for part in parts]
    # Split would need the size of the gates, which is unknown.
    stacked_gates = g.op("Reshape", gates, [0, count, -1])
    return [g.op("Squeeze", g.op("Gather", stacked_gates, [gate], axis=1), axes=[1]) for gate in range(count)]


@onnx_symbolic("tf::LSTMBlockCell")
def lstm_block_cell(
    g: GraphContext,
    x: Value,
    cs_prev: Value,
    h_prev: Value,
    w: Value,
    wci: Value,
    wcf: Value,
    wco: Value,
    b: Value,
    forget_bias: float = 1.0,
    cell_clip: float = 3.0,
    use_peephole: bool = False,
) -> list[Value]:
    peepholes = (wci, wcf, wco) if use_peephole else None
    return _BlockCell(w, b, peepholes, forget_bias, cell_clip, False).step(g, x, cs_prev, h_prev)


def block_lstm(
    g: GraphContext,
    seq_len_max: Value,
    x: Value,
    cs_prev: Value,
    h_prev: Value,
    w: Value,
    wci: Value,
    wcf: Value,
    wco: Value,
    b: Value,
    forget_bias: float = 1.0,
    cell_clip: float = 3.0,
    use_peephole: bool = False,
    forget_first: bool = False,
) -> list[Value | None]:
    """The outputs of all steps; from step `seq_len_max` on they are zeros.

    The ONNX operator LSTM computes them if only the hidden states are used, and the cells are not clipped.
    """
    peepholes = (wci, wcf, wco) if use_peephole else None
    cell = _BlockCell(w, b, peepholes, forget_bias, cell_clip, forget_first)
    set_rank(g, x, 3)
    length = g.size(x, 0)
    length_constant = g.constant_value(seq_len_max)
    is_full_length = (
        length_constant is not None and isinstance(length, int) and int(length_constant.item()) >= length
    )
    units = static_size(g, cell.w, 1) if g.rank(cell.w) is not None else None
    used_outputs = [index for index in range(7) if is_used(g, index)]
    if used_outputs == [6] and cell.cell_clip <= 0 and units is not None:
        lengths = None
        if not is_full_length:
            steps = compute(g, "min", number(g, seq_len_max), length)
            lengths = g.op("Expand", g.cast(g.constant(steps), DataType.INT32), [g.size(x, 1)])
        return [*[None] * 6, _emit_lstm(g, cell, x, cs_prev, h_prev, units // 4, lengths)]
    count: Size = length if is_full_length else compute(g, "min", number(g, seq_len_max), length)
    stacked_outputs = _loop_over_steps(g, cell, count, x, cs_prev, h_prev, used_outputs or [6])
    missing_steps = compute(g, "sub", length, count)
    results: list[Value | None] = [None] * 7
    for index, value in zip(used_outputs or [6], stacked_outputs, strict=True):
        results[index] = (
            value
            if missing_steps == 0
            else g.call("composed::pad", value, [0, 0, 0], [missing_steps, 0, 0], 0)
        )
    return results


# The gates are in the order i, c, f, o; in version 2, they are in the order i, f, c, o.
register_variant("tf::BlockLSTM", block_lstm, forget_first=False)
register_variant("tf::BlockLSTMV2", block_lstm, {"cell_clip": 0.0}, forget_bias=0.0, forget_first=True)


def _loop_over_steps(
    g: GraphContext,
    cell: _BlockCell,
    count: Size,
    x: Value,
    cs_prev: Value,
    h_prev: Value,
    used_outputs: Sequence[int],
) -> list[Value]:
    """Emit a Loop over the steps; return the used outputs, each stacked over the steps."""

    def build(iteration: Value, condition: Value, cs: Value, h: Value) -> list[Value]:
        step_input = g.op(
            "Squeeze", g.op("Gather", x, g.op("Unsqueeze", iteration, axes=[0]), axis=0), axes=[0]
        )
        results = cell.step(g, step_input, cs, h)
        return [g.constant(True), results[1], results[6], *(results[index] for index in used_outputs)]

    formals = [
        Value(name="state", type=state.type, shape=ir.Shape([None, None])) for state in (cs_prev, h_prev)
    ]
    body = g.subgraph(build, [*loop_inputs("going"), *formals], "steps")
    _, _, *stacked_outputs = g.op(
        "Loop", g.constant(count), None, cs_prev, h_prev, body=body, outputs=2 + len(used_outputs)
    )
    for value in stacked_outputs:
        value.type, value.shape = x.type, ir.Shape([None, None, None])
    return stacked_outputs


def _emit_lstm(
    g: GraphContext,
    cell: _BlockCell,
    x: Value,
    cs_prev: Value,
    h_prev: Value,
    units: int,
    lengths: Value | None,
) -> Value:
    """Emit the operator LSTM, whose gates are i, o, f and c; return the hidden states of all steps."""
    # The positions of the gates f and c among TensorFlow's columns.
    second, third = (1, 2) if cell.forget_first else (2, 1)
    order = (0, 3, second, third)

    def reorder_gates(value: Value, axis: int) -> list[Value]:
        gates = g.op("Split", value, axis=axis, split=[units] * 4, outputs=4)
        return [gates[gate] for gate in order]

    rows_of_inputs = static_size(g, cell.w, 0)
    inputs = g.size(x, 2) if rows_of_inputs is None else rows_of_inputs - units
    rows = g.op("Concat", *reorder_gates(cell.w, 1), axis=1)
    matrices = [
        g.op(
            "Unsqueeze",
            g.op("Transpose", g.op("Slice", rows, starts=[a], ends=[b], axes=[0]), perm=[1, 0]),
            axes=[0],
        )
        for a, b in ((0, inputs), (inputs, compute(g, "add", inputs, units)))
    ]
    i, o, f, c = reorder_gates(cell.b, 0)
    if cell.forget_bias:
        # ONNX's LSTM has no such attribute.
        f = g.op("Add", f, cell.forget_bias)
    # ONNX has a second bias for the hidden state.
    zeros = g.constant([0.0] * (4 * units), g.dtype(cell.b) or DataType.FLOAT)
    bias = g.op("Unsqueeze", g.op("Concat", i, o, f, c, zeros, axis=0), axes=[0])
    peepholes = None
    if cell.peepholes is not None:
        of_i, of_f, of_o = cell.peepholes
        peepholes = g.op("Unsqueeze", g.op("Concat", of_i, of_o, of_f, axis=0), axes=[0])
    states = [g.op("Unsqueeze", state, axes=[0]) for state in (h_prev, cs_prev)]
    y = g.op("LSTM", x, *matrices, bias, lengths, *states, peepholes, hidden_size=units)
    y.shape = ir.Shape([None, 1, None, units])
    return g.op("Squeeze", y, axes=[1])


@onnx_symbolic("tf::GRUBlockCell")
def gru_block_cell(
    g: GraphContext, x: Value, h_prev: Value, w_ru: Value, w_c: Value, b_ru: Value, b_c: Value
) -> list[Value]:
    """The reset and update gates, the candidate, and the new hidden state."""
    gates = g.op("Add", g.op("MatMul", g.op("Concat", x, h_prev, axis=1), w_ru), b_ru)
    r, u = (g.op("Sigmoid", part) for part in _split_gates(g, gates, 2, w_ru))
    reset = g.op("Concat", x, g.op("Mul", h_prev, r), axis=1)
    c = g.op("Tanh", g.op("Add", g.op("MatMul", reset, w_c), b_c))
    # u * h + (1 - u) * c, with one product.
    return [r, u, c, g.op("Add", g.op("Mul", u, g.op("Sub", h_prev, c)), c)]


_GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}
"""The cells of cuDNN, and the numbers of their gates."""


def cudnn_rnn(
    g: GraphContext,
    input: Value,
    input_h: Value,
    input_c: Value,
    params: Value,
    sequence_lengths: Value | None = None,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    is_training: bool = True,
    time_major: bool = True,
    results: int = 5,
) -> list[Value | None]:
    """Layers of one cell, with weights in cuDNN's packed layout.

    That layout is the one that Keras writes: the matrices of all gates of each layer and direction, first
    those of the input, then the recurrent ones; and after all matrices two biases for each gate. The order of
    the gates and the equations are those of ATen.
    """
    if rnn_mode not in _GATES:
        raise g.refuse(f"rnn_mode '{rnn_mode}' is none of {', '.join(_GATES)}")
    if input_mode != "linear_input":
        raise g.refuse(f"input_mode '{input_mode}' is not supported")
    if num_proj:
        raise g.refuse("projections of the hidden state are not supported")
    set_rank(g, input, 3)
    set_rank(g, input_h, 3)
    directions = 2 if direction == "bidirectional" else 1
    runs, units = g.size(input_h, 0 if time_major else 1), g.size(input_h, 2)
    features = g.size(input, 2)
    if not isinstance(runs, int) or not isinstance(units, int) or not isinstance(features, int):
        raise g.refuse("the numbers of layers, units and features must be known")
    rows = _GATES[rnn_mode] * units
    widths = [
        width
        for run in range(runs)
        for width in (features if run < directions else directions * units, units)
    ]
    sizes = [[rows, width] for width in widths] + [[rows]] * (2 * runs)
    parts: list[Value] = []
    start = 0
    for shape in sizes:
        end = start + math.prod(shape)
        part = g.op("Slice", flatten(g, params), starts=[start], ends=[end], axes=[0])
        parts.append(set_shape(g.op("Reshape", part, shape), shape))
        start = end
    matrices, biases = parts[: 2 * runs], parts[2 * runs :]
    weights = [
        value for run in range(0, 2 * runs, 2) for value in (*matrices[run : run + 2], *biases[run : run + 2])
    ]
    has_cell = rnn_mode == "lstm"
    states = [
        state if time_major else g.op("Transpose", state, perm=[1, 0, 2])
        for state in ((input_h, input_c) if has_cell else (input_h,))
    ]
    is_bidirectional = directions == 2
    output, *finals = g.call_outputs(
        f"packed::{rnn_mode}",
        input,
        states if has_cell else states[0],
        weights,
        True,
        runs // directions,
        dropout,
        is_training,
        is_bidirectional,
        not time_major,
        sequence_lengths,
    )
    if not time_major:
        finals = [g.op("Transpose", state, perm=[1, 0, 2]) for state in finals]
    # The cell states of other cells, and what gradients reuse, have no meaning here.
    return [output, *finals, *[None] * (results - 1 - len(finals))]


register_variant("tf::CudnnRNNV3", cudnn_rnn, results=5)
register_variant("tf::CudnnRNNV2", cudnn_rnn, sequence_lengths=None, num_proj=0, time_major=True, results=5)
register_variant("tf::CudnnRNN", cudnn_rnn, sequence_lengths=None, num_proj=0, time_major=True, results=4)
