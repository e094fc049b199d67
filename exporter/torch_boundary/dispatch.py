"""torch's dispatcher: its keys, and the stack of modes that see operators before autograd does."""

from __future__ import annotations

from torch._C import DispatchKey, DispatchKeySet
from torch._C import _dispatch_tls_is_dispatch_key_excluded as is_excluded
from torch._C import _dispatch_tls_set_dispatch_key_included as set_included
from torch._C import _to_functionality_key as functionality_of  # type: ignore[attr-defined]
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import mode_stack_state_for_pre_dispatch

__all__ = [
    "DispatchKey",
    "DispatchKeySet",
    "enable_python_dispatcher",
    "functionality_of",
    "is_excluded",
    "mode_stack_state_for_pre_dispatch",
    "set_included",
]
