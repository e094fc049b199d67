"""The basis of symbolic functions: registry, dispatch, emission of ONNX operators, errors.

Names that need onnx_ir, which imports sympy, are imported at their first use.
"""

from typing import TYPE_CHECKING

from .errors import (
    AnnotationError,
    ArgumentError,
    CaptureError,
    DimensionError,
    EmissionError,
    GraphError,
    InferenceError,
    InvalidNode,
    InvalidNodesError,
    ModelFileError,
    MutationError,
    OpsetError,
    OpsettaError,
    PlanError,
    PrepackError,
    PrepackUnavailable,
    RegistrationError,
    ResultError,
    TargetError,
    TargetProblem,
    UnsafeAnnotation,
    UnsupportedError,
    UnsupportedOperator,
    UnsupportedOperatorsError,
    UsageError,
    VerificationError,
)
from .lazy_imports import lazy_imports
from .metadata import (
    ALIAS,
    COMPLEX,
    DIMENSIONS,
    FIXED_WEIGHTS,
    FROZEN,
    GROWS,
    INPLACE,
    KIND,
    LINE,
    MAY_OVERWRITE,
    MEMORY_FORMAT,
    MODULE,
    MUTATES,
    NUMBER,
    PERSISTENT,
    PLAN_BODIES,
    PLAN_BUFFER,
    PLAN_IN_PLACE,
    PLAN_INPUTS,
    PLAN_LIFETIME,
    PLAN_OFFSET,
    PLAN_ORDER,
    PLAN_PEAK,
    PLAN_PHASE,
    PLAN_SIZE,
    RANGES,
    SOURCE,
    SPECIALIZATIONS,
    TRAINABLE,
    TRAINING,
    UNSHAPED,
)
from .opsets import DEFAULT_OPSET, MAXIMUM_OPSET, MINIMUM_OPSET

if TYPE_CHECKING:
    from onnx_ir import DataType, Value

    from . import arguments, dtypes, opsets, schemas
    from .arguments import Device, Layout, MemoryFormat
    from .construction.facts import facts_of, held_in, holder_of, state
    from .construction.graph import Construction, Limits
    from .construction.names import Names, names_of
    from .context import Block, GraphContext
    from .dtypes import Number
    from .functions.dispatch import SymbolicFunction
    from .functions.registry import (
        Registry,
        default_registry,
        load_entry_points,
        onnx_symbolic,
        registry_or_default,
    )
    from .functions.results import absent_result, composed_results, results_of
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "onnx_ir": ("DataType", "Value"),
            ".": ("arguments", "dtypes", "schemas"),
            ".arguments": ("Device", "Layout", "MemoryFormat"),
            ".construction.graph": ("Construction", "Limits"),
            ".context": ("Block", "GraphContext"),
            ".functions.dispatch": ("SymbolicFunction",),
            ".dtypes": ("Number",),
            ".construction.facts": ("facts_of", "held_in", "holder_of", "state"),
            ".construction.names": ("Names", "names_of"),
            ".functions.registry": (
                "Registry",
                "default_registry",
                "load_entry_points",
                "onnx_symbolic",
                "registry_or_default",
            ),
            ".functions.results": ("absent_result", "composed_results", "results_of"),
        },
    )
