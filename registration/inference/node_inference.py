"""Infers the output shapes of a new node with onnx's shape inference, for sources without shapes."""

from __future__ import annotations

import onnx
import onnx.shape_inference
import onnx_ir as ir
from onnx_ir import serde

from ..errors import UnsupportedError
from ..size_algebra.dimensions import broadcast
from .constant_integers import MAXIMUM_RANK
from .size_vectors import elements

_MAXIMUM_DATA = 64
"""The most elements of a constant that onnx's inference gets: larger ones are not shapes, sizes or axes."""
_RANK_ONLY = frozenset(
    "Slice Pad Tile Split TopK Upsample Resize ConstantOfShape Range Reshape Expand".split()
)
"""Operators for which emission often infers only the rank."""
_CHECKED = frozenset(
    "BatchNormalization CumProd CumSum Gemm GroupNormalization Hardmax InstanceNormalization "
    "LayerNormalization LogSoftmax LpNormalization PRelu RMSNormalization ScatterElements ScatterND "
    "Softmax Trilu".split()
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
    has_shapes = all(shape is not None for shape in shapes)
    has_sizes = node.op_type not in _RANK_ONLY or all(
        shape is not None and shape.is_static() for shape in shapes
    )
    if has_shapes and has_sizes and node.op_type not in _CHECKED:
        return
    if any(map(_has_graph, node.attributes.values())):
        return
    inputs = [value for value in node.inputs if value is not None]
    if any(value.dtype is None or not isinstance(value.type, ir.TensorType) for value in inputs):
        return
    types = {str(value.name): _type(value) for value in inputs}
    data = {
        str(value.name): serde.serialize_tensor(value.const_value)
        for value in inputs
        if value.const_value is not None and value.const_value.size <= _MAXIMUM_DATA
    }
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return
    try:
        inferred = onnx.shape_inference.infer_node_outputs(schema, serde.serialize_node(node), types, data)
    except onnx.shape_inference.InferenceError as error:
        # onnx begins its messages with the class of the error, in brackets.
        reason = str(error).split("]", 1)[-1].strip()
        raise UnsupportedError(f"ONNX operator {node.op_type} does not take its inputs: {reason}") from None
    for value in outputs:
        inferred_type = inferred.get(str(value.name))
        if inferred_type is not None:
            _complete(value, inferred_type)
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
        sizes = [*broadcast([data.shape.dims, tuple(sizes)])]
    if len(sizes) != len(result):
        return
    dims = [
        # 0 and -1 stand for sizes that follow from the operand.
        size if isinstance(dim, ir.SymbolicDim) and dim.value is None and size not in (0, -1) else dim
        for dim, size in zip(result, sizes, strict=True)
    ]
    node.outputs[0].shape = ir.Shape(dims)


def _has_graph(attribute: ir.Attr) -> bool:
    return attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _type(value: ir.Value) -> onnx.TypeProto:
    shape = value.shape
    sizes = None if shape is None else [size if isinstance(size, int) else size.value for size in shape]
    return onnx.helper.make_tensor_type_proto(int(value.dtype or 0), sizes)


def _complete(value: ir.Value, inferred_type: onnx.TypeProto) -> None:
    if not inferred_type.HasField("tensor_type") or not inferred_type.tensor_type.HasField("shape"):
        return
    dims = inferred_type.tensor_type.shape.dim
    if len(dims) > MAXIMUM_RANK:
        return
    # onnx's inference wraps around beyond int64: such a size is unknown.
    sizes = [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None
        for dim in dims
    ]
    shape = value.shape
    if shape is not None and len(shape) == len(sizes):
        sizes = [
            present_size if size is None else size for present_size, size in zip(shape, sizes, strict=True)
        ]
    value.shape = ir.Shape(sizes)
