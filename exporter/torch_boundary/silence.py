"""Silence around what torch does on the user's behalf."""

from __future__ import annotations

import contextlib
import importlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

from .process_state import torch_loggers

_SILENT = logging.CRITICAL + 1


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within it, torch neither logs, nor warns, nor prints the graph of a failed capture.

    What of it concerns the user is in the error. Loggers of others, and what the model prints, are heard.
    """
    # A logger without a level takes that of `torch`.
    levels = [
        (logger, logger.level)
        for logger in torch_loggers()
        if logger.level != logging.NOTSET or logger.name == "torch"
    ]
    # torch.export prints the partial graph of an error to stderr.
    tracing: Any = importlib.import_module("torch.export._trace")
    held = vars(tracing).get("print", print)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger, level in levels:
                if level != _SILENT:
                    logger.setLevel(_SILENT)
            tracing.print = _printing_nothing
            yield
        finally:
            tracing.print = held
            for logger, level in levels:
                if logger.level != level:
                    logger.setLevel(level)


def _printing_nothing(*values: object, **options: object) -> None:
    """Stands for `print`."""
