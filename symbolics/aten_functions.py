"""Registers the symbolic functions of ATen's operators, those on complex numbers included."""

import importlib

from . import import_modules

for _folder in ("aten", "complex"):
    _package = importlib.import_module(f"{__package__}.{_folder}")
    import_modules(_package.__name__, _package.__path__)
