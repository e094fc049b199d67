"""What PyTorch gives of a tensor without an operator that a recording sees: `.data`, and numpy arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

_CONVERSIONS = (torch.Tensor.numpy, torch.Tensor.__array__)
_DATA = frozenset({torch.Tensor.data.__get__})  # type: ignore[attr-defined]


@contextlib.contextmanager
def recorded(elements_of: Callable[[torch.Tensor], np.ndarray | None]) -> Iterator[None]:
    """Within the context, `.data` of a fake tensor is an operator, and its array has its elements.

    Args:
        elements_of: finds the elements of a fake tensor, or None.
    """
    with _Mode(elements_of):
        yield


class _Mode(TorchFunctionMode):
    def __init__(self, elements_of: Callable[[torch.Tensor], np.ndarray | None]):
        super().__init__()
        self._elements_of = elements_of

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if func in _DATA and isinstance(args[0], FakeTensor):
            return args[0].detach()
        if func in _CONVERSIONS and isinstance(args[0], FakeTensor):
            array = self._elements_of(args[0])
            if array is not None:
                return array if func is torch.Tensor.numpy else array.__array__(*args[1:], **(kwargs or {}))
        return func(*args, **(kwargs or {}))
