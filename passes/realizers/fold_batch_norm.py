"""Folds batch normalization into the convolution or matrix product before it.

1. The normalization is one for inference, with constant parameters, of the result of Conv, ConvTranspose or
   Gemm.
2. Nothing else reads that result, nor its weight; weight and bias are constant. Groups, transposed
   weights and a missing bias are taken into account.
3. The new weight and bias are computed when they are needed, in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from .rewriting import (
    Rewriter,
    attribute,
    constant_of,
    graphs_of,
    is_onnx,
    only_reader,
    remove_unused,
)

_Array = np.ndarray


class FoldBatchNorm(ir.passes.InPlacePass):
    """Removes BatchNormalization after Conv, ConvTranspose and Gemm."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        rewriter = Rewriter(model)
        modified = False
        for graph in graphs_of(model):
            for node in list(graph):
                if is_onnx(node, "BatchNormalization"):
                    modified |= _fold(rewriter, node)
        if modified:
            remove_unused(model)
        return ir.passes.PassResult(model, modified)


def _fold(rewriter: Rewriter, node: ir.Node) -> bool:
    value = node.inputs[0]
    layer = None if value is None else value.producer()
    if layer is None or not is_onnx(layer, *_SCALED) or layer.graph is not node.graph:
        return False
    if only_reader(layer.outputs[0]) is not node or not _is_plain(node):
        return False
    parameters = [constant_of(value) for value in node.inputs[1:5]]
    weight = layer.inputs[1]
    tensor = constant_of(weight)
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    offset = constant_of(bias)
    if weight is None or tensor is None or len(weight.uses()) > 1 or weight.is_graph_output():
        return False
    if any(each is None for each in parameters) or (bias is not None and offset is None):
        return False
    scale, shift, mean, variance = (each for each in parameters if each is not None)
    if scale.shape.numpy() != (_channels(layer, tensor),):
        return False
    epsilon = attribute(node, "epsilon", 1e-5)
    factor = attribute(layer, "beta", 1.0) if layer.op_type == "Gemm" else 1.0

    def scaling() -> _Array:
        return _wide(scale) / np.sqrt(_wide(variance) + epsilon)

    def new_weight() -> _Array:
        return _SCALED[layer.op_type](layer, _wide(tensor), scaling())

    def new_bias() -> _Array:
        old = 0.0 if offset is None else factor * _wide(offset)
        return (old - _wide(mean)) * scaling() + _wide(shift)

    size = scale.shape.numpy()
    shape = size if offset is None else np.broadcast_shapes(offset.shape.numpy(), size)
    stem = weight.name or "weight"
    weights = rewriter.initializer(f"{stem}_folded", _lazy(new_weight, tensor.dtype, tensor.shape.numpy()))
    biases = rewriter.initializer(
        f"{bias.name}_folded" if bias is not None else f"{stem}_bias", _lazy(new_bias, tensor.dtype, shape)
    )
    layer.replace_input_with(1, weights)
    if len(layer.inputs) < 3:
        layer.resize_inputs(3)
    layer.replace_input_with(2, biases)
    layer.attributes.pop("beta", None)
    rewriter.replace(node, [layer.outputs[0], *[None] * (len(node.outputs) - 1)])
    return True


def _is_plain(node: ir.Node) -> bool:
    """Whether a normalization is that of inference, per channel."""
    if attribute(node, "training_mode", 0) or not attribute(node, "spatial", 1):
        return False
    return not any(value.uses() or value.is_graph_output() for value in node.outputs[1:])


def _channels(layer: ir.Node, weight: ir.TensorProtocol) -> int:
    shape = weight.shape.numpy()
    if layer.op_type == "Conv":
        return shape[0]
    if layer.op_type == "ConvTranspose":
        return shape[1] * int(attribute(layer, "group", 1))
    return shape[0] if attribute(layer, "transB", 0) else shape[1]


def _convolution(layer: ir.Node, weight: _Array, scale: _Array) -> _Array:
    return weight * scale.reshape(-1, *[1] * (weight.ndim - 1))


def _transposed_convolution(layer: ir.Node, weight: _Array, scale: _Array) -> _Array:
    """The input channels are those of the groups in order; each group has its own output channels."""
    groups = attribute(layer, "group", 1)
    ones = [1] * (weight.ndim - 2)
    scaled = weight.reshape(groups, -1, *weight.shape[1:]) * scale.reshape(groups, 1, -1, *ones)
    return scaled.reshape(weight.shape)


def _product(layer: ir.Node, weight: _Array, scale: _Array) -> _Array:
    return weight * (scale[:, None] if attribute(layer, "transB", 0) else scale)


_SCALED: dict[str, Callable[[ir.Node, _Array, _Array], _Array]] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm": _product,
}


def _wide(tensor: ir.TensorProtocol) -> _Array:
    return tensor.numpy().astype(np.float64)


def _lazy(compute: Callable[[], _Array], dtype: ir.DataType, shape: Sequence[int]) -> ir.TensorProtocol:
    return ir.LazyTensor(
        lambda: ir.Tensor(compute().astype(dtype.numpy())), dtype=dtype, shape=ir.Shape(shape)
    )
