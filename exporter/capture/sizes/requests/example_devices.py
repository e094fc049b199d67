"""Refuses example arguments on another device than the model, where no data could be moved."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .....registration import CaptureError
from ....torch_boundary.fake_tensors import FakeTensor
from ...tensor_kinds import describe_devices, named_leaves
from .dynamic_shapes import bind


def check_devices(model: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Refuse fake tensors on several devices; a capture counts all tensors on the device of the inputs.

    PyTorch itself refuses real tensors, unless the model moves them.

    Raises:
        CaptureError: the message names one tensor on each device.
    """
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        return
    leaves = list(named_leaves(bind(model, args, kwargs)))
    tensors = [*model.parameters(), *model.buffers(), *(leaf for _, leaf in leaves)]
    if any(isinstance(tensor, FakeTensor) for tensor in tensors):
        devices = describe_devices(model, leaves)
        if devices is not None:
            raise CaptureError(f"the model and its inputs are on several devices: {devices}; use one device")
