"""What is known of the constant masks that are added to the scores of an attention."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..constants.initializers import Initializers

_MAXIMUM_MASK = 2**22
"""Elements of a mask that is read."""


def contents(known: Initializers, value: ir.Value | None) -> np.ndarray | None:
    """The numbers of a constant whose contents are already computed; None for others."""
    tensor = value.const_value if value is not None and known.is_constant(value) else None
    if tensor is None or isinstance(tensor, ir.LazyTensor) or tensor.size > _MAXIMUM_MASK:
        return None
    return tensor.numpy()


def floats(known: Initializers, value: ir.Value | None) -> np.ndarray | None:
    """The contents of a constant as float32."""
    array = contents(known, value)
    return None if array is None else array.astype(np.float32)


def leaves_scores(mask: np.ndarray | None, lowest: float = -np.inf) -> bool:
    """Whether a mask has no NaN or inf, and a number above `lowest` in each row."""
    if mask is None or not mask.size or np.isnan(mask).any() or (mask == np.inf).any():
        return False
    return bool((mask > lowest).any(axis=-1).all()) if mask.ndim else bool(mask > lowest)
