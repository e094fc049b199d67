"""Loop below opset 11, which needs a value that it carries; Scan below 9, which has a batch dimension."""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ...registration.functions.results import as_list
from .support import below


@below("Loop", 11, any_data=True)
def loop(
    g: GraphContext,
    body: ir.Graph,
    M: Value | None = None,
    cond: Value | None = None,
    v_initial: list[Value] | None = None,
    outputs: int = 1,
) -> Sequence[Value]:
    """Carry a number that nothing reads, if the loop carries nothing."""
    if v_initial:
        return as_list(g.op("Loop", M, cond, *v_initial, body=body, outputs=outputs))
    number = g.constant(0, DataType.INT64)
    body.inputs.append(
        ir.Value(name=g.construction.names.unique("unused"), type=number.type, shape=number.shape)
    )
    scanned = list(body.outputs)[1:]
    # A body returns its carried values before its scan outputs.
    del body.outputs[1:]
    g.extend(body, lambda *formals: [formals[-1]])
    body.outputs.extend(scanned)
    return as_list(g.op("Loop", M, cond, number, body=body, outputs=outputs + 1))[1:]


@onnx_symbolic("before9::Scan")
def scan_8(
    g: GraphContext,
    initial_state_and_scan_inputs: list[Value],
    body: Any,
    num_scan_inputs: int,
    sequence_lens: Value | None = None,
    directions: list[int] | None = None,
    outputs: int = 1,
) -> list[Value]:
    """Below 9 Scan has a batch dimension and runs once for each element of the batch."""
    if sequence_lens is not None:
        raise g.refuse("sequences of different lengths are not supported")
    size = g.size(initial_state_and_scan_inputs[0], 0)
    # Each sequence of the batch runs by itself, so only one can be one Scan.
    if size != 1:
        raise g.refuse("a batch of more than one sequence is not supported")
    single = [g.op("Squeeze", value, axes=[0]) for value in initial_state_and_scan_inputs]
    results = g.op(
        "Scan",
        *single,
        body=body,
        num_scan_inputs=num_scan_inputs,
        scan_input_directions=directions,
        outputs=outputs,
    )
    return [g.op("Unsqueeze", value, axes=[0]) for value in as_list(results)]
