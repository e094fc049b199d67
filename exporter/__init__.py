"""Captures models, lowers them, runs and verifies them, and reads and writes files."""

from .entry import export
from .loading import load
from .onnx_model import OnnxModel
from .program import Program, SourceModel
from .running.inplace_check import check_inplace

__all__ = ["OnnxModel", "Program", "SourceModel", "check_inplace", "export", "load"]
