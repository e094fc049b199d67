"""Quantized models: torch's own quantization of a ResNet-18, and a BERT as PT2E quantization leaves it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators.
import transformers
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import _convert_to_reference_decomposed_fx, prepare_fx
from torch.fx import GraphModule, Node

Q = torch.ops.quantized_decomposed
Inputs = tuple[torch.Tensor, ...]
LAYERS = 2
"""How many layers BERT has."""


class Block(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.relu2 = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        return self.relu2(inner + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 of the paper, narrower."""

    def __init__(self, width: int = 8, classes: int = 10):
        super().__init__()
        stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.stem = nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1))
        blocks, channels = [], width
        for outer, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            blocks += [Block(channels, outer, stride), Block(outer, outer, 1)]
            channels = outer
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.pool(self.blocks(self.stem(x))).flatten(1))


def resnet18() -> tuple[GraphModule, Inputs]:
    """ResNet-18 after torch's own static quantization: every convolution, sum and product."""
    torch.manual_seed(0)
    model = ResNet18()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 3, 64, 64))
        example = (torch.randn(2, 3, 64, 64),)
        prepared = prepare_fx(model.eval(), get_default_qconfig_mapping("x86"), example)
        prepared(*example)
        return _convert_to_reference_decomposed_fx(prepared), example


class _Logits(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def bert(dynamic: bool = False) -> tuple[GraphModule, Inputs]:
    """BERT with every linear layer quantized as PT2E quantization does it: UINT8 by INT8 per channel."""
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "num_hidden_layers": LAYERS,
    }
    config = transformers.BertConfig(vocab_size=100, **sizes)
    model = _Logits(transformers.BertForSequenceClassification(config)).eval()
    example = (torch.randint(3, 100, (2, 7)), torch.tensor([[1] * 7, [1] * 5 + [0] * 2]))
    captured = torch.export.export(model, example).module()
    return quantize_linear(captured, example, dynamic), example


class _Observer(torch.fx.Interpreter):
    """Runs a graph and keeps the range of what every linear layer reads."""

    def __init__(self, module: GraphModule):
        super().__init__(module)
        self.ranges: dict[Node, tuple[float, float]] = {}

    def run_node(self, n: Node) -> object:
        result = super().run_node(n)
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            self.ranges[n] = (min(0.0, result.min().item()), max(0.0, result.max().item()))
        return result


def quantize_linear(module: GraphModule, example: Inputs, dynamic: bool) -> GraphModule:
    """Put quantization around every `aten::linear` of a captured module, in place."""
    observer = _Observer(module)
    with torch.no_grad():
        observer.run(*example)
    layers = module.graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)
    for number, node in enumerate(layers):
        with module.graph.inserting_before(node):
            given = node.args[0]
            read = _dynamic(module, given) if dynamic else _static(module, given, observer.ranges[given])
            node.args = (read, _weight(module, node.args[1], number), *node.args[2:])
    module.recompile()
    return module


def _static(module: GraphModule, value: Node, span: tuple[float, float]) -> Node:
    low, high = span
    scale = max(high - low, 1e-6) / 255
    rest = (scale, round(-low / scale), 0, 255, torch.uint8)
    whole = module.graph.call_function(Q.quantize_per_tensor.default, (value, *rest))
    return module.graph.call_function(Q.dequantize_per_tensor.default, (whole, *rest))


def _dynamic(module: GraphModule, value: Node) -> Node:
    call: Callable[..., Node] = module.graph.call_function
    chosen = call(Q.choose_qparams.tensor, (value, 0, 255, 2.0**-12, torch.uint8))
    parts = [call(operator.getitem, (chosen, index)) for index in (0, 1)]
    rest = (*parts, 0, 255, torch.uint8)
    return call(Q.dequantize_per_tensor.tensor, (call(Q.quantize_per_tensor.tensor, (value, *rest)), *rest))


def _weight(module: GraphModule, weight: Node, number: int) -> Node:
    """The weight as INT8 with a scale per row, kept as buffers.

    The integers have 7 bits: on x86 without VNNI, onnxruntime's sums of products of 8 bits overflow.
    """
    tensor = module.get_parameter(str(weight.target)).detach()
    scales = tensor.abs().amax(1) / 63
    zero_points = torch.zeros(len(scales), dtype=torch.int64)
    bounds = (-128, 127, torch.int8)
    whole = Q.quantize_per_channel(tensor, scales, zero_points, 0, *bounds)
    buffers: Mapping[str, torch.Tensor] = {"weight": whole, "scale": scales, "zero_point": zero_points}
    nodes = []
    for name, buffer in buffers.items():
        module.register_buffer(f"_quantized_{name}_{number}", buffer)
        nodes.append(module.graph.get_attr(f"_quantized_{name}_{number}"))
    return module.graph.call_function(Q.dequantize_per_channel.default, (*nodes, 0, *bounds))
