"""A backend for the exporters of transformers: `AutoHfExporter.from_config(OpsettaConfig(opset_version=13))`.

Importing this module registers it.
"""

from .exporter.huggingface.backend.requirements import need_exporters

need_exporters()

from transformers.exporters import register_backend  # noqa: E402
from transformers.exporters.auto import EXPORT_BACKENDS  # noqa: E402

from .exporter.huggingface.backend.config import FORMAT, OpsettaConfig  # noqa: E402
from .exporter.huggingface.backend.exporter import OpsettaExporter  # noqa: E402
from .exporter.huggingface.backend.runner import OpsettaRunner  # noqa: E402

__all__ = ["OpsettaConfig", "OpsettaExporter", "OpsettaRunner"]

# A second import, after a reload, is no reason to warn.
if FORMAT not in EXPORT_BACKENDS:
    register_backend(OpsettaExporter, OpsettaRunner)
