"""Checks that PyTorch is installed and usable; the error says what to install."""

from __future__ import annotations

from ...registration import OpsettaError
from . import probe


def need_torch(doing: str) -> None:
    """Import torch, and check that it has the names for calling a model.

    Args:
        doing: the action that needs torch, such as "exporting a model"; begins the message.

    Raises:
        OpsettaError: torch is not installed or cannot be used.
    """
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        # An installed torch that lacks another module is broken; its own error says more.
        if error.name != "torch":
            raise
        raise OpsettaError(f"{doing} needs PyTorch: pip install 'opsetta[torch]'") from None
    # An installed torch may be too old, or too new.
    probe.require(probe.CALL)
