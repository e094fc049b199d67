"""ONNX pass: rewrites products of dequantized matrices so that onnxruntime uses its integer kernels.

onnxruntime turns a product without bias into MatMulIntegerToFloat or QGemm, but a product with bias into
QGemm only if the sum is quantized again. It first fuses MatMul and the addition of a one-dimensional bias
into a Gemm, with reshaped tensors if they have more than two dimensions. The rules prevent that:

1. `Add(MatMul(a, w), bias)` of three dimensions or more gets a bias of shape [1, N].
2. Of two dimensions it becomes `Add(Gemm(a, w), bias)`, and so does `Gemm(a, w, bias)`, if the opset has Gemm
   without a bias.
3. A sum that is quantized again with a constant scale is not changed, even with a Relu or Clip in between.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration import Names, schemas
from ....registration.origins import inherit
from ..node_pass import NodePass, producer_of, replace_by_value
from ..pass_order import Run

_SHAPE = "row_shape"


class SplitQuantizedProducts(NodePass):
    """Separates the bias from a product of dequantized matrices."""

    runs = (Run("basic", after={"WriteRowGemm": "It takes Gemms apart, which must not be written again."}),)
    op_types = ("Add", "Gemm")
    _main: ir.Graph

    def begin(self, model: ir.Model) -> bool:
        """Keep the main graph, whose initializers get the shapes of biases."""
        self._main = model.graph
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Separate the bias of a product."""
        return (_split_sum if node.op_type == "Add" else _split_gemm)(self._main, node)


def _is_dequantized(value: ir.Value | None) -> bool:
    transposed = producer_of(value, "Transpose")
    return producer_of(transposed.inputs[0] if transposed else value, "DequantizeLinear") is not None


def _is_bias(value: ir.Value | None) -> bool:
    return value is not None and value.is_initializer() and value.shape is not None and len(value.shape) == 1


def _is_quantized(value: ir.Value) -> bool:
    readers = [reader for reader, _ in value.uses() if reader.op_type == "QuantizeLinear"]
    return any(reader.inputs[1] is not None and reader.inputs[1].is_initializer() for reader in readers)


def _is_quantized_soon(value: ir.Value) -> bool:
    # onnxruntime fuses these into the quantization.
    between = [reader for reader, _ in value.uses() if reader.op_type in ("Relu", "Clip")]
    return _is_quantized(value) or any(_is_quantized(reader.outputs[0]) for reader in between)


def _row(main: ir.Graph, before: ir.Node, bias: ir.Value) -> ir.Value:
    """The bias reshaped to [1, N]."""
    shape = main.meta.get(_SHAPE)
    if shape is None or not shape.is_initializer():
        names, name = Names.of(main), _SHAPE
        while names.is_taken(name):
            name += "_"
        tensor = ir.Tensor(np.array([1, -1], dtype=np.int64), name=name)
        shape = ir.Value(
            name=name, shape=ir.Shape([2]), type=ir.TensorType(ir.DataType.INT64), const_value=tensor
        )
        main.initializers.add(shape)
        main.meta[_SHAPE] = shape
    node = _insert_node(before, "Reshape", [bias, shape])
    node.outputs[0].shape = ir.Shape([1, *bias.shape]) if bias.shape is not None else None
    return node.outputs[0]


def _insert_node(before: ir.Node, op_type: str, inputs: list[ir.Value], **attributes: int | float) -> ir.Node:
    node = ir.node(
        op_type, inputs, attributes, num_outputs=1, name=f"{before.name or before.outputs[0].name}/{op_type}"
    )
    node.outputs[0].name = f"{node.name}_output_0"
    node.outputs[0].type = ir.TensorType(inputs[0].dtype) if inputs[0].dtype is not None else None
    inherit(node, before)
    assert before.graph is not None
    before.graph.insert_before(before, node)
    return node


def _split_sum(main: ir.Graph, node: ir.Node) -> bool:
    for index in (0, 1):
        product, bias = producer_of(node.inputs[index], "MatMul"), node.inputs[1 - index]
        if product is None or bias is None or not _is_bias(bias) or _is_quantized(node.outputs[0]):
            continue
        shape = product.outputs[0].shape or node.outputs[0].shape
        if shape is None or len(shape) < 2 or not all(map(_is_dequantized, product.inputs)):
            continue
        if len(shape) > 2:
            # onnxruntime's fusion into Gemm looks for a bias of one dimension.
            node.replace_input_with(1 - index, _row(main, node, bias))
            return True
        if _is_quantized_soon(node.outputs[0]) or not _goes_without_bias(main):
            return False
        a, b = product.inputs
        assert a is not None
        assert b is not None
        node.replace_input_with(index, _gemm(product, a, b, {}))
        if not product.outputs[0].uses() and not product.outputs[0].is_graph_output():
            assert product.graph is not None
            product.graph.remove(product, safe=True)
        return True
    return False


def _goes_without_bias(main: ir.Graph) -> bool:
    schema = schemas.operator_schema("Gemm", main.opset_imports[""])
    return schema is not None and schema.minimum_inputs == 2


def _gemm(beside: ir.Node, a: ir.Value, b: ir.Value, attributes: dict[str, int | float]) -> ir.Value:
    node = _insert_node(beside, "Gemm", [a, b], **attributes)
    node.outputs[0].shape = beside.outputs[0].shape
    return node.outputs[0]


def _split_gemm(main: ir.Graph, node: ir.Node) -> bool:
    if len(node.inputs) < 3 or _is_quantized_soon(node.outputs[0]) or not _goes_without_bias(main):
        return False
    a, b, bias = node.inputs
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    if a is None or b is None or bias is None or attributes.pop("beta", 1.0) != 1.0:
        return False
    if not (_is_dequantized(a) and _is_dequantized(b) and _is_bias(bias)):
        return False
    result = _insert_node(node, "Add", [_gemm(node, a, b, attributes), bias]).outputs[0]
    result.shape = node.outputs[0].shape
    replace_by_value(node, result)
    return True
