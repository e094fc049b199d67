"""Packages that only some of the work needs, and what to install where one is missing or another release."""

from __future__ import annotations

from ...registration import OpsettaError
from . import probe


def need_torch(doing: str) -> None:
    """Import torch, and check that it has what calling a model needs.

    Args:
        doing: what needs it, for the message.

    Raises:
        OpsettaError: torch is not installed, or not one that can be used.
    """
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise OpsettaError(f"{doing} needs PyTorch: pip install 'opsetta[torch]'") from None
    probe.need(probe.CALL)
