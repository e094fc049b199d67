"""Recurrent layers with `layout=1` (batch first), an argument from opset 14."""

from typing import Any

from ....registration import GraphContext, Value, onnx_symbolic
from ....registration.functions.results import as_list


def _register(op_type: str) -> None:
    @onnx_symbolic(f"onnx::{op_type}")
    def layer(
        g: GraphContext,
        X: Value,
        W: Value,
        R: Value,
        B: Value | None = None,
        sequence_lens: Value | None = None,
        initial_h: Value | None = None,
        initial_c: Value | None = None,
        P: Value | None = None,
        layout: int = 0,
        outputs: int = 1,
        **attributes: Any,
    ) -> list[Value]:
        """Below 14: transposes the batch to the second dimension, and back."""

        def exchange_batch(value: Value | None) -> Value | None:
            return None if value is None else g.op("Transpose", value, perm=[1, 0, 2])

        states = {"initial_c": initial_c} if op_type == "LSTM" else {}
        inputs: dict[str, Value | None] = {"X": X, "initial_h": initial_h, **states}
        if layout:
            inputs = {name: exchange_batch(value) for name, value in inputs.items()}
        peepholes = {"P": P} if op_type == "LSTM" else {}
        data = inputs.pop("X")
        results = as_list(
            g.op(op_type, data, W, R, B, sequence_lens, **inputs, **peepholes, **attributes, outputs=outputs)
        )
        if not layout:
            return results
        # Y is [steps, directions, batch, hidden], and with the batch first [batch, steps, directions,
        # hidden].
        sequence, *final_states = results
        front = g.op("Transpose", sequence, perm=[2, 0, 1, 3])
        return [front, *(g.op("Transpose", value, perm=[1, 0, 2]) for value in final_states)]


for _op_type in ("RNN", "GRU", "LSTM"):
    _register(_op_type)
