"""Exports models of Hugging Face folders, and generates with the exported files."""

from .export_folder import ExportedGraph, HuggingFaceExport, export_huggingface
from .generation import TextGenerator

__all__ = ["ExportedGraph", "HuggingFaceExport", "TextGenerator", "export_huggingface"]
