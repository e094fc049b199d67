"""Loop below opset 11, which needs a value that it carries."""

from collections.abc import Sequence

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value
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
