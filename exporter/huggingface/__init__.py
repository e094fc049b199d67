"""Exports models of Hugging Face folders, and generates with the exported files."""

from .entry import ExportedGraph, HuggingFaceExport, export_huggingface
from .generation import TextGenerator

__all__ = ["ExportedGraph", "HuggingFaceExport", "TextGenerator", "export_huggingface"]
