"""The attribute `data` of tensors, whose reads and assignments torch's captures do not see."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import torch

from .....registration import CaptureError
from ...process.process_state import replace_attribute

READ: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.data.__get__  # type: ignore[attr-defined]
WRITE: Callable[[torch.Tensor, torch.Tensor], None] = torch.Tensor.data.__set__  # type: ignore[attr-defined]


@contextlib.contextmanager
def intercept(assign: Callable[[torch.Tensor, torch.Tensor], None]) -> Iterator[None]:
    """Make reads of `data` run the operator `detach`, which gives the same tensor if no gradients follow.

    A TorchFunctionMode could do it too, but warnings of a trace would name its line, not the user's.

    Args:
        assign: called for assignments in this thread, with the tensor and the value for its `data`.
    """
    # The patch is global; other threads must see the original attribute.
    thread = threading.get_ident()

    def read_data(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach() if threading.get_ident() == thread else READ(tensor)

    def write_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
        (assign if threading.get_ident() == thread else WRITE)(tensor, value)

    with replace_attribute(torch.Tensor, "data", property(read_data, write_data)):
        yield


def refuse(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Refuse an assignment.

    Raises:
        CaptureError: always.
    """
    raise CaptureError(
        "the model assigns to the attribute 'data' of a tensor, which only capture='direct' follows: "
        "use that, or write to the tensor with copy_"
    )
