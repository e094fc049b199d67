"""Operators of torch that compute with packed weights, such as `opsetta::packed_linear`.

For torch a packed weight is an ordinary tensor of bytes, so it can be a buffer of a module, a constant of a
compiled package, or an entry of a file. The argument `layout` says what the bytes mean. Importing this module
registers the operators.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
from collections.abc import Sequence

import torch

from ....registration import PrepackError, UsageError
from ....registration.json_text import parse_json
from ...torch_boundary import onednn
from .memory_descriptor import Compensation, MemoryDescriptor
from .packed_layout import PackedLayout

_WEIGHT = "Tensor x, Tensor weight, Tensor? bias"


def layout_text(layout: PackedLayout) -> str:
    """Write the argument `layout` of the operators: the layout and the version of oneDNN, as JSON."""
    fields = dataclasses.asdict(layout.descriptor)
    return json.dumps({"onednn": onednn.version(), "groups": layout.groups, **fields})


@functools.lru_cache(maxsize=4096)
def read_layout(text: str) -> PackedLayout:
    """Read a layout from a text of `layout_text`.

    Raises:
        PrepackError: the text is not valid, or is for another version of oneDNN.
    """
    try:
        fields = dict(parse_json(text.encode()))
        version, groups = fields["onednn"], int(fields["groups"])
        shape, padded, strides = (
            tuple(map(int, fields[name])) for name in ("shape", "padded_shape", "strides")
        )
        blocks = tuple((int(size), int(axis)) for size, axis in fields["blocks"])
        # `from_blob` checks all fields, which decide which memory oneDNN reads.
        sums = fields.get("compensation")
        compensation = None if sums is None else Compensation(**sums)
        blob = MemoryDescriptor(shape, str(fields["dtype"]), padded, strides, blocks, compensation).to_blob()
        layout = PackedLayout(MemoryDescriptor.from_blob(blob), groups)
    except (ValueError, TypeError, LookupError, OverflowError, struct.error) as error:
        raise PrepackError(f"this is no layout of a packed weight: {text!r}") from error
    if version != onednn.version():
        raise PrepackError(
            f"the weight was packed by oneDNN {version}, and oneDNN here is {onednn.version()}: pack it again"
        )
    return layout


def _open_weight(x: torch.Tensor, weight: torch.Tensor, layout: str) -> torch.Tensor:
    """Make a packed tensor that uses a weight's bytes; check the element type and device of the input."""
    opened = read_layout(layout)
    dtype = opened.descriptor.dtype
    # Products of 8-bit integers also take unsigned inputs.
    input_dtypes = (dtype, "uint8") if dtype == "int8" else (dtype,)
    if str(x.dtype).removeprefix("torch.") not in input_dtypes or x.device.type != "cpu":
        raise UsageError(
            f"the input of a packed {dtype} weight is {x.dtype} on {x.device}: convert it to "
            f"{' or '.join(input_dtypes)} on the CPU"
        )
    return opened.tensor_over(opened.check_memory(weight))


@torch.library.custom_op(
    "opsetta::packed_linear", mutates_args=(), schema=f"({_WEIGHT}, str layout) -> Tensor"
)
def packed_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, layout: str
) -> torch.Tensor:
    """`torch.nn.functional.linear` with a packed weight."""
    return onednn.linear(x, _open_weight(x, weight, layout), bias).contiguous()


@packed_linear.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, layout: str) -> torch.Tensor:
    rows, _ = read_layout(layout).shape
    return x.new_empty((*x.shape[:-1], rows))


@torch.library.custom_op(
    "opsetta::packed_quantized_linear",
    mutates_args=(),
    schema=(
        "(Tensor x, Tensor x_scale, Tensor x_zero_point, Tensor weight, Tensor scale, Tensor? bias, "
        "str layout) -> Tensor"
    ),
)
def packed_quantized_linear(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    x_zero_point: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    layout: str,
) -> torch.Tensor:
    """A linear layer of 8-bit integers with a packed INT8 weight; see `onednn.quantized_linear`."""
    packed = _open_weight(x, weight, layout)
    return onednn.quantized_linear(x, x_scale, x_zero_point, packed, scale, bias).contiguous()


@packed_quantized_linear.register_fake
def _(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    x_zero_point: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    layout: str,
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], *scale.shape), dtype=torch.float32)


@torch.library.custom_op(
    "opsetta::packed_lstm_layer",
    mutates_args=(),
    schema=(
        "(Tensor x, Tensor input_weight, Tensor state_weight, Tensor input_bias, Tensor state_bias, "
        "Tensor h, Tensor c, bool reverse, str input_layout, str state_layout) -> (Tensor, Tensor, Tensor)"
    ),
)
def packed_lstm_layer(
    x: torch.Tensor,
    input_weight: torch.Tensor,
    state_weight: torch.Tensor,
    input_bias: torch.Tensor,
    state_bias: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    reverse: bool,
    input_layout: str,
    state_layout: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One direction of an LSTM's layer with packed weights; `x` is [time, batch, in]."""
    weights = (_open_weight(x, input_weight, input_layout), _open_weight(x, state_weight, state_layout))
    if not x.numel():
        return x.new_empty((*x.shape[:-1], h.shape[-1])), h.clone(), c.clone()
    states = (h.contiguous(), c.contiguous())
    return onednn.lstm_layer(x.contiguous(), (*weights, input_bias, state_bias), *states, reverse)


@packed_lstm_layer.register_fake
def _(
    x: torch.Tensor,
    input_weight: torch.Tensor,
    state_weight: torch.Tensor,
    input_bias: torch.Tensor,
    state_bias: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    reverse: bool,
    input_layout: str,
    state_layout: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return x.new_empty((*x.shape[:-1], h.shape[-1])), torch.empty_like(h), torch.empty_like(c)


@torch.library.custom_op(
    "opsetta::packed_convolution",
    mutates_args=(),
    schema=f"({_WEIGHT}, int[] stride, int[] padding, int[] dilation, int groups, str layout) -> Tensor",
)
def packed_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    layout: str,
) -> torch.Tensor:
    """A convolution of two or three dimensions with a packed weight."""
    packed = _open_weight(x, weight, layout)
    result = onednn.convolution(x, packed, bias, padding, stride, dilation, groups)
    return result.contiguous(memory_format=_memory_format(x))


@packed_convolution.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    layout: str,
) -> torch.Tensor:
    plain = x.new_empty(read_layout(layout).shape)
    zeros = [0] * len(stride)
    result = torch.convolution(x, plain, bias, stride, padding, dilation, False, zeros, groups)
    return result.contiguous(memory_format=_memory_format(x))


def _memory_format(x: torch.Tensor) -> torch.memory_format:
    """Return the format of a convolution's result: channels last only if the input is not contiguous."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if last is None or x.is_contiguous() or not x.is_contiguous(memory_format=last):
        return torch.contiguous_format
    return last
