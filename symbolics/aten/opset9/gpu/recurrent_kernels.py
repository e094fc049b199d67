"""Recurrent layers of cuDNN and MIOpen, and the fused cells of GPUs, as the operators of every device."""

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import static_size
from ..recurrent.recurrent_cells import split_gates
from ..recurrent.recurrent_steps import CELLS, LSTM, advance

_MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
"""The layers by number: `cudnnRNNMode_t` and `miopenRNNMode_t`."""


@onnx_symbolic(["aten::_cudnn_rnn", "aten::miopen_rnn"])
def _cudnn_rnn(
    g: GraphContext,
    input: Value,
    weight: list[Value],
    weight_stride0: int,
    hx: Value,
    cx: Value | None,
    mode: int,
    hidden_size: int | Value,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: list[int | Value],
    dropout_state: Value | None,
    weight_buf: Value | None = None,
    proj_size: int | Value = 0,
) -> list[Value]:
    """A layer of parameters given one by one; `weight_buf` has the same numbers in cuDNN's own order.

    Args:
        weight_stride0: the number of parameters of a layer and direction: two matrices, two biases,
            a projection.
    """
    if batch_sizes:
        raise g.refuse("packed sequences of several lengths are not supported in a program captured on a GPU")
    states = hx if cx is None else [hx, cx]
    settings = (num_layers, dropout, train, bidirectional, batch_first)
    name = f"aten::{_MODES[mode]}.input"
    return g.call_outputs(name, input, states, weight, weight_stride0 > 3, *settings)


@onnx_symbolic(["aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell"])
def _thnn_fused_lstm_cell(
    g: GraphContext,
    input_gates: Value,
    hidden_gates: Value,
    cx: Value | None = None,
    input_bias: Value | None = None,
    hidden_bias: Value | None = None,
    hx: Value | None = None,
) -> list[Value]:
    """The new states from products `[N, gates * hidden]` of the input and of the hidden state.

    An LSTM takes its cell state as `cx`, and does not read the hidden state. A GRU takes that as `hx`.
    """
    cell, state = (CELLS["gru"], hx) if cx is None else (LSTM, cx)
    assert state is not None, "the schema demands it"
    pairs = ((input_gates, input_bias), (hidden_gates, hidden_bias))
    inward, recurrent = (gates if bias is None else g.op("Add", gates, bias) for gates, bias in pairs)
    gates, width = len(cell.order), static_size(g, input_gates, 1)
    states = [state] * cell.states
    return advance(g, cell, inward, recurrent, states, lambda value: split_gates(g, value, gates, width))
