"""Any ONNX model at any opset: its own nodes where they mean the same there, else what says the same."""

from .conversion import convert
from .preparation import source_of

__all__ = ["convert", "source_of"]
