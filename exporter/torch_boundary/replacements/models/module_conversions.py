"""Supports models that convert a submodule in `forward`: `self.router = self.router.to(torch.float32)`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...fake_tensors import FakeTensor
from ...process.process_state import replace_attribute

Convert = Callable[[torch.Tensor], torch.Tensor]


@contextlib.contextmanager
def convert_fake_weights() -> Iterator[None]:
    """Make conversions of modules assign new fake weights to `_parameters`, which the capture restores.

    torch would swap the contents of the old and the new weight, and fails because the capture refers to one.
    """
    original: Callable[..., torch.nn.Module] = torch.nn.Module._apply

    def convert_module(module: torch.nn.Module, convert: Convert, recurse: bool = True) -> torch.nn.Module:
        tensors = [tensor for tensor in module._parameters.values() if tensor is not None]
        if not any(isinstance(tensor, FakeTensor) for tensor in tensors):
            return original(module, convert, recurse)
        for child in module.children() if recurse else ():
            child._apply(convert)
        tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for table in tables:
            for name, tensor in table.items():
                if tensor is not None:
                    # As in torch, a converted weight is a leaf: autograd does not record the conversion.
                    with torch.no_grad():
                        table[name] = convert(tensor)
        return module

    with replace_attribute(torch.nn.Module, "_apply", convert_module):
        yield
