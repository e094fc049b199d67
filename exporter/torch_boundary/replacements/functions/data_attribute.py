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
    """Read `data` by the operator `detach`, whose result is the same tensor for a forward without gradients.

    A TorchFunctionMode would do it too, but a trace's warnings would then name its line, not the user's.

    Args:
        assign: is called with a tensor and the value that a model assigns to its `data`, in this thread.
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
