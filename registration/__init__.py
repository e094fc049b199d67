"""The basis of symbolic functions: registry, dispatch, emission of ONNX operators, errors."""

from onnx_ir import DataType, Value

from . import arguments, dtypes, opsets, schemas
from .arguments import Device, Layout, MemoryFormat
from .construction import Construction, Limits
from .context import Block, GraphContext
from .dispatch import SymbolicFunction
from .dtypes import Number
from .emission import shape_inference
from .errors import (
    AnnotationError,
    ArgumentError,
    CaptureError,
    DimensionError,
    EmissionError,
    GraphError,
    InferenceError,
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
from .facts import facts_of, held_in, holder_of, state
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
from .names import Names, names_of
from .opsets import DEFAULT_OPSET, MAXIMUM_OPSET, MINIMUM_OPSET
from .registry import Registry, default_registry, load_entry_points, onnx_symbolic, registry_or_default
from .results import absent_result, composed_results, results_of
