"""Captures TorchScript: scripted and traced modules and functions, and files of them."""

from .capture_script import capture_torchscript as capture
from .capture_script import is_torchscript
from .script_files import load
from .tracing import capture_trace

__all__ = [
    "capture",
    "capture_trace",
    "is_torchscript",
    "load",
]
