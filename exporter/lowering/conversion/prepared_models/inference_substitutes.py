"""Replaces operators that onnx's inference does not know by ONNX operators with the same types and shapes.

`onnxruntime.quantization` writes operators of onnxruntime for those that have no quantized form in ONNX, and
onnx infers nothing for the scalers of `ai.onnx.ml`. In the message for inference, each becomes an operator of
ONNX whose results have the same types and shapes. Below opset 22 onnx's inference of pooling with `ceil_mode`
counts windows that begin behind the input, which no runtime does; the pooling gets pads instead.
"""

from __future__ import annotations

import onnx

from .....registration.inference.window_counts import WINDOWS, end_padding
from ....files.reading.subgraphs import with_subgraphs

_SUBSTITUTES: dict[str, dict[str, tuple[str, slice]]] = {
    "ai.onnx.ml": {"Imputer": ("Identity", slice(1)), "Scaler": ("Cast", slice(1))},
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
"""By domain and operator, the ONNX operator with the same types and shapes, and the inputs to keep."""
_ATTRIBUTES: dict[str, list[onnx.AttributeProto]] = {
    "Add": [],
    # Scaler gives FLOAT for inputs of any type.
    "Cast": [onnx.helper.make_attribute("to", onnx.TensorProto.FLOAT)],
    "Identity": [],
    "Mul": [],
}
"""By substitute, the attributes that replace the node's."""

_LARGEST_WINDOW = 2**30
"""The largest kernel, stride, dilation or pad to compute with, so that the padding fits into an int64."""

_COLUMNS = {
    "FeatureVectorizer": "inputdimensions",
    "LinearRegressor": "targets",
    "Normalizer": "",
    "SVMRegressor": "",
    "TreeEnsembleRegressor": "n_targets",
}
"""By operator of `ai.onnx.ml`, the attribute with the number of columns of its result, 1 by default."""


def replace_unknown_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace the operators that onnx does not know, in place, in a message used only for inference."""
    function_names = {(function.domain, function.name) for function in model.functions}
    for graph in with_subgraphs(model.graph):
        declared_names = {info.name for info in (*graph.value_info, *graph.output)}
        for node in graph.node:
            if node.domain == "ai.onnx.ml" and node.op_type in _COLUMNS:
                if node.output[0] not in declared_names:
                    graph.value_info.append(_rows_of_floats(node))
                continue
            substitute = _SUBSTITUTES.get(node.domain, {}).get(node.op_type)
            if substitute is None or (node.domain, node.op_type) in function_names:
                round_down_windows(node)
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
            round_down_windows(node)
    return model


def round_down_windows(node: onnx.NodeProto) -> bool:
    """Replace `ceil_mode` of a pooling by pads that give the same number of windows when rounding down.

    Returns:
        Whether the node is such a pooling.
    """
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if node.domain not in ("", "ai.onnx") or node.op_type not in WINDOWS or "kernel_shape" not in attributes:
        return False
    no_attribute = onnx.AttributeProto()
    auto_pad = attributes.get("auto_pad", no_attribute).s or b"NOTSET"
    if not attributes.get("ceil_mode", no_attribute).i or auto_pad.startswith(b"SAME"):
        return False
    kernel, strides, dilations, pads = (
        list(attributes.get(name, no_attribute).ints)
        for name in ("kernel_shape", "strides", "dilations", "pads")
    )
    count = len(kernel)
    strides, dilations = strides or [1] * count, dilations or [1] * count
    pads = pads if pads and auto_pad == b"NOTSET" else [0] * (2 * count)
    is_malformed = not count == len(strides) == len(dilations) == len(pads) / 2
    if is_malformed or max((*kernel, *strides, *dilations, *pads), default=0) > _LARGEST_WINDOW:
        return False
    pads[count:] = map(end_padding, kernel, strides, pads[count:], dilations)
    for name in ("auto_pad", "ceil_mode", "pads"):
        if name in attributes:
            node.attribute.remove(attributes[name])
    node.attribute.append(onnx.helper.make_attribute("pads", pads))
    return True


def _rows_of_floats(node: onnx.NodeProto) -> onnx.ValueInfoProto:
    """The type and the shape of the result [rows, columns] of such an operator."""
    columns = 1
    for attribute in node.attribute:
        if attribute.name == _COLUMNS[node.op_type]:
            columns = sum(attribute.ints) if attribute.ints else attribute.i
    # No shape: with known equal sizes, onnxruntime's Normalizer overwrites its input and loses signs.
    shape = None if node.op_type == "Normalizer" else [None, columns]
    return onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, shape)
