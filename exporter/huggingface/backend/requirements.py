"""Checks that transformers has exporters, before anything is imported from them."""

from __future__ import annotations

import importlib

from ....registration import OpsettaError
from ..model_folders import need_transformers


def need_exporters() -> None:
    """Refuse a release of transformers without exporters that take further backends.

    Raises:
        OpsettaError: transformers is not installed, or too old.
    """
    transformers = need_transformers()
    try:
        exporters = importlib.import_module("transformers.exporters")
        exporters.register_backend  # noqa: B018 - The first releases with exporters take no further ones.
    except (ImportError, AttributeError) as error:
        raise OpsettaError(
            f"opsetta.huggingface needs transformers with transformers.exporters.register_backend, and "
            f"{transformers.__version__} has none: pip install -U transformers, or use opsetta export --hf"
        ) from error
