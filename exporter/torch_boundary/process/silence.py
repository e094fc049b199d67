"""Suppresses output of torch."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import types
import warnings
from collections.abc import Iterator

from .process_state import set_levels, torch_loggers

_SILENT = logging.CRITICAL + 1
TRACER = "torch.export._trace"
"""The module that traces a model for torch.export; direct capture does not import it."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress torch's logs and warnings, and the graphs that torch prints when a capture fails.

    Errors are not suppressed, nor are other loggers and the model's output.
    """
    with suppress_logs(), ignore_warnings():
        yield


@contextlib.contextmanager
def ignore_warnings() -> Iterator[None]:
    """Suppress warnings within the context."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def suppress_logs() -> Iterator[None]:
    """Suppress torch's logs, and the graphs that torch prints when a capture fails."""
    # A logger without a level inherits that of `torch`, so only these need a level.
    levels = [
        (logger, logger.level)
        for logger in torch_loggers()
        if logger.level != logging.NOTSET or logger.name == "torch"
    ]
    # torch.export, if it has been imported, prints the partial graph of an error to stderr.
    tracing = vars(sys.modules.get(TRACER) or types.SimpleNamespace())
    original_print = tracing.get("print", print)
    # Without a handler torch skips its structured records, each of which collects a Python stack.
    records: logging.Logger = importlib.import_module("torch._logging._internal").trace_log
    handlers = records.handlers
    try:
        set_levels((logger, _SILENT) for logger, _ in levels)
        tracing["print"] = _print_nothing
        records.handlers = []
        yield
    finally:
        records.handlers = handlers
        tracing["print"] = original_print
        set_levels(levels)


def _print_nothing(*values: object, **options: object) -> None:
    """Replace `print`: take its arguments and print nothing."""
