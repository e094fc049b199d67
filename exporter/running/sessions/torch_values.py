"""Converts between torch tensors and onnxruntime values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import torch

from ....registration import UsageError
from ...capture.tensor_kinds import unsupported_type, without_data

if TYPE_CHECKING:
    import onnxruntime


def check_data(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor that cannot be an input of a model.

    Raises:
        UsageError: the tensor is sparse, nested, quantized, or has no data.
    """
    refused, reason = unsupported_type(tensor), without_data(tensor)
    if refused is not None:
        raise UsageError(f"the argument for input '{name}' is {refused[0]}: pass its {refused[1]} instead")
    if reason is not None:
        raise UsageError(f"the argument for input '{name}' has no data ({reason}): pass a real tensor")


def to_ortvalue(leaf: torch.Tensor | float) -> onnxruntime.OrtValue:
    """Convert a tensor or Python number to an onnxruntime value; bfloat16, which numpy lacks, by DLPack.

    Complex numbers become real pairs, [..., 2].
    """
    import onnxruntime

    if isinstance(leaf, torch.Tensor):
        tensor = leaf.detach().cpu()
    else:
        tensor = torch.as_tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else None)
    tensor = as_real(tensor)
    if tensor.dtype == torch.bfloat16:
        return onnxruntime.OrtValue.from_dlpack(tensor.contiguous())
    return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.resolve_conj().contiguous().numpy())


def to_torch(value: onnxruntime.OrtValue) -> torch.Tensor:
    """Convert an onnxruntime tensor to a torch tensor."""
    if value.data_type() == "tensor(bfloat16)":
        return torch.from_dlpack(value).clone()  # type: ignore[attr-defined]
    array = np.array(value.numpy())
    # numpy has two unsigned 64-bit types, and torch does not accept the one that onnxruntime returns.
    return torch.from_numpy(array.view(np.uint64) if array.dtype == np.uint64 else array)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Convert a torch tensor to a numpy array, including autograd's zeros without memory.

    bfloat16 becomes the type of ml_dtypes.
    """
    if tensor.dtype == torch.bfloat16:
        plain = tensor.detach().cpu().resolve_neg().contiguous()
        return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy(force=True)


def as_complex(pairs: torch.Tensor) -> torch.Tensor:
    """Convert real pairs, [..., 2], to complex numbers."""
    return torch.complex(pairs[..., 0], pairs[..., 1])


def as_real(item: torch.Tensor) -> torch.Tensor:
    """Convert complex numbers to real pairs, [..., 2]; return other tensors unchanged."""
    return torch.view_as_real(item.resolve_conj()) if item.is_complex() else item
