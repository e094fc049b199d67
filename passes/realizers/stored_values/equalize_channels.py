"""Equalizes the ranges of weights between convolutions, for quantization with one scale per weight.

1. Two Conv in a row are equalized if nothing is between them but Relu, LeakyRelu and poolings, which commute
   with a positive factor of a channel, and if nothing else reads the values between them.
2. A channel that the first convolution writes is divided by s, and its weights in the second one are
   multiplied by s: `s = sqrt(r1 / r2)` for the largest weights r1 and r2 of the channel (Nagel et al., 2019,
   Data-Free Quantization Through Weight Equalization and Bias Correction, arXiv:1906.04721).
3. Weights and the first bias must be constants, of FLOAT; the second convolution has one group, or one
   for each channel.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....registration import DataType
from ...onnx_graph.simplification.unused_nodes import RemoveUnused
from ..rewriting import Rewriter, attribute, constant_of, is_onnx, only_reader

_HOMOGENEOUS = ("Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool")
_LARGEST_FACTOR = 1e4
_ROUNDS = 3
"""Each pair changes the ranges of its neighbours."""

Floats = npt.NDArray[np.float32]


class EqualizeChannels(ir.passes.InPlacePass):
    """Gives the channels between two convolutions weights of one range; the results stay the same."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the weights of the main graph, and report whether any changed."""
        rewriter = Rewriter(model)
        pairs = [
            (node, second)
            for node in model.graph
            if is_onnx(node, "Conv") and (second := _next_convolution(node)) is not None
        ]
        changes = [_equalize(rewriter, *pair) for _ in range(_ROUNDS) for pair in pairs]
        if any(changes):
            RemoveUnused()(model)
        return ir.passes.PassResult(model, any(changes))


def _next_convolution(first: ir.Node) -> ir.Node | None:
    """The convolution whose images are those of another one, after operators that keep its channels."""
    value = first.outputs[0]
    reader = only_reader(value)
    while reader is not None and is_onnx(reader, *_HOMOGENEOUS):
        # The positions that MaxPool also returns do not change.
        value = reader.outputs[0]
        reader = only_reader(value)
    if reader is None or reader.graph is not first.graph or not is_onnx(reader, "Conv"):
        return None
    return reader if reader.inputs[0] is value else None


def _equalize(rewriter: Rewriter, first: ir.Node, second: ir.Node) -> bool:
    constants = [_floats(node.inputs[1]) for node in (first, second)]
    has_bias = len(first.inputs) > 2 and first.inputs[2] is not None
    bias = _floats(first.inputs[2]) if has_bias else None
    if constants[0] is None or constants[1] is None or (has_bias and bias is None):
        return False
    weight, next_weight = constants[0], constants[1]
    channels, groups = weight.shape[0], attribute(second, "group", 1)
    if groups not in (1, channels) or next_weight.shape[1] * groups != channels:
        return False
    # The channels of the second weight come first.
    by_channel = next_weight.swapaxes(0, 1) if groups == 1 else next_weight.reshape(channels, -1)
    ranges, next_ranges = (np.abs(part.reshape(channels, -1)).max(1) for part in (weight, by_channel))
    is_used = (ranges > 0) & (next_ranges > 0)
    ratio = np.divide(ranges, next_ranges, out=np.ones_like(ranges), where=is_used)
    factors = np.clip(np.sqrt(ratio), 1 / _LARGEST_FACTOR, _LARGEST_FACTOR)
    if np.allclose(factors, 1):
        return False
    scaled = (by_channel.T * factors).T
    replaced = scaled.swapaxes(0, 1) if groups == 1 else scaled.reshape(next_weight.shape)
    results = [(first, 1, (weight.T / factors).T), (second, 1, replaced)]
    if bias is not None:
        results.append((first, 2, bias / factors))
    for node, position, array in results:
        value = node.inputs[position]
        tensor = ir.tensor(np.ascontiguousarray(array, np.float32))
        stem = "weight" if value is None else str(value.name).partition("/equalized")[0]
        node.replace_input_with(position, rewriter.initializer(f"{stem}/equalized", tensor))
    return True


def _floats(value: ir.Value | None) -> Floats | None:
    tensor = constant_of(value)
    return tensor.numpy() if tensor is not None and tensor.dtype == DataType.FLOAT else None
