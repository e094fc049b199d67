"""One step of a recurrent layer: lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell.

These compositions support every float type and need no shapes.
"""

from collections.abc import Callable, Sequence

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.sizes import static_size
from .recurrent_steps import CELLS, LSTM, Cell, advance


def _gates(g: GraphContext, value: Value, count: int, weight: Value) -> list[Value]:
    """Split gates that are concatenated in the second of two dimensions."""
    rows = static_size(g, weight, 0)
    if rows is not None:
        return g.op("Split", value, axis=1, split=[rows // count] * count, outputs=count)
    apart = g.op("Reshape", value, [0, count, -1])
    return [g.op("Squeeze", g.op("Gather", apart, [gate], axis=1), axes=[1]) for gate in range(count)]


def _cell(
    g: GraphContext,
    cell: Cell,
    input: Value,
    states: Sequence[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None,
    b_hh: Value | None,
) -> list[Value]:
    inward = g.call("aten::linear", input=input, weight=w_ih, bias=b_ih)
    recurrent = g.call("aten::linear", input=states[0], weight=w_hh, bias=b_hh)
    return advance(g, cell, inward, recurrent, states, lambda value: _gates(g, value, len(cell.order), w_hh))


@onnx_symbolic("aten::lstm_cell")
def lstm_cell(
    g: GraphContext,
    input: Value,
    hx: list[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> list[Value]:
    return _cell(g, LSTM, input, hx, w_ih, w_hh, b_ih, b_hh)


def _of_one_state(cell: Cell) -> Callable[..., Value]:
    def symbolic(
        g: GraphContext,
        input: Value,
        hx: Value,
        w_ih: Value,
        w_hh: Value,
        b_ih: Value | None = None,
        b_hh: Value | None = None,
    ) -> Value:
        return _cell(g, cell, input, [hx], w_ih, w_hh, b_ih, b_hh)[0]

    return symbolic


for _name, _kind in CELLS.items():
    onnx_symbolic(f"aten::{_name}_cell")(_of_one_state(_kind))
