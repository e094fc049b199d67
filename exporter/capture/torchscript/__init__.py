"""Captures TorchScript: scripted and traced modules and functions, and files of them."""

from .capture_script import capture_torchscript as capture
from .capture_script import is_torchscript
from .carried_numbers import multiplies_numbers
from .script_files import load
from .scripted_parts import has_scripted_parts
from .tracing import capture_trace

__all__ = [
    "capture",
    "capture_trace",
    "has_scripted_parts",
    "is_torchscript",
    "load",
    "multiplies_numbers",
]
