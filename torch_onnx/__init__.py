"""The API of torch.onnx on top of opsetta: `export`, `replaced`, and torch.onnx's symbolic functions.

    from opsetta.torch_onnx import export, register_custom_op_symbolic, symbolic_helper

`export` has the signature of `torch.onnx.export`. `with replaced():` redirects the calls of other code to it,
and so does `python -m opsetta.torch_onnx SCRIPT`; see docs/torch-onnx.md.

A symbolic function gets a graph and values with the methods of torch.onnx's classes. The operators that it
emits are bound to the schema of the target opset. `symbolic_helper`, `symbolic_opset9` to `symbolic_opset20`
and `errors` replace the modules of these names in torch.onnx.
"""

from __future__ import annotations

import sys

from ..registration import DataType
from . import errors, symbolic_helper
from ._type_utils import JitScalarType
from .errors import OnnxExporterError
from .exporting.export_call import export
from .exporting.replacement import replaced
from .symbolic_functions.custom_operators import register_custom_op_symbolic, unregister_custom_op_symbolic
from .symbolic_functions.opset_modules import SymbolicFunctions

__all__ = [
    "JitScalarType",
    "OnnxExporterError",
    "TensorProtoDataType",
    "errors",
    "export",
    "register_custom_op_symbolic",
    "replaced",
    "symbolic_helper",
    "unregister_custom_op_symbolic",
]

TensorProtoDataType = DataType

for _opset in range(7, 21):
    _name = f"symbolic_opset{_opset}"
    _module = SymbolicFunctions(f"{__name__}.{_name}", f"The functions of `torch.onnx.{_name}`.")
    sys.modules[_module.__name__] = globals()[_name] = _module


def __getattr__(name: str) -> object:
    """The other public names of torch.onnx, such as `is_in_onnx_export`, `ONNXProgram` and `ops`."""
    if not name.startswith("_"):
        import torch

        if name in torch.onnx.__all__:
            return getattr(torch.onnx, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
