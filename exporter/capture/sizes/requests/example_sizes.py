"""The example at the sizes of a capture: checks its sizes, and changes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .....registration import CaptureError, DimensionError
from ....captured_graph import dimensions
from ....captured_graph.capture import Capture
from ....torch_boundary.containers import pytree
from ....torch_boundary.fake_tensors import FakeTensor


def check_example(capture: Capture) -> None:
    """Refuse a capture that is not valid for its own example.

    A dynamic dimension of size 0 or 1 is captured at a larger size, where the model may compute something
    else. A condition that cannot be evaluated is refused here, too.

    Raises:
        CaptureError: the sizes of the example do not meet a restriction of the capture.
    """
    metadata = capture.source.metadata_props
    if capture.example is None:
        return
    leaves = pytree.tree_leaves(capture.example)
    pairs = zip(leaves, capture.interface.inputs, strict=True)
    inputs = [(name, tuple(getattr(leaf, "shape", ()))) for leaf, name in pairs if name is not None]
    declared = dimensions.inputs_of(capture.source, [name for name, _ in inputs])
    try:
        dimensions.SizeCheck(declared, metadata)([shape for _, shape in inputs])
    except DimensionError as error:
        raise CaptureError(
            f"the program would not be valid for the example itself: {error}. A dynamic dimension of size 0 "
            "or 1 is captured at a larger size: use an example that meets this condition, or make the "
            "dimension static"
        ) from error


def leaf_at_sizes(value: Any, captured: Any, size_of: Callable[[Any], int | None]) -> Any:
    """A leaf of the call at other sizes, with strides in the same order as at capture."""
    if not isinstance(value, torch.Tensor) or not isinstance(captured, torch.Tensor):
        return value
    sizes = [size_of(size) for size in captured.shape]
    strides = [size_of(stride) for stride in captured.stride()]
    shape = [
        captured_size if size is None else size
        for captured_size, size in zip(value.shape, sizes, strict=True)
    ]
    if None in strides:
        return torch.empty(shape, dtype=value.dtype, device=value.device)
    size_strides = [stride for stride in strides if stride is not None]
    return torch.empty_strided(shape, size_strides, dtype=value.dtype, device=value.device)


def resize_axis(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """The tensor with another size along one axis, with its entries repeated, or zeros if it is empty."""
    if (length := tensor.shape[axis]) == size:
        return tensor
    shape = [*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]]
    if isinstance(tensor, FakeTensor):
        with tensor.fake_mode:
            return tensor.new_empty(shape)
    if length == 0:  # An empty tensor has no entries to repeat; zeros are valid indices.
        return tensor.new_zeros(shape)
    # Repeated entries stay in the range that the model expects, such as indices into a table.
    return tensor.index_select(axis, torch.arange(size, device=tensor.device) % length)
