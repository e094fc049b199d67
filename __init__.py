"""opsetta: any model, any opset.

`export(model, args, opset=N)` turns a PyTorch model into ONNX at exactly the opset that you ask for, 7 to 26.
"""

from typing import TYPE_CHECKING, Any

from .registration import (
    DEFAULT_OPSET,
    MAXIMUM_OPSET,
    MINIMUM_OPSET,
    AnnotationError,
    ArgumentError,
    CaptureError,
    DataType,
    DimensionError,
    EmissionError,
    GraphContext,
    GraphError,
    InferenceError,
    ModelFileError,
    MutationError,
    OpsetError,
    OpsettaError,
    RegistrationError,
    Registry,
    ResultError,
    UnsupportedError,
    UnsupportedOperatorsError,
    UsageError,
    Value,
    VerificationError,
    default_registry,
    onnx_symbolic,
)

if TYPE_CHECKING:
    from .exporter import OnnxModel, Program, SourceModel, check_inplace, export, load

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_OPSET",
    "MAXIMUM_OPSET",
    "MINIMUM_OPSET",
    "AnnotationError",
    "ArgumentError",
    "CaptureError",
    "DataType",
    "DimensionError",
    "EmissionError",
    "GraphContext",
    "GraphError",
    "InferenceError",
    "ModelFileError",
    "MutationError",
    "OnnxModel",
    "OpsetError",
    "OpsettaError",
    "Program",
    "RegistrationError",
    "Registry",
    "ResultError",
    "SourceModel",
    "UnsupportedError",
    "UnsupportedOperatorsError",
    "UsageError",
    "Value",
    "VerificationError",
    "check_inplace",
    "default_registry",
    "export",
    "load",
    "onnx_symbolic",
]


def __getattr__(name: str) -> Any:
    # `import opsetta` starts fast: the exporter comes in when it is asked for.
    if name in ("export", "load", "OnnxModel", "Program", "SourceModel", "check_inplace"):
        from . import exporter

        return getattr(exporter, name)
    raise AttributeError(f"module 'opsetta' has no attribute '{name}'")
