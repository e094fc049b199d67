"""The way in and out: capture, lowering, the exported program, files, verification, the command line."""

from .entry import export
from .loading import load
from .onnx_model import OnnxModel
from .program import Program, SourceModel
from .running.inplace_check import check_inplace

__all__ = ["OnnxModel", "Program", "SourceModel", "check_inplace", "export", "load"]
