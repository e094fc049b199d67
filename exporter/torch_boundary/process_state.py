"""The state of the process that running torch may change: saved, and put back.

Each part is a function that saves some state and returns a function to restore it. Only differences are
restored, so that an unchanged process is not touched.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch

Restore = Callable[[], None]


def save(stack: contextlib.ExitStack) -> None:
    """Save the state of the process; closing the stack restores it."""
    stack.enter_context(warnings.catch_warnings())
    stack.enter_context(vmaps_closed())
    for part in _PARTS:
        stack.callback(part())


@contextlib.contextmanager
def vmaps_closed() -> Iterator[None]:
    """Afterwards no `vmap` is open that was not before: a graph that fails within one leaves it open."""
    from torch._C import _functorch

    before = _functorch.maybe_current_level() or 0
    try:
        yield
    finally:
        while (_functorch.maybe_current_level() or 0) > before:
            _functorch._vmap_decrement_nesting()


def torch_loggers() -> list[logging.Logger]:
    """The loggers of torch that exist now."""
    known = list(logging.root.manager.loggerDict.items())
    return [
        logger
        for name, logger in known
        if isinstance(logger, logging.Logger) and (name == "torch" or name.startswith("torch."))
    ]


def has_compiled_code() -> bool:
    """Whether TorchDynamo has compiled anything here; a capture with `strict=True` empties its caches."""
    compiler = sys.modules.get("torch._dynamo.convert_frame")
    return compiler is not None and bool(compiler.input_codes.seen)


def _random_generators() -> Restore:
    """The random generators of Python, numpy and torch; those of a device only if it is in use."""
    held, held_numpy, held_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    held_cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    held_mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None

    def restore() -> None:
        random.setstate(held)
        np.random.set_state(held_numpy)
        torch.set_rng_state(held_torch)
        if held_cuda is not None:
            torch.cuda.set_rng_state_all(held_cuda)
        if held_mps is not None:
            torch.mps.set_rng_state(held_mps)

    return restore


def _defaults() -> Restore:
    """Grad mode, default dtype and default device."""
    grad, dtype, device = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_default_device()

    def restore() -> None:
        if torch.is_grad_enabled() != grad:
            torch.set_grad_enabled(grad)
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            # Without a default, torch says "cpu".
            torch.set_default_device(None if device.type == "cpu" else device)

    return restore


def _autocast() -> Restore:
    kinds = ("cpu", "cuda")
    enabled = {kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds}
    cached = torch.is_autocast_cache_enabled()

    def restore() -> None:
        for kind, (is_enabled, dtype) in enabled.items():
            if torch.is_autocast_enabled(kind) != is_enabled:
                torch.set_autocast_enabled(kind, is_enabled)
            if torch.get_autocast_dtype(kind) != dtype:
                torch.set_autocast_dtype(kind, dtype)
        if torch.is_autocast_cache_enabled() != cached:
            torch.set_autocast_cache_enabled(cached)

    return restore


def _settings() -> Restore:
    """Deterministic algorithms, the fused kernels of attention, and the number of threads."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    threads = torch.get_num_threads()

    def restore() -> None:
        now = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        if now != (deterministic, warn_only):
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        if torch.backends.mha.get_fastpath_enabled() != fast_path:
            torch.backends.mha.set_fastpath_enabled(fast_path)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    return restore


def _logging() -> Restore:
    """The global logging level, and levels, handlers and filters of the root logger and torch's loggers."""
    disabled = logging.root.manager.disable
    held = [
        (logger, logger.level, list(logger.handlers), list(logger.filters), logger.propagate, logger.disabled)
        for logger in (logging.root, *torch_loggers())
    ]

    def restore() -> None:
        if logging.root.manager.disable != disabled:
            logging.disable(disabled)
        for logger, level, handlers, filters, propagate, is_disabled in held:
            if logger.level != level:
                # Clears the loggers' cache of levels.
                logger.setLevel(level)
            if logger.handlers != handlers:
                logger.handlers[:] = handlers
            if logger.filters != filters:
                logger.filters[:] = filters
            logger.propagate, logger.disabled = propagate, is_disabled

    return restore


def _interpreter() -> Restore:
    """The environment, the working directory, and settings of the interpreter."""
    environment, folder = dict(os.environ), _folder()
    limit, collects, hook = sys.getrecursionlimit(), gc.isenabled(), sys.excepthook

    def restore() -> None:
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        for name, value in environment.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        if folder is not None and _folder() != folder:
            os.chdir(folder)
        if sys.getrecursionlimit() != limit:
            sys.setrecursionlimit(limit)
        if gc.isenabled() != collects:
            (gc.enable if collects else gc.disable)()
        if sys.excepthook is not hook:
            sys.excepthook = hook

    return restore


def _folder() -> str | None:
    """The working directory; None where it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


_PARTS: tuple[Callable[[], Restore], ...] = (
    _random_generators,
    _defaults,
    _autocast,
    _settings,
    _logging,
    _interpreter,
)
