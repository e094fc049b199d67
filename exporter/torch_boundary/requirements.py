"""Packages that only some of the work needs, and what to install where one is missing."""

from __future__ import annotations

from ...registration import OpsettaError


def need_torch(doing: str) -> None:
    """Import torch.

    Args:
        doing: what needs it, for the message.

    Raises:
        OpsettaError: torch is not installed.
    """
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise OpsettaError(f"{doing} needs PyTorch: pip install 'opsetta[torch]'") from None
