"""Optional packages that folders of other libraries need."""

from __future__ import annotations

import importlib
import types

from ...registration import OpsettaError


def need_package(name: str, folders: str) -> types.ModuleType:
    """Import a package.

    Args:
        name: of the package.
        folders: what needs it, for the message.

    Raises:
        OpsettaError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The package is there, but one that it needs is not.
        missing = error.name or name
        raise OpsettaError(f"{folders} need {missing}: pip install {missing}") from error
    except (ImportError, RuntimeError) as error:
        # torchvision, which timm imports, raises a RuntimeError if it was built for another torch.
        raise OpsettaError(f"{folders} need {name}, which cannot be imported: {error}") from error
