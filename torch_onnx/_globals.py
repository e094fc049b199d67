"""The state that torch.onnx keeps of the running export."""

from __future__ import annotations

from typing import NoReturn

from ._context import current
from .errors import refuse_attribute


class _Globals:
    """The state of the export, as far as symbolic functions ask for it."""

    in_onnx_export = True
    onnx_shape_inference = True
    export_training = False

    @property
    def export_onnx_opset_version(self) -> int:
        """The opset of the file.

        Raises:
            LookupError: no symbolic function runs.
        """
        return current.get().opset

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute("GLOBALS", name, "export_onnx_opset_version is here")


GLOBALS = _Globals()
