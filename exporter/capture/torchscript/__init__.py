"""Capture from TorchScript: scripted and traced modules and functions, and the files that hold them."""

from .capture import capture_torchscript as capture
from .capture import is_torchscript
from .files import load

__all__ = ["capture", "is_torchscript", "load"]
