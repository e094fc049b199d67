"""The way in and out: capture, lowering, the exported program, files, verification, the command line."""

from .entry import export
from .inplace_check import check_inplace
from .program import Program

__all__ = ["Program", "check_inplace", "export"]
