"""String operators, which ONNX supports from opset 20 on."""

from __future__ import annotations

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ._common import concatenated, shaped


@onnx_symbolic("tf::StringJoin")
def string_join(g: GraphContext, inputs: list[Value], separator: str = "") -> Value:
    result = inputs[0]
    between = g.constant(np.array(separator, dtype=object))
    for item in inputs[1:]:
        result = concatenated(g, result, between) if separator else result
        result = concatenated(g, result, item)
    return result


@onnx_symbolic("tf::StaticRegexFullMatch")
def static_regex_full_match(g: GraphContext, input: Value, pattern: str) -> Value:
    return shaped(g.op("RegexFullMatch", input, pattern=pattern), g.shape(input))


@onnx_symbolic("tf::RegexFullMatch")
def regex_full_match(g: GraphContext, input: Value, pattern: Value) -> Value:
    """The pattern must be constant."""
    found = g.constant_value(pattern)
    if found is None or found.size != 1:
        raise g.refuse("'pattern' must be constant")
    text = found.reshape(-1)[0]
    return g.call("tf::StaticRegexFullMatch", input, text.decode() if isinstance(text, bytes) else str(text))


@onnx_symbolic("tf::StringToNumber")
def string_to_number(g: GraphContext, string_tensor: Value, out_type: DataType = DataType.FLOAT) -> Value:
    return g.cast(string_tensor, out_type)
