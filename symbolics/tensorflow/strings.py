"""Strings, as far as ONNX has operators for them, which is from opset 20 on."""

from __future__ import annotations

import numpy as np

from ...registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic("tf::StringJoin")
def string_join(g: GraphContext, inputs: list[Value], separator: str = "") -> Value:
    result = inputs[0]
    between = g.constant(np.array(separator, dtype=object))
    for item in inputs[1:]:
        result = g.op("StringConcat", result, between) if separator else result
        result = g.op("StringConcat", result, item)
    return result


@onnx_symbolic("tf::StaticRegexFullMatch")
def static_regex_full_match(g: GraphContext, input: Value, pattern: str) -> Value:
    return g.op("RegexFullMatch", input, pattern=pattern)


@onnx_symbolic("tf::RegexFullMatch")
def regex_full_match(g: GraphContext, input: Value, pattern: Value) -> Value:
    """The pattern must be constant."""
    found = g.constant_value(pattern)
    if found is None or found.size != 1:
        raise g.refuse("'pattern' is computed, and must be known")
    text = found.reshape(-1)[0]
    return g.op("RegexFullMatch", input, pattern=text.decode() if isinstance(text, bytes) else str(text))
