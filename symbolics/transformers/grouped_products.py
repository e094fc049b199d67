"""Matrix products of mixture-of-experts layers from transformers/integrations/moe.py."""

from ...registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic("transformers::grouped_mm_fallback")
def grouped_mm_fallback(g: GraphContext, input: Value, weight: Value, offs: Value) -> Value:
    return g.call("composed::grouped_rows", input=input, weight=weight, offs=offs)
