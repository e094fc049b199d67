"""Puts layers with packed weights into modules and graphs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TypeGuard

import torch

from ....registration.warning import warn
from ...torch_boundary import onednn
from .packed_layers import Convolution, PackedConvolution, PackedLayer, PackedLinear, PackedQuantizedLinear
from .packed_recurrent import PackedLSTM, PackedLSTMCall, has_hooks, is_packable_lstm, lstm_of_call
from .quantized_calls import quantized_call_of

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
_CONVOLUTION_CALLS: dict[object, Callable[..., torch.nn.Module]] = dict(
    zip(
        (torch.ops.aten.conv1d.default, torch.ops.aten.conv2d.default, torch.ops.aten.conv3d.default),
        _CONVOLUTIONS,
        strict=True,
    )
)
_LINEAR_CALL = torch.ops.aten.linear.default


def pack_module(model: torch.nn.Module, batch: int | None) -> torch.nn.Module:
    """Replace the layers of a module by packed ones; return the module, or the layer that replaces it."""
    paths: dict[torch.nn.Module, list[str]] = {}
    for path, layer in model.named_modules(remove_duplicate=False):
        paths.setdefault(layer, []).append(path)
    # Raises the error for a type that this processor cannot pack before any layer is replaced.
    for dtype in dict.fromkeys(layer.weight.dtype for layer in paths if _is_packable(layer)):
        onednn.pack_linear(torch.zeros(1, 1, dtype=dtype), None)
    packed_model = model
    # Deleted, because references to layers would keep all plain weights in memory until the end.
    path_groups = list(paths.values())
    del paths, layer
    for group in path_groups:
        replacement = _pack_layer(model.get_submodule(group[0]), batch)
        if replacement is None:
            continue
        if group == [""]:
            packed_model = replacement
            continue
        for path in group:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, replacement)
    return packed_model


def pack_graph(program: torch.export.ExportedProgram, batch: int | None) -> torch.fx.GraphModule:
    """Return the module of an exported program, with packed layers for `linear` and convolutions.

    A `linear` of dequantized integers computes with the integers, if oneDNN has such a product.
    """
    module = program.module()
    assert isinstance(module, torch.fx.GraphModule)
    graph = module.graph
    read_before = {node.target for node in graph.nodes if node.op == "get_attr"}
    for index, node in enumerate(list(graph.nodes)):
        quantized = quantized_call_of(module, node)
        if quantized is not None and not onednn.has_exact_integer_products():
            warn(f"8-bit weights stay as they are: {onednn.NO_EXACT_INTEGERS}", UserWarning)
            quantized = None
        if quantized is not None:
            packed: torch.nn.Module | None = PackedQuantizedLinear(*quantized.weights)
            operands = quantized.operands
        elif (lstm := lstm_of_call(module, node)) is not None:
            packed, operands = PackedLSTMCall(lstm), (node.args[0], *node.args[1])
        else:
            layer = _layer_of(module, node)
            packed = None if layer is None else _pack_layer(layer, batch)
            operands = node.args[:1]
        if packed is None:
            continue
        module.add_submodule(f"packed_{index}", packed)
        with graph.inserting_before(node):
            call = graph.call_module(f"packed_{index}", operands)
        call.meta.update(node.meta)
        node.replace_all_uses_with(call)
        graph.erase_node(node)
        for dequantized in () if quantized is None else quantized.dequantized:
            if not dequantized.users:
                graph.erase_node(dequantized)
    for node in list(graph.nodes):
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    read = {node.target for node in graph.nodes if node.op == "get_attr"}
    # Plain weights that no node reads any more would be second copies.
    names = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    names += [name for name, _ in module.named_buffers(remove_duplicate=False) if name in read_before]
    for name in names:
        if name not in read and not name.startswith("packed_"):
            parent, _, leaf = name.rpartition(".")
            delattr(module.get_submodule(parent), leaf)
    module.recompile()
    return module


def _layer_of(module: torch.fx.GraphModule, node: torch.fx.Node) -> torch.nn.Module | None:
    """Make the layer that a call computes; None if its weight or bias is not a parameter of the program."""
    convolution = _CONVOLUTION_CALLS.get(node.target)
    if convolution is None and node.target != _LINEAR_CALL:
        return None
    call = node.normalized_arguments(module, normalize_to_only_use_kwargs=True)
    arguments = dict(call.kwargs) if call is not None else {}
    operands = [arguments.pop("weight", None), arguments.pop("bias", None)]
    if any(value is not None and value.op != "get_attr" for value in operands) or operands[0] is None:
        return None
    weight, bias = (
        value and torch.nn.Parameter(operator.attrgetter(value.target)(module).detach(), requires_grad=False)
        for value in operands
    )
    arguments.pop("input", None)
    layer: torch.nn.Module
    if convolution is None:
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    else:
        outputs, inputs, *kernel = weight.shape
        sizes = {
            # A list of one number applies to all axes.
            name: tuple(value) * (len(kernel) if len(value) == 1 else 1)
            if isinstance(value, Sequence)
            else value
            for name, value in arguments.items()
        }
        inputs *= sizes.get("groups", 1)
        layer = convolution(inputs, outputs, tuple(kernel), bias=False, device="meta", **sizes)
    layer.register_parameter("weight", weight)
    layer.register_parameter("bias", bias)
    return layer.train(False)


def _is_packable(layer: torch.nn.Module) -> TypeGuard[torch.nn.Linear | Convolution]:
    weight = getattr(layer, "weight", None)
    if type(layer) not in (torch.nn.Linear, *_CONVOLUTIONS) or not isinstance(weight, torch.Tensor):
        return False
    if has_hooks(layer) or weight.dtype not in _DTYPES or weight.device.type != "cpu" or 0 in weight.shape:
        return False
    if isinstance(layer, torch.nn.Linear):
        return True
    assert isinstance(layer, _CONVOLUTIONS)
    return layer.padding_mode == "zeros" and _equal_padding(layer) is not None


def _pack_layer(layer: torch.nn.Module, batch: int | None) -> PackedLayer | PackedLSTM | None:
    """Return the packed layer; None if the layer cannot be packed and stays."""
    if is_packable_lstm(layer):
        return PackedLSTM(layer)
    if not _is_packable(layer):
        return None
    if isinstance(layer, torch.nn.Linear):
        return PackedLinear(layer, batch)
    padding = _equal_padding(layer)
    assert padding is not None
    return PackedConvolution(layer, padding)


def _equal_padding(layer: Convolution) -> list[int] | None:
    """Return the padding of each axis; None if its two ends differ."""
    if layer.padding == "valid":
        return [0] * len(layer.kernel_size)
    if not isinstance(layer.padding, str):
        return list(layer.padding)
    zeros = [step * (size - 1) for size, step in zip(layer.kernel_size, layer.dilation, strict=True)]
    return None if any(count % 2 for count in zeros) else [count // 2 for count in zeros]
