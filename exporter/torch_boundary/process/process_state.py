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
    stack.enter_context(vmaps_closed())
    for part in (*_PARTS, _logging) if loggers else _PARTS:
        stack.callback(part())


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute of an object within the context; later an inherited one is inherited again."""
    is_inherited = name not in vars(owner)
    held = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if is_inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, held)


@contextlib.contextmanager
def garbage_kept() -> Iterator[None]:
    """Within the context, Python does not look for garbage, which takes long where most objects stay."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


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
        if (name == "torch" or name.startswith("torch.")) and isinstance(logger, logging.Logger)
    ]


def set_levels(levels: Iterable[tuple[logging.Logger, int]]) -> None:
    """Set the levels of loggers, with one call of `setLevel`, which visits every logger of the process."""
    changed = [(logger, level) for logger, level in levels if logger.level != level]
    for logger, level in changed:
        logger.level = level
    if changed:
        # Makes every logger forget what it knew of levels.
        logger.setLevel(level)


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


_Setting = tuple[Callable[[], Any], Callable[[Any], Any]]


def _autocast(kind: str) -> Iterator[_Setting]:
    partial = functools.partial
    yield partial(torch.is_autocast_enabled, kind), partial(torch.set_autocast_enabled, kind)
    yield partial(torch.get_autocast_dtype, kind), partial(torch.set_autocast_dtype, kind)


def _folder() -> str | None:
    """The working directory; None where it was removed."""
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
        lambda now: torch.use_deterministic_algorithms(now[0], warn_only=now[1]),
    ),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda now: torch.set_anomaly_enabled(*now),
    ),
    (np.geterr, lambda errors: np.seterr(**errors)),
    (np.get_printoptions, lambda options: np.set_printoptions(**options)),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (lambda: logging.root.manager.disable, logging.disable),
    (_folder, lambda folder: os.chdir(folder or os.curdir)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (gc.isenabled, lambda collects: (gc.enable if collects else gc.disable)()),
    (lambda: sys.excepthook, lambda hook: setattr(sys, "excepthook", hook)),
)
"""Settings of torch and of the interpreter: functions that read and that write each."""


def _settings() -> Restore:
    held = [read() for read, _ in _SETTINGS]

    def restore() -> None:
        for (read, write), value in zip(_SETTINGS, held, strict=True):
            if read() != value:
                write(value)

    return restore


def _environment() -> Restore:
    held = dict(os.environ)

    def restore() -> None:
        for name in os.environ.keys() - held.keys():
            del os.environ[name]
        for name, value in held.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    return restore


def _logging() -> Restore:
    """Levels, handlers and filters of the root logger and of torch's loggers."""
    held = [
        (logger, logger.level, list(logger.handlers), list(logger.filters), logger.propagate, logger.disabled)
        for logger in (logging.root, *torch_loggers())
    ]

    def restore() -> None:
        set_levels((logger, level) for logger, level, *_ in held)
        for logger, _, handlers, filters, propagate, is_disabled in held:
            if logger.handlers != handlers:
                logger.handlers[:] = handlers
            if logger.filters != filters:
                logger.filters[:] = filters
            logger.propagate, logger.disabled = propagate, is_disabled

    return restore


_PARTS: tuple[Callable[[], Restore], ...] = (_random_generators, _settings, _environment)
