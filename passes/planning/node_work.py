"""How many elementary operations a node takes, estimated from the sizes of its operands and results.

An addition, a comparison or a copy of one element counts one. Sources: the operators' definitions
(https://onnx.ai/onnx/operators/).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from ...registration.arguments import blocks
from ...registration.schemas import operator_schema
from ..onnx_graph.inplace import memory_sharing
from .parts import sizes_of


def work_of(node: ir.Node) -> int:
    """The operations of a node; of a sub-graph, those of one run.

    Values of unknown sizes count nothing.
    """
    work = sum(work_of(inner) for block in blocks(node) for inner in block)
    rule = _WORK.get(node.op_type) if node.domain in memory_sharing.STANDARD_DOMAINS else None
    return work + (_elements(node) if rule is None else rule(node))


def is_repeatable(node: ir.Node, opset: int) -> bool:
    """Whether a second run of a node on the same operands has the same results, bit for bit."""
    if node.domain not in memory_sharing.STANDARD_DOMAINS or blocks(node):
        return False
    schema = operator_schema(node.op_type, opset, node.domain)
    # Random operators have a seed.
    return schema is not None and "seed" not in schema.attributes


def _count(value: ir.Value | None) -> int:
    return math.prod(sizes_of(value) or [0])


def _elements(node: ir.Node) -> int:
    """Each element is read and written once."""
    return max((_count(value) for value in (*node.inputs, *node.outputs)), default=0)


def _shape(node: ir.Node, position: int) -> list[int]:
    value = node.inputs[position] if position < len(node.inputs) else None
    return sizes_of(value) or [0]


def _product(node: ir.Node) -> int:
    return 2 * _count(node.outputs[0]) * _shape(node, 0)[-1]


def _gemm(node: ir.Node) -> int:
    axis = 0 if node.attributes.get_int("transA", 0) else -1
    return 2 * _count(node.outputs[0]) * _shape(node, 0)[axis]


def _convolution(node: ir.Node) -> int:
    return 2 * _count(node.outputs[0]) * math.prod(_shape(node, 1)[1:])


def _transposed_convolution(node: ir.Node) -> int:
    return 2 * _count(node.inputs[0]) * math.prod(_shape(node, 1)[1:])


def _pooling(node: ir.Node) -> int:
    return _count(node.outputs[0]) * math.prod(node.attributes.get_ints("kernel_shape", [1]))


def _five_passes(node: ir.Node) -> int:
    """A series or a division for each element; or mean, variance, and the result."""
    return 5 * _elements(node)


def _recurrent(node: ir.Node) -> int:
    time, batch = ([*_shape(node, 0), 1, 1])[:2]
    return 2 * time * batch * (_count(node.inputs[1]) + _count(node.inputs[2]))


def _einsum(node: ir.Node) -> int:
    """The product of the sizes of all letters, at most."""
    equation = node.attributes.get_string("equation", "").split("->")[0]
    sizes: dict[str, int] = {}
    for position, term in enumerate(equation.split(",")):
        sizes.update(zip(term.strip(), _shape(node, position), strict=False))
    return 2 * math.prod(sizes.values())


def _attention(node: ir.Node) -> int:
    """Scores and their product with the values."""
    keys = _shape(node, 1)
    return 4 * _count(node.inputs[0]) * (keys[-2] if len(keys) > 1 else 1)


_WORK: dict[str, Callable[[ir.Node], int]] = {
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _product),
    "Gemm": _gemm,
    **dict.fromkeys(("Conv", "ConvInteger"), _convolution),
    "QLinearConv": lambda node: 2 * _count(node.outputs[0]) * math.prod(_shape(node, 3)[1:]),
    "ConvTranspose": _transposed_convolution,
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pooling),
    **dict.fromkeys(
        "BatchNormalization GroupNormalization InstanceNormalization LayerNormalization LogSoftmax "
        "RMSNormalization Softmax "
        "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Div Elu Erf Exp Gelu Log Mish Mod Pow Reciprocal "
        "Selu Sigmoid Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh".split(),
        _five_passes,
    ),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "Einsum": _einsum,
    "Attention": _attention,
}
