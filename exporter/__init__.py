"""The way in and out: capture, lowering, the exported program, files, verification, the command line."""

from .entry import export
from .program import Program

__all__ = ["Program", "export"]
