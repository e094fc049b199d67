"""Reads model files from untrusted sources within bounds of time and memory."""

from .bounds import BOUNDS, REMEDY, TRUSTED, Bounds, bounds_of
from .checks.content import check_text
from .checks.memory import check_memory
from .checks.model_functions import check_calls
from .encodings.model_files import read_model
from .external_data.files import ModelFolder
from .external_data.mapping import map_external_data
from .representation import to_ir

__all__ = [
    "BOUNDS",
    "REMEDY",
    "TRUSTED",
    "Bounds",
    "ModelFolder",
    "bounds_of",
    "check_calls",
    "check_memory",
    "check_text",
    "map_external_data",
    "read_model",
    "to_ir",
]
