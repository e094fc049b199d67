"""Captures TorchScript: scripted and traced modules and functions, and files of them."""

from .capture import capture_torchscript as capture
from .capture import is_torchscript
from .files import load
from .tracing import capture_trace
