"""Shape-only kernels for GPU operators for which torch has none; without them torch runs them on the GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...operators.overloads import OpOverload
from .shape_kernels import Shapes

Tensor = torch.Tensor
Sizes = Sequence[int]


def _convolve(
    self: Tensor, weight: Tensor, padding: Sizes, stride: Sizes, dilation: Sizes, groups: int, *flags: bool
) -> Tensor:
    return torch.convolution(self, weight, None, stride, padding, dilation, False, [0] * len(stride), groups)


def _convolve_with_bias(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sizes,
    stride: Sizes,
    dilation: Sizes,
    groups: int,
    *flags: bool,
) -> Tensor:
    return _convolve(self, weight, padding, stride, dilation, groups)


def _convolve_and_activate(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    return _convolve(self, weight, padding, stride, dilation, groups)


def _add(self: Tensor, weight: Tensor, z: Tensor, *settings: object) -> Tensor:
    return torch.empty_like(z)


def _transpose(
    self: Tensor,
    weight: Tensor,
    padding: Sizes,
    output_padding: Sizes,
    stride: Sizes,
    dilation: Sizes,
    groups: int,
    *flags: bool,
) -> Tensor:
    return torch.convolution(self, weight, None, stride, padding, dilation, True, output_padding, groups)


def _transpose_with_bias(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sizes,
    output_padding: Sizes,
    stride: Sizes,
    dilation: Sizes,
    groups: int,
    *flags: bool,
) -> Tensor:
    return _transpose(self, weight, padding, output_padding, stride, dilation, groups)


def _convolve_channels(
    self: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
) -> Tensor:
    return _convolve(self, weight, padding, stride, dilation, self.shape[1])


def _sample(self: Tensor, grid: Tensor) -> Tensor:
    return self.new_empty((*self.shape[:2], *grid.shape[1:3]))


def _make_grid(theta: Tensor, N: int, C: int, H: int, W: int) -> Tensor:
    return theta.new_empty((N, H, W, 2))


def _step(input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, *biases: Tensor) -> tuple[Tensor, Tensor]:
    """Return tensors like the new state and like the workspace for gradients, five numbers per element."""
    return torch.empty_like(hx), hx.new_empty((hx.shape[0], 5 * hx.shape[1]))


_ATEN = torch.ops.aten
NON_COMPOSITE: dict[OpOverload, Shapes] = {
    _ATEN.cudnn_convolution.default: _convolve,
    _ATEN.cudnn_convolution_relu.default: _convolve_and_activate,
    _ATEN.cudnn_convolution_add_relu.default: _add,
    _ATEN.cudnn_convolution_transpose.default: _transpose,
    _ATEN.miopen_convolution.default: _convolve_with_bias,
    _ATEN.miopen_depthwise_convolution.default: _convolve_with_bias,
    _ATEN.miopen_convolution_relu.default: _convolve_and_activate,
    _ATEN.miopen_convolution_add_relu.default: _add,
    _ATEN.miopen_convolution_transpose.default: _transpose_with_bias,
    _ATEN._conv_depthwise2d.default: _convolve_channels,
    _ATEN.conv_depthwise3d.default: _convolve_channels,
    _ATEN.cudnn_grid_sampler.default: _sample,
    _ATEN.cudnn_affine_grid_generator.default: _make_grid,
    _ATEN._thnn_fused_gru_cell.default: _step,
}
