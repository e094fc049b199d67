"""Layers with packed weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from ....registration import PrepackError
from ...torch_boundary import onednn
from .packed_layout import PackedLayout, packed_layout
from .packed_operators import (
    layout_text,
    packed_convolution,
    packed_linear,
    packed_quantized_linear,
    read_layout,
)

Convolution: TypeAlias = torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Conv3d


class PackedLayer(torch.nn.Module):
    """A layer whose weight is packed; the weight is the buffer `packed`.

    Attributes:
        layout: the layout of the weight as text, as the operators take it.
    """

    packed: torch.Tensor
    bias: torch.nn.Parameter | None

    def __init__(self, packed: torch.Tensor, bias: torch.Tensor | None):
        super().__init__()
        self.train(False)
        layout, memory = packed_layout(packed)
        self.layout = layout_text(layout)
        self.register_buffer("packed", memory)
        self.bias = None if bias is None else torch.nn.Parameter(bias.detach(), requires_grad=False)

    @property
    def weight(self) -> torch.Tensor:
        """The weight, unpacked into a new tensor."""
        layout: PackedLayout = read_layout(self.layout)
        return layout.tensor_over(layout.check_memory(self.packed)).to_dense()

    def get_extra_state(self) -> torch.Tensor:
        """Return the layout as a tensor, which every file format can store."""
        return torch.frombuffer(bytearray(self.layout.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Check the layout in a loaded state.

        Raises:
            PrepackError: the layout differs from the one that oneDNN chose in this process.
        """
        layout = bytes(state.tolist()).decode(errors="replace")
        if layout != self.layout:
            raise PrepackError(
                f"the state has a weight with another layout ({layout}) than oneDNN chose ({self.layout})"
            )


class PackedLinear(PackedLayer):
    """`torch.nn.Linear` with a packed weight."""

    def __init__(self, layer: torch.nn.Linear, batch: int | None):
        super().__init__(onednn.pack_linear(layer.weight.detach(), batch), layer.bias)
        self.in_features, self.out_features = layer.in_features, layer.out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layer."""
        result: torch.Tensor = packed_linear(x, self.packed, self.bias, self.layout)
        return result


class PackedQuantizedLinear(PackedLayer):
    """A linear layer of 8-bit integers with a packed weight; the buffer `scale` has the scale per output."""

    scale: torch.Tensor

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None):
        super().__init__(onednn.pack_quantized_linear(weight), bias)
        self.out_features, self.in_features = weight.shape
        self.register_buffer("scale", scale)

    @property
    def weight(self) -> torch.Tensor:
        """The integers of the weight, [out, in], unpacked into a new tensor."""
        return super().weight.t().contiguous()

    def forward(
        self, x: torch.Tensor, x_scale: torch.Tensor | float, x_zero_point: torch.Tensor | int
    ) -> torch.Tensor:
        """Apply the layer to 8-bit integers with a scale and a zero point; the result is FLOAT."""
        scale = torch.as_tensor(x_scale, dtype=torch.float32)
        zero_point = torch.as_tensor(x_zero_point, dtype=torch.int64)
        result: torch.Tensor = packed_quantized_linear(
            x, scale, zero_point, self.packed, self.scale, self.bias, self.layout
        )
        return result


class PackedConvolution(PackedLayer):
    """`torch.nn.Conv1d`, `Conv2d` or `Conv3d` with a packed weight."""

    def __init__(self, layer: Convolution, padding: Sequence[int]):
        weight, stride, dilation = layer.weight.detach(), layer.stride, layer.dilation
        rank = len(padding)
        if rank == 1:
            # torch cannot pack weights of one-dimensional convolutions, so these get a height of 1.
            weight, padding = weight.unsqueeze(2), (0, *padding)
            stride, dilation = (1, *stride), (1, *dilation)
        packed = onednn.pack_convolution(weight, padding, stride, dilation, layer.groups, None)
        super().__init__(packed, layer.bias)
        self.rank, self.groups = rank, layer.groups
        self.padding, self.stride, self.dilation = list(padding), list(stride), list(dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layer to a batch, or to a single item."""
        single = x.dim() == self.rank + 1
        if single:
            x = x.unsqueeze(0)
        if self.rank == 1:
            x = x.unsqueeze(2)
        result: torch.Tensor = packed_convolution(
            x, self.packed, self.bias, self.stride, self.padding, self.dilation, self.groups, self.layout
        )
        if self.rank == 1:
            result = result.squeeze(2)
        return result.squeeze(0) if single else result
