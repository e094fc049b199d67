"""Models of Hugging Face folders: exports them, and generates with what was exported."""

from .entry import ExportedGraph, HuggingFaceExport, export_huggingface
from .generation import TextGenerator

__all__ = ["ExportedGraph", "HuggingFaceExport", "TextGenerator", "export_huggingface"]
