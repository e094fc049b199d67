"""The way in and out: capture, lowering, the exported program, files, verification, the command line."""

from .conversion import OnnxModel
from .entry import export
from .inplace_check import check_inplace
from .loading import load
from .program import Program
from .source_model import SourceModel

__all__ = ["OnnxModel", "Program", "SourceModel", "check_inplace", "export", "load"]
