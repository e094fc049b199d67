"""The contract between source operators and ONNX: registry, symbolic functions, emission, errors."""

from onnx_ir import DataType, Value

from . import arguments, dtypes, opsets, schemas, shape_inference
from .arguments import Device, Layout, MemoryFormat
from .context import Block, GraphContext, Names
from .dispatch import SymbolicFunction
from .dtypes import Number
from .errors import (
    AnnotationError,
    ArgumentError,
    CaptureError,
    EmissionError,
    GraphError,
    InferenceError,
    ModelFileError,
    MutationError,
    OpsetError,
    OpsettaError,
    RegistrationError,
    UnsafeAnnotation,
    UnsupportedError,
    UnsupportedOperator,
    UnsupportedOperatorsError,
    VerificationError,
)
from .metadata import ALIAS, COMPLEX, INPLACE, KIND, LINE, MAY_OVERWRITE, MODULE, MUTATES, NUMBER, SOURCE
from .opsets import DEFAULT_OPSET, MAXIMUM_OPSET, MINIMUM_OPSET
from .registry import Registry, default_registry, load_entry_points, onnx_symbolic

__all__ = [
    "ALIAS",
    "COMPLEX",
    "DEFAULT_OPSET",
    "INPLACE",
    "KIND",
    "LINE",
    "MAXIMUM_OPSET",
    "MAY_OVERWRITE",
    "MINIMUM_OPSET",
    "MODULE",
    "MUTATES",
    "NUMBER",
    "SOURCE",
    "AnnotationError",
    "ArgumentError",
    "Block",
    "CaptureError",
    "DataType",
    "Device",
    "EmissionError",
    "GraphContext",
    "GraphError",
    "InferenceError",
    "Layout",
    "MemoryFormat",
    "ModelFileError",
    "MutationError",
    "Names",
    "Number",
    "OpsetError",
    "OpsettaError",
    "RegistrationError",
    "Registry",
    "SymbolicFunction",
    "UnsafeAnnotation",
    "UnsupportedError",
    "UnsupportedOperator",
    "UnsupportedOperatorsError",
    "Value",
    "VerificationError",
    "arguments",
    "default_registry",
    "dtypes",
    "load_entry_points",
    "onnx_symbolic",
    "opsets",
    "schemas",
    "shape_inference",
]
