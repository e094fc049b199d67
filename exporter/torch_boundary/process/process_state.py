"""The state of the process that running torch may change: saved, and put back.

Each part is a function that saves some state and returns a function to restore it. Only differences are
restored, so that an unchanged process is not touched.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

Restore = Callable[[], None]


def save(stack: contextlib.ExitStack, *, loggers: bool = True) -> None:
    """Save the state of the process; closing the stack restores it.

    Args:
        loggers: whether the state of torch's loggers is saved too; there are hundreds of them.
    """
    stack.enter_context(warnings.catch_warnings())
    stack.enter_context(close_vmaps())
    for part in (*_PARTS, _logging) if loggers else _PARTS:
        stack.callback(part())


@contextlib.contextmanager
def replace_attribute(owner: object, name: str, value: object) -> Iterator[None]:
    """Set an attribute of an object within the context, and restore it afterwards."""
    is_inherited = name not in vars(owner)
    # `getattr` would give the function in a staticmethod, and raises an exception for an unknown name.
    original = getattr(owner, name) if is_inherited else vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        # Setting it again would hide later changes of the base class.
        if is_inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Switch off garbage collection within the context: it is slow while most objects stay alive."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def close_vmaps() -> Iterator[None]:
    """Close the `vmap` levels that the context opened; a graph that fails within one leaves it open."""
    from torch._C import _functorch

    before = _functorch.maybe_current_level() or 0
    try:
        yield
    finally:
        while (_functorch.maybe_current_level() or 0) > before:
            _functorch._vmap_decrement_nesting()


@contextlib.contextmanager
def disable_backends() -> Iterator[None]:
    """Disable oneDNN, NNPACK and cuDNN within the context, so that no operator decomposes into theirs."""
    backends = (torch.backends.mkldnn, torch.backends.nnpack, torch.backends.cudnn)
    enabled = [backend.set_flags(False) for backend in backends]
    try:
        yield
    finally:
        for backend, flags in zip(backends, enabled, strict=True):
            backend.set_flags(*flags)


def torch_loggers() -> list[logging.Logger]:
    """The loggers of torch that exist now."""
    # A copy, because another thread may create a logger during the loop.
    named_loggers = list(logging.root.manager.loggerDict.items())
    return [
        logger
        for name, logger in named_loggers
        if (name == "torch" or name.startswith("torch.")) and isinstance(logger, logging.Logger)
    ]


def set_levels(levels: Iterable[tuple[logging.Logger, int]]) -> None:
    """Set the levels of loggers with a single call of `setLevel`, which clears the caches of all loggers."""
    # Each call of `setLevel` visits every logger of the process, so the levels are set directly.
    changed = [(logger, level) for logger, level in levels if logger.level != level]
    for logger, level in changed:
        logger.level = level
    if changed:
        # The one call clears the level caches of all loggers.
        logger.setLevel(level)


def has_compiled_code() -> bool:
    """Whether TorchDynamo has compiled anything; a capture with `strict=True` empties its caches."""
    compiler = sys.modules.get("torch._dynamo.convert_frame")
    return compiler is not None and bool(compiler.input_codes.seen)


def _random_generators() -> Restore:
    """Save the random generators of Python, numpy and torch; those of a device only if it is in use."""
    python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    mps_state = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None

    def restore() -> None:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        if cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)
        if mps_state is not None:
            torch.mps.set_rng_state(mps_state)

    return restore


_Setting = tuple[Callable[[], Any], Callable[[Any], object]]


def _autocast(device_type: str) -> Iterator[_Setting]:
    partial = functools.partial
    yield partial(torch.is_autocast_enabled, device_type), partial(torch.set_autocast_enabled, device_type)
    yield partial(torch.get_autocast_dtype, device_type), partial(torch.set_autocast_dtype, device_type)


def _working_directory() -> str | None:
    """Return the working directory; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


_SETTINGS: tuple[_Setting, ...] = (
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    # Without a default, torch says "cpu".
    (torch.get_default_device, lambda d: torch.set_default_device(None if d.type == "cpu" else d)),
    *_autocast("cpu"),
    *_autocast("cuda"),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda flags: torch.use_deterministic_algorithms(flags[0], warn_only=flags[1]),
    ),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda flags: torch.set_anomaly_enabled(*flags),
    ),
    (np.geterr, lambda errors: np.seterr(**errors)),
    (np.get_printoptions, lambda options: np.set_printoptions(**options)),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (lambda: logging.root.manager.disable, logging.disable),
    (_working_directory, lambda folder: os.chdir(folder or os.curdir)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (gc.isenabled, lambda collects: (gc.enable if collects else gc.disable)()),
    (lambda: sys.excepthook, lambda hook: setattr(sys, "excepthook", hook)),
)
"""Settings of torch and of the interpreter, each as a function that reads it and one that writes it."""


def _settings() -> Restore:
    values = [read() for read, _ in _SETTINGS]

    def restore() -> None:
        for (read, write), value in zip(_SETTINGS, values, strict=True):
            if read() != value:
                write(value)

    return restore


def _environment() -> Restore:
    variables = dict(os.environ)

    def restore() -> None:
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        for name, value in variables.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    return restore


def _logging() -> Restore:
    """Save the levels, handlers and filters of the root logger and of torch's loggers."""
    logger_states = [
        (logger, logger.level, list(logger.handlers), list(logger.filters), logger.propagate, logger.disabled)
        for logger in (logging.root, *torch_loggers())
    ]

    def restore() -> None:
        set_levels((logger, level) for logger, level, *_ in logger_states)
        for logger, _, handlers, filters, propagate, is_disabled in logger_states:
            if logger.handlers != handlers:
                logger.handlers[:] = handlers
            if logger.filters != filters:
                logger.filters[:] = filters
            logger.propagate, logger.disabled = propagate, is_disabled

    return restore


_PARTS: tuple[Callable[[], Restore], ...] = (_random_generators, _settings, _environment)
