"""Infers the output shapes of a new node with onnx's shape inference, for sources without shapes."""

from __future__ import annotations

import onnx
import onnx.shape_inference
import onnx_ir as ir
from onnx_ir import serde

from ..errors import UnsupportedError
from .constant_integers import MAXIMUM_RANK
from .derived_sizes import broadcast
from .size_vectors import elements

_MAXIMUM_DATA = 64
"""The most elements of a constant that onnx's inference gets: larger ones are not shapes, sizes or axes."""
_UNSETTLED = frozenset(
    "Slice Pad Tile Split TopK Upsample Resize ConstantOfShape Range Reshape Expand".split()
)
"""Operators for which emission often infers only the rank."""
_CHECKED = frozenset(
    "BatchNormalization CumSum Gemm GroupNormalization Hardmax InstanceNormalization LayerNormalization "
    "LogSoftmax LpNormalization PRelu RMSNormalization ScatterElements ScatterND Softmax Trilu".split()
)
"""Operators that demand ranks or sizes of their inputs which emission does not check."""


def complete_shapes(node: ir.Node, version: int) -> None:
    """Infer the shapes of a node's outputs that have none or only a rank.

    Args:
        version: the opset of the graph.

    Raises:
        UnsupportedError: the node is not valid for its inputs.
    """
    outputs = list(node.outputs)
    shapes = [value.shape for value in outputs]
    known = all(shape is not None for shape in shapes)
    settled = node.op_type not in _UNSETTLED or all(
        shape is not None and shape.is_static() for shape in shapes
    )
    if known and settled and node.op_type not in _CHECKED:
        return
    if any(map(_has_graph, node.attributes.values())):
        return
    given = [value for value in node.inputs if value is not None]
    if any(value.dtype is None or not isinstance(value.type, ir.TensorType) for value in given):
        return
    types = {str(value.name): _type(value) for value in given}
    data = {
        str(value.name): serde.serialize_tensor(value.const_value)
        for value in given
        if value.const_value is not None and value.const_value.size <= _MAXIMUM_DATA
    }
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return
    try:
        inferred = onnx.shape_inference.infer_node_outputs(schema, serde.serialize_node(node), types, data)
    except onnx.shape_inference.InferenceError as error:
        reason = str(error).split("]", 1)[-1].strip()
        raise UnsupportedError(f"ONNX operator {node.op_type} does not take its inputs: {reason}") from None
    for value in outputs:
        found = inferred.get(str(value.name))
        if found is not None:
            _complete(value, found)
    _apply_sizes(node)


_SIZE_OPERATORS = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1}
"""Operators with an input that lists the sizes of the result, and the position of that input."""


def _apply_sizes(node: ir.Node) -> None:
    """Set the known sizes of an output whose shape is a computed list of sizes, as for Reshape."""
    position = _SIZE_OPERATORS.get(node.op_type)
    sizes = None if position is None else elements(node.inputs[position])
    result = node.outputs[0].shape
    if sizes is None or result is None or result.is_static():
        return
    if node.op_type == "Expand":
        data = node.inputs[0]
        if data is None or data.shape is None:
            return
        sizes = broadcast([data.shape.dims, tuple(sizes)])
    if len(sizes) != len(result):
        return
    known = [
        size if isinstance(own, ir.SymbolicDim) and own.value is None and size not in (0, -1) else own
        for own, size in zip(result, sizes, strict=True)
    ]
    node.outputs[0].shape = ir.Shape(known)


def _has_graph(attribute: ir.Attr) -> bool:
    return attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _type(value: ir.Value) -> onnx.TypeProto:
    shape = value.shape
    sizes = None if shape is None else [size if isinstance(size, int) else size.value for size in shape]
    return onnx.helper.make_tensor_type_proto(int(value.dtype or 0), sizes)


def _complete(value: ir.Value, found: onnx.TypeProto) -> None:
    if not found.HasField("tensor_type") or not found.tensor_type.HasField("shape"):
        return
    dims = found.tensor_type.shape.dim
    if len(dims) > MAXIMUM_RANK:
        return
    sizes = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims]
    own = value.shape
    if own is not None and len(own) == len(sizes):
        sizes = [mine if size is None else size for mine, size in zip(own, sizes, strict=True)]
    value.shape = ir.Shape(sizes)
