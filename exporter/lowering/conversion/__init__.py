"""Converts ONNX models between opsets: copies nodes with an unchanged meaning, and replaces the others."""

from typing import TYPE_CHECKING

from ....registration.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from .convert_model import convert
    from .prepared_models.preparation import source_of
else:
    # Lazy, because reading a file needs only the preparation, and the conversion imports all passes.
    __getattr__, __dir__ = lazy_imports(
        __name__, {".convert_model": ("convert",), ".prepared_models.preparation": ("source_of",)}
    )
