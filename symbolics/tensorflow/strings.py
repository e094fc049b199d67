"""String operators, which ONNX supports from opset 20 on."""

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ._common import concatenate_strings, set_shape


@onnx_symbolic("tf::StringJoin")
def string_join(g: GraphContext, inputs: list[Value], separator: str = "") -> Value:
    result = inputs[0]
    separator_value = g.constant(np.array(separator, dtype=object))
    for item in inputs[1:]:
        result = concatenate_strings(g, result, separator_value) if separator else result
        result = concatenate_strings(g, result, item)
    return result


@onnx_symbolic("tf::StaticRegexFullMatch")
def static_regex_full_match(g: GraphContext, input: Value, pattern: str) -> Value:
    return set_shape(g.op("RegexFullMatch", input, pattern=pattern), g.shape(input))


@onnx_symbolic("tf::RegexFullMatch")
def regex_full_match(g: GraphContext, input: Value, pattern: Value) -> Value:
    """The pattern must be constant."""
    pattern_array = g.constant_value(pattern)
    if pattern_array is None or pattern_array.size != 1:
        raise g.refuse("'pattern' must be constant")
    text = pattern_array.reshape(-1)[0]
    return g.call("tf::StaticRegexFullMatch", input, text.decode() if isinstance(text, bytes) else str(text))


@onnx_symbolic("tf::StringToNumber")
def string_to_number(g: GraphContext, string_tensor: Value, out_type: DataType = DataType.FLOAT) -> Value:
    return g.cast(string_tensor, out_type)
