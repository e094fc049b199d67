"""A backend for the exporters of transformers: `AutoHfExporter.from_config(OpsettaConfig(opset_version=13))`.

Importing this module registers it.
"""

from .exporter.huggingface.backend import register as register
from .exporter.huggingface.backend.config import OpsettaConfig
from .exporter.huggingface.backend.exporter import OpsettaExporter
from .exporter.huggingface.backend.runner import OpsettaRunner

__all__ = ["OpsettaConfig", "OpsettaExporter", "OpsettaRunner"]
