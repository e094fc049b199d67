"""Splits fused operators of onnxruntime into an operator and its activation, and fuses them.

| fused, in `com.microsoft` | is |
|---|---|
| FusedConv | Conv, the addition of a fourth input if there is one, activation |
| FusedGemm | Gemm, activation |
| FusedMatMulActivation | FusedMatMul, activation |
| FusedMatMul | Transpose of dimensions, MatMul, product with `alpha` |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration import GraphContext, GraphError
from ....registration.arguments import graphs_of
from ...onnx_graph.simplification.unused_nodes import RemoveUnused
from ..rewriting import Rewriter, attribute, constant_of, is_onnx, only_reader, title

DOMAIN = "com.microsoft"
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Softplus": (),
    "Softsign": (),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}
"""The activations and their attributes, in the order of `activation_params` of FusedConv."""
_DEFAULTS = {
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "ThresholdedRelu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
}
_OF_CONV = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid")
_OF_GEMM = tuple(_PARAMETERS)
_ACTIVATION_ATTRIBUTES = (
    "activation",
    "activation_params",
    "activation_alpha",
    "activation_beta",
    "activation_gamma",
    "activation_axis",
)
_FUSED = ("FusedConv", "FusedGemm", "FusedMatMulActivation", "FusedMatMul")


class SplitActivations(ir.passes.InPlacePass):
    """Writes fused operators as ONNX operators."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed.

        Raises:
            GraphError: an activation is unknown, or the rank of a matrix is.
        """
        rewriter = Rewriter(model)
        modified = False
        for graph in graphs_of(model.graph):
            for node in list(graph):
                if node.domain == DOMAIN and node.op_type in _FUSED:
                    with rewriter.before(node) as g:
                        result = _split(g, node)
                        result.type, result.shape = node.outputs[0].type, node.outputs[0].shape
                    rewriter.replace(node, [result])
                    modified = True
        # An engine may refuse a model that imports a domain unknown to it.
        if modified and not any(n.domain == DOMAIN for graph in graphs_of(model.graph) for n in graph):
            model.graph.opset_imports.pop(DOMAIN, None)
        return ir.passes.PassResult(model, modified)


class FuseActivations(ir.passes.InPlacePass):
    """Writes Conv and Gemm of 32-bit floats with the activation behind them as FusedConv and FusedGemm."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        rewriter = Rewriter(model)
        modified = False
        for graph in graphs_of(model.graph):
            for node in list(graph):
                modified |= _fuse(rewriter, node)
        if modified:
            RemoveUnused()(model)
        return ir.passes.PassResult(model, modified)


def _split(g: GraphContext, node: ir.Node) -> ir.Value:
    if node.op_type.startswith("FusedMatMul"):
        result = _matrix_product(g, node)
    else:
        attributes = {
            name: value.value for name, value in node.attributes.items() if name not in _ACTIVATION_ATTRIBUTES
        }
        inputs = list(node.inputs)
        added = inputs[3] if node.op_type == "FusedConv" and len(inputs) > 3 else None
        result = g.op("Conv" if node.op_type == "FusedConv" else "Gemm", *inputs[:3], **attributes)
        if added is not None:
            result = g.op("Add", result, added)
    name = attribute(node, "activation", "")
    if not name:
        return result
    if node.op_type == "FusedConv":
        values = attribute(node, "activation_params") or []
        if name == "Clip":
            return g.op("Clip", result, min=float(values[0]), max=float(values[1]))
        parameters = dict(zip(_PARAMETERS.get(name, ()), values, strict=False))
    else:
        parameters = {
            parameter: attribute(node, f"activation_{parameter}") for parameter in _PARAMETERS.get(name, ())
        }
    if name not in _PARAMETERS:
        raise GraphError(
            f"{title(node)} has the activation '{name}', which split-activations does not support"
        )
    activation: ir.Value = g.op(
        name, result, **{key: value for key, value in parameters.items() if value is not None}
    )
    return activation


def _matrix_product(g: GraphContext, node: ir.Node) -> ir.Value:
    operands = []
    for value, letter in zip(node.inputs, "AB", strict=True):
        if attribute(node, f"transBatch{letter}", 0):
            raise GraphError(
                f"{title(node)} has the attribute 'transBatch{letter}', which split-activations does not "
                "support"
            )
        if value is not None and attribute(node, f"trans{letter}", 0):
            rank = g.rank(value)
            if rank is None:
                raise GraphError(f"the rank of '{value.name}' is unknown: its transpose cannot be written")
            if rank > 1:
                value = g.op("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])
        operands.append(value)
    result = g.op("MatMul", *operands)
    factor = attribute(node, "alpha", 1.0)
    return result if factor == 1.0 else g.op("Mul", result, factor)


def _fuse(rewriter: Rewriter, node: ir.Node) -> bool:
    """Fuse an activation with the operator that computes its input."""
    value = node.inputs[0] if node.inputs else None
    layer = None if value is None else value.producer()
    if value is None or layer is None or not is_onnx(layer, "Conv", "Gemm") or layer.graph is not node.graph:
        return False
    # onnxruntime has kernels of the fused operators for FLOAT only.
    if only_reader(value) is not node or value.dtype != ir.DataType.FLOAT:
        return False
    activation = _activation(rewriter, node, layer.op_type)
    if activation is None:
        return False
    layer_attributes: dict[str, Any] = {
        name: attribute_value.value for name, attribute_value in layer.attributes.items()
    }
    with rewriter.before(node, layer.name) as g:
        result = g.op(f"{DOMAIN}::Fused{layer.op_type}", *layer.inputs, **layer_attributes, **activation)
    rewriter.replace(node, [result])
    assert layer.graph is not None
    # Only now: the fused node has taken over the layer's inputs, and nothing reads its output.
    layer.graph.remove(layer, safe=True)
    return True


def _activation(rewriter: Rewriter, node: ir.Node, layer: str) -> dict[str, Any] | None:
    """The attributes that state an activation."""
    if is_onnx(node, "Clip") and layer == "Conv":
        limits = _limits(node)
        return None if limits is None else {"activation": "Clip", "activation_params": limits}
    if not is_onnx(node, *(_OF_CONV if layer == "Conv" else _OF_GEMM)):
        return None
    defaults = _DEFAULTS.get(node.op_type, {})
    values = {name: float(attribute(node, name, defaults[name])) for name in _PARAMETERS[node.op_type]}
    if layer == "Gemm":
        return {"activation": node.op_type, **{f"activation_{k}": v for k, v in values.items()}}
    params = {"activation_params": list(values.values())} if values else {}
    return {"activation": node.op_type, **params}


def _limits(node: ir.Node) -> list[float] | None:
    """The constant limits of a Clip."""
    largest = float(np.finfo(np.float32).max)
    limits = []
    for input_index, name, default in ((1, "min", -largest), (2, "max", largest)):
        value = node.inputs[input_index] if len(node.inputs) > input_index else None
        tensor = constant_of(value)
        if value is not None and tensor is None:
            return None
        limits.append(
            float(tensor.numpy().item()) if tensor is not None else float(attribute(node, name, default))
        )
    return limits
