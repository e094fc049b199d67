"""Modules whose weights are integers, in the place of a model's linear layers."""

from __future__ import annotations

import torch
import torch.ao.quantization.fx  # Registers quantized_decomposed.

from .matrix import QuantizedMatrix


class DequantizedLinear(torch.nn.Module):
    """A linear layer whose weight is dequantized, on the meta device.

    Args:
        matrix: its weight.
        dtype: of activations and scales.
        bias: of the layer.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    order: torch.Tensor | None
    bias: torch.Tensor | None

    def __init__(self, matrix: QuantizedMatrix, dtype: torch.dtype, bias: torch.Tensor | None):
        super().__init__()
        self.out_features, self.in_features = (int(size) for size in matrix.codes.shape.numpy())
        self._bits, self._group_size = matrix.bits, matrix.group_size
        dtypes = {"codes": torch.int8, "scales": dtype, "zeros": torch.int32, "order": torch.int64}
        for name, buffer_dtype in dtypes.items():
            tensor = matrix.tensors.get(name)
            shape = None if tensor is None else tuple(tensor.shape.numpy())
            buffer = None if shape is None else torch.empty(shape, dtype=buffer_dtype, device="meta")
            self.register_buffer(name, buffer)
        if bias is None:
            self.bias = None
        elif isinstance(bias, torch.nn.Parameter):
            self.bias = bias
        else:
            self.register_buffer("bias", bias)

    @property
    def weight(self) -> torch.Tensor:
        """The weight in floating-point numbers, which some models read themselves."""
        matrix = self._dequantize()
        return matrix if self.order is None else matrix[:, torch.argsort(self.order)]

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Multiply by the weight, and add the bias."""
        # Gathered activations, not weights: the columns of a group stay side by side.
        columns = input if self.order is None else input[..., self.order]
        return torch.nn.functional.linear(columns, self._dequantize(), self.bias)

    def _dequantize(self) -> torch.Tensor:
        # One operator, so that its graph has one DequantizeLinear, or MatMulNBits.
        middle = 1 << (self._bits - 1)
        matrix: torch.Tensor = torch.ops.quantized_decomposed.dequantize_per_channel_group(
            self.codes,
            self.scales,
            self.zeros,
            -middle,
            middle - 1,
            torch.int8,
            self._group_size,
            self.scales.dtype,
        )
        return matrix


class ScaledActivation(torch.nn.Module):
    """An activation whose result is divided by constants, which AWQ has multiplied the next weight by.

    Args:
        activation: of the model.
        channels: the number of the constants.
        dtype: of the constants.
    """

    scales: torch.Tensor

    def __init__(self, activation: torch.nn.Module, channels: int, dtype: torch.dtype):
        super().__init__()
        self.act = activation
        self.register_buffer("scales", torch.empty(channels, dtype=dtype, device="meta"))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply the activation, and divide."""
        activated: torch.Tensor = self.act(input)
        return activated / self.scales
