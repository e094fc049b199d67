"""Calls a function for each operator of a model, before torch decomposes it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental import proxy_tensor

from ..dispatch import (
    DispatchKey,
    enable_python_dispatcher,
    functionality_of,
    is_excluded,
    mode_stack_state_for_pre_dispatch,
    set_included,
)
from ..operators.overloads import Args, Kwargs, OpOverload
from ..process.process_state import disable_backends, replace_attribute


@contextlib.contextmanager
def observe_operators(call: Callable[[OpOverload, Args, dict[str, Any]], object]) -> Iterator[None]:
    """Call a function for each operator of a model, as a direct capture records them.

    Args:
        call: takes an operator, its positional and keyword arguments, calls it, and returns the result.
            Operators that run meanwhile are not observed.
    """
    state, mode = mode_stack_state_for_pre_dispatch(), _Observer(call)
    find: Callable[..., object] = OpOverload._get_dispatch

    def switch(current: object) -> None:
        state.set(0, current)
        set_included(DispatchKey.PreDispatch, current is not None)

    def call_observed(func: OpOverload, /, *args: object, **kwargs: object) -> object:
        switch(None)
        try:
            # Without torch's Python dispatcher, operators find those that they call in less time.
            with torch._C._DisablePythonDispatcher():
                return call(func, args, kwargs)
        finally:
            switch(mode)

    def find_function(func: OpOverload, key: DispatchKey) -> object:
        if (
            state.get(0) is mode
            and functionality_of(key) == DispatchKey.PreDispatch
            and not is_excluded(DispatchKey.Python)
        ):
            return functools.partial(call_observed, func)
        return find(func, key)

    with (
        disable_backends(),
        enable_python_dispatcher(),
        replace_attribute(OpOverload, "_get_dispatch", find_function),
    ):
        switch(mode)
        try:
            yield
        finally:
            switch(None)


class _Observer(proxy_tensor.ProxyTorchDispatchMode):
    """Poses as the mode of torch's tracer, so that torch disables it in the same situations."""

    def __init__(self, call: Callable[[OpOverload, Args, dict[str, Any]], object]):
        super().__init__(None, "real", pre_dispatch=True)  # type: ignore[arg-type]
        self._call = call

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        """Call an operator."""
        return self._call(func, args, dict(kwargs or {}))

    def __sym_dispatch__(
        self, func: Callable[..., object], types: object, args: Args, kwargs: Kwargs
    ) -> object:
        """Compute with symbolic numbers, which is not observed."""
        return func(*args, **kwargs)
