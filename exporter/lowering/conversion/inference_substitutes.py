"""Shows onnx's inference the types and shapes of operators that it does not know.

`onnxruntime.quantization` writes operators of onnxruntime for those that have no quantized form in ONNX, and
onnx infers nothing for the scalers of `ai.onnx.ml`. In the message for inference, each becomes an operator of
ONNX whose results have the same types and shapes.
"""

from __future__ import annotations

import onnx

from ...files.reading.subgraphs import with_subgraphs

_SUBSTITUTES: dict[str, dict[str, tuple[str, slice]]] = {
    "ai.onnx.ml": {
        "Imputer": ("Identity", slice(1)),
        "Normalizer": ("Cast", slice(1)),
        "Scaler": ("Cast", slice(1)),
    },
    "com.microsoft": {
        "QLinearAdd": ("Add", slice(0, 6, 3)),
        "QLinearMul": ("Mul", slice(0, 6, 3)),
        "QLinearSigmoid": ("Identity", slice(1)),
        "QLinearLeakyRelu": ("Identity", slice(1)),
        "QLinearSoftmax": ("Identity", slice(1)),
        "QLinearAveragePool": ("AveragePool", slice(1)),
        "QLinearGlobalAveragePool": ("GlobalAveragePool", slice(1)),
        "QLinearConcat": ("Concat", slice(2, None, 3)),
        "QuantizeLinear": ("QuantizeLinear", slice(3)),
        "DequantizeLinear": ("DequantizeLinear", slice(3)),
    },
}
"""The operator with the same results in ONNX, and which inputs it reads, by domain and operator."""
_ATTRIBUTES: dict[str, list[onnx.AttributeProto]] = {
    "Add": [],
    # Scaler and Normalizer give FLOAT for inputs of any type.
    "Cast": [onnx.helper.make_attribute("to", onnx.TensorProto.FLOAT)],
    "Identity": [],
    "Mul": [],
}
"""The attributes of substitutes that do not have those of the node."""


def with_known_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace the operators that onnx does not know, in a message that is only used for inference."""
    function_names = {(function.domain, function.name) for function in model.functions}
    for graph in with_subgraphs(model.graph):
        for node in graph.node:
            substitute = _SUBSTITUTES.get(node.domain, {}).get(node.op_type)
            if substitute is None or (node.domain, node.op_type) in function_names:
                continue
            # The ONNX operator has its channels at axis 1, so its inferred shape would be wrong.
            if any(attribute.name == "channels_last" and attribute.i for attribute in node.attribute):
                continue
            op_type, inputs = substitute[0], list(node.input)[substitute[1]]
            node.domain, node.op_type = "", op_type
            del node.input[:]
            node.input.extend(inputs)
            if op_type in _ATTRIBUTES:
                del node.attribute[:]
                node.attribute.extend(_ATTRIBUTES[op_type])
    return model
