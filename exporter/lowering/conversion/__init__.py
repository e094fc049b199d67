"""Converts ONNX models between opsets: copies nodes that mean the same, and replaces the others."""

from typing import TYPE_CHECKING

from ....registration.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from .conversion import convert
    from .preparation import source_of
else:
    # Whatever only looks at a file needs the preparation without the conversion, which imports all passes.
    __getattr__, __dir__ = lazy_imports(
        __name__, {".conversion": ("convert",), ".preparation": ("source_of",)}
    )
