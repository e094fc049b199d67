"""Converts ONNX models between opsets: copies nodes that mean the same, and replaces the others."""

from .conversion import convert
from .preparation import source_of
