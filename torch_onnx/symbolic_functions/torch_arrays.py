"""Converts between torch tensors, which symbolic functions of torch.onnx use, and numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    import torch


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Convert a torch tensor of any element type to a numpy array."""
    return ir.tensor(tensor.detach().cpu().contiguous()).numpy()


def to_tensor(contents: object) -> torch.Tensor:
    """Convert an array or Python numbers to a torch tensor; floats become double, as in torch.onnx."""
    import torch

    if isinstance(contents, np.ndarray):
        if contents.dtype.name == "bfloat16":
            return torch.from_numpy(contents.astype(np.float32)).to(torch.bfloat16)
        return torch.from_numpy(np.array(contents))
    numbers = contents if isinstance(contents, (list, tuple)) else [contents]
    floats = any(isinstance(number, float) for number in numbers)
    if floats and not isinstance(contents, (list, tuple)):
        return torch.tensor(contents, dtype=torch.float64)
    if not numbers:
        return torch.empty(0, dtype=torch.int64)
    return torch.tensor(contents)


def is_tensor_of_torch(item: object) -> TypeGuard[torch.Tensor]:
    """Whether an object is a torch tensor; does not import torch."""
    return any(
        base.__module__.split(".")[0] == "torch" and base.__name__ == "Tensor" for base in type(item).mro()
    )
