"""Exports models of Hugging Face folders, and generates with the exported files."""

from .export_folder import export_huggingface
from .exported_files import ExportedGraph, HuggingFaceExport
from .text_generation.generation import TextGenerator

__all__ = ["ExportedGraph", "HuggingFaceExport", "TextGenerator", "export_huggingface"]
