"""Models that convert a part of themselves in `forward`: `self.router = self.router.to(torch.float32)`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...fake_tensors import FakeTensor
from ...process.process_state import replace_attribute

Convert = Callable[[torch.Tensor], torch.Tensor]


@contextlib.contextmanager
def of_fake_weights() -> Iterator[None]:
    """Replace converted fake weights in the tables of their modules, which the capture restores.

    torch swaps a fake weight with the result of its conversion, and fails because the capture refers to it.
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
                    # As in torch, a weight has no history of operators.
                    with torch.no_grad():
                        table[name] = convert(tensor)
        return module

    with replace_attribute(torch.nn.Module, "_apply", convert_module):
        yield
