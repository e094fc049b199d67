"""Imports onnx_ir without sympy, which only arithmetic with symbolic dimensions needs.

`import onnx_ir` imports sympy, which takes longer than all other work on a small file.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, cast

# It imports tempfile and zipfile, which most commands do without.
if TYPE_CHECKING:
    from importlib.abc import Loader

_DEFERRED = ("sympy", "onnx_ir._symbolic_shapes")
"""What onnx_ir needs for expressions alone: sympy, and the parser of texts, which builds on it."""


class _ModuleAtFirstUse(ModuleType):
    """Stands for a module in the one that imports it; the module itself is imported at its first use."""

    def __getattr__(self, name: str) -> object:
        # While onnx_ir is being imported, this object stands under the module's name in `sys.modules`, and an
        # import of the module would return it.
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


class _OnnxIrLoader:
    def __init__(self, loader: Loader):
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        deferred = {name: _ModuleAtFirstUse(name) for name in _DEFERRED if name not in sys.modules}
        sys.modules.update(deferred)
        try:
            self._loader.exec_module(module)
        finally:
            # Everybody else imports the modules themselves.
            for name, substitute in deferred.items():
                if sys.modules.get(name) is substitute:
                    del sys.modules[name]


class _OnnxIrFinder:
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "onnx_ir":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", _OnnxIrLoader(spec.loader))
        return spec


def defer_sympy() -> None:
    """Make the coming import of onnx_ir delay that of sympy until a dimension is computed.

    It does nothing if onnx_ir is imported already. Other code imports sympy as usual.
    """
    if "onnx_ir" not in sys.modules:
        sys.meta_path.insert(0, _OnnxIrFinder())
