"""One step of a recurrent layer: lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell.

These compositions support every float type and need no shapes.
"""

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import static_size
from .recurrent_steps import CELLS, LSTM, RecurrentCell, advance


def _gates(g: GraphContext, value: Value, count: int, weight: Value) -> list[Value]:
    """Split gates that are concatenated in the second of two dimensions."""
    rows = static_size(g, weight, 0)
    if rows is not None:
        result: list[Value] = g.op("Split", value, axis=1, split=[rows // count] * count, outputs=count)
        return result
    split_gates = g.op("Reshape", value, [0, count, -1])
    return [g.op("Squeeze", g.op("Gather", split_gates, [gate], axis=1), axes=[1]) for gate in range(count)]


def _register(name: str, cell: RecurrentCell) -> None:
    @onnx_symbolic(f"aten::{name}_cell")
    def step(
        g: GraphContext,
        input: Value,
        hx: Value | list[Value],
        w_ih: Value,
        w_hh: Value,
        b_ih: Value | None = None,
        b_hh: Value | None = None,
    ) -> Value | list[Value]:
        states = [hx] if isinstance(hx, Value) else hx
        inward = g.call("aten::linear", input=input, weight=w_ih, bias=b_ih)
        recurrent = g.call("aten::linear", input=states[0], weight=w_hh, bias=b_hh)
        gates = len(cell.order)
        new = advance(g, cell, inward, recurrent, states, lambda value: _gates(g, value, gates, w_hh))
        return new[0] if isinstance(hx, Value) else new


for _name, _cell in {"lstm": LSTM, **CELLS}.items():
    _register(_name, _cell)
