"""Gives inputs that are encoded images (PNG, JPEG) as vectors of bytes, not as strings.

TensorFlow's decoders read a string, ONNX's ImageDecoder a vector of bytes, and no operator of ONNX makes one
from the other. An input that only decoders read becomes a vector of bytes.
"""

import onnx_ir as ir

from .....registration.warning import warn

_DECODERS = frozenset({"DecodePng", "DecodeJpeg", "DecodeImage", "DecodeBmp"})


def take_bytes(graph: ir.Graph) -> None:
    """Turn the inputs that are one string, and that only decoders of images read, into vectors of bytes."""
    for value in graph.inputs:
        if value.dtype != ir.DataType.STRING or value.shape is None or len(value.shape):
            continue
        aliases = _aliases_for_decoders(value)
        if not aliases:
            continue
        for alias in aliases:
            alias.type, alias.shape = ir.TensorType(ir.DataType.UINT8), ir.Shape([None])
        warn(
            f"placeholder '{value.name}' is an encoded image: its input is a vector of the bytes of the file "
            "(UINT8), not a string"
        )


def _aliases_for_decoders(value: ir.Value) -> list[ir.Value]:
    """The value and its copies; empty if another operator than a decoder reads one of them."""
    aliases, position = [value], 0
    while position < len(aliases):
        alias = aliases[position]
        position += 1
        if alias.is_graph_output() or not alias.uses():
            return []
        for node, _ in alias.uses():
            if node.op_type == "Identity":
                aliases.append(node.outputs[0])
            elif node.op_type not in _DECODERS:
                return []
    return aliases
