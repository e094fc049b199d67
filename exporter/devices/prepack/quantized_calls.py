"""Finds the linear layers of dequantized 8-bit integers in the graph of an exported program."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch

_PER_CHANNEL = "quantized_decomposed.dequantize_per_channel.default"
_PER_TENSOR = "quantized_decomposed.dequantize_per_tensor.default"
_BY_TENSORS = "quantized_decomposed.dequantize_per_tensor.tensor"
"""The operators of torchao's PT2E quantization; they are registered where a graph has them."""


@dataclasses.dataclass(frozen=True)
class QuantizedCall:
    """A call of `linear` on dequantized integers.

    Attributes:
        weights: the INT8 weight [out, in], the scale of each output, and the bias or None.
        operands: the integers of the input, their scale and their zero point, as nodes or numbers.
        dequantized: the nodes that dequantize input and weight.
    """

    weights: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
    operands: tuple[Any, Any, Any]
    dequantized: tuple[torch.fx.Node, torch.fx.Node]


def quantized_call_of(module: torch.fx.GraphModule, node: torch.fx.Node) -> QuantizedCall | None:
    """The call, if oneDNN has a product of 8-bit integers for it; else None.

    It has one for inputs of 8 bits with one scale and zero point, and for INT8 weights with a scale, and the
    zero point 0, for the whole weight or for each output. Results are FLOAT.
    """
    if node.target != torch.ops.aten.linear.default:
        return None
    arguments = _arguments_of(module, node)
    input_node, weight_node = arguments["input"], arguments["weight"]
    bias = _constant_of(module, arguments["bias"])
    if bias is None and arguments["bias"] is not None:
        return None
    quantized_weight = _quantized_weight(module, weight_node)
    if quantized_weight is None or str(input_node.target) not in (_PER_TENSOR, _BY_TENSORS):
        return None
    dequantization = _arguments_of(module, input_node)
    is_float = dequantization.get("out_dtype") in (None, torch.float32)
    if not is_float or dequantization["dtype"] not in (torch.uint8, torch.int8):
        return None
    operands = tuple(dequantization[name] for name in ("input", "scale", "zero_point"))
    return QuantizedCall((*quantized_weight, bias), operands, (input_node, weight_node))


def _quantized_weight(
    module: torch.fx.GraphModule, node: torch.fx.Node
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The integers and the scales of a weight; None if it is no such weight."""
    if str(node.target) not in (_PER_CHANNEL, _PER_TENSOR):
        return None
    arguments = _arguments_of(module, node)
    weight = _constant_of(module, arguments["input"])
    if weight is None or weight.dtype != torch.int8 or weight.dim() != 2 or 0 in weight.shape:
        return None
    if str(node.target) == _PER_CHANNEL:
        scale, zero_points = (_constant_of(module, arguments[name]) for name in ("scales", "zero_points"))
        is_symmetric = arguments["zero_points"] is None or (
            zero_points is not None and not bool(zero_points.any())
        )
        is_of_outputs = arguments["axis"] % weight.dim() == 0
    else:
        scale, is_of_outputs = torch.tensor(arguments["scale"]), True
        is_symmetric = arguments["zero_point"] == 0
    is_float = arguments.get("out_dtype") in (None, torch.float32)
    if scale is None or not (is_symmetric and is_of_outputs and is_float):
        return None
    return weight, scale.detach().float().expand(weight.shape[0]).contiguous()


def _arguments_of(module: torch.fx.GraphModule, node: torch.fx.Node) -> dict[str, Any]:
    call = node.normalized_arguments(module, normalize_to_only_use_kwargs=True)
    assert call is not None, node
    return dict(call.kwargs)


def _constant_of(module: torch.fx.GraphModule, node: object) -> torch.Tensor | None:
    """The parameter or buffer on the CPU that a node reads; None for other nodes."""
    if not isinstance(node, torch.fx.Node) or node.op != "get_attr":
        return None
    tensor: torch.Tensor = operator.attrgetter(str(node.target))(module).detach()
    return tensor if tensor.device.type == "cpu" else None
