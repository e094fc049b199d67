"""One step of a recurrent layer: lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell.

These compositions support every float type and need no shapes.
"""

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import static_size
from .recurrent_steps import CELLS, LSTM, RecurrentCell, advance


def split_gates(g: GraphContext, value: Value, count: int, width: int | None) -> list[Value]:
    """Split gates that are concatenated in the second of two dimensions, whose size may be known."""
    if width is not None:
        return g.op("Split", value, axis=1, split=[width // count] * count, outputs=count)
    stacked = g.op("Reshape", value, [0, count, -1])
    return [g.op("Squeeze", g.op("Gather", stacked, [gate], axis=1), axes=[1]) for gate in range(count)]


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
        gates, width = len(cell.order), static_size(g, w_hh, 0)
        new = advance(g, cell, inward, recurrent, states, lambda value: split_gates(g, value, gates, width))
        return new[0] if isinstance(hx, Value) else new


for _name, _cell in {"lstm": LSTM, **CELLS}.items():
    _register(_name, _cell)
