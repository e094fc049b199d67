"""The global state of torch.onnx during an export."""

from __future__ import annotations

from typing import NoReturn

from .errors import refuse_attribute
from .symbolic_functions.context import current


class _Globals:
    """The part of the state that symbolic functions read."""

    in_onnx_export = True
    onnx_shape_inference = True
    export_training = False

    @property
    def export_onnx_opset_version(self) -> int:
        """The target opset.

        Raises:
            LookupError: no symbolic function is running.
        """
        return current.get().opset

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute("GLOBALS", name, "export_onnx_opset_version is here")


GLOBALS = _Globals()
