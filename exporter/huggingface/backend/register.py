"""Registers the backend with transformers."""

from __future__ import annotations

from transformers.exporters.auto import EXPORT_BACKENDS, register_backend

from .config import FORMAT
from .exporter import OpsettaExporter
from .runner import OpsettaRunner

# A second import, after a reload, is no reason to warn.
if FORMAT not in EXPORT_BACKENDS:
    register_backend(OpsettaExporter, OpsettaRunner)
