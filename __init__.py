"""opsetta: any model, any opset.

`export(model, args, opset=N)` turns a PyTorch model into ONNX at exactly the opset that you ask for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .deferred_sympy import defer_sympy

if TYPE_CHECKING:
    from .exporter import (
        HuggingFaceExport,
        MemoryDescriptor,
        OnnxModel,
        PackedWeight,
        Plan,
        Program,
        Report,
        SourceModel,
        StreamingSession,
        SweepResults,
        TextGenerator,
        TrainingProgram,
        TrainingSession,
        check_inplace,
        export,
        export_huggingface,
        export_report,
        export_training,
        load,
        load_session,
        open_weights,
        prepack,
        prepack_conv,
        prepack_linear,
        quantize_weights,
        realize,
        run_in_arena,
        run_streaming,
        save_streaming,
        sweep,
    )
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
        InvalidNodesError,
        ModelFileError,
        MutationError,
        NarrowedError,
        OpsetError,
        OpsettaError,
        PlanError,
        PrepackError,
        PrepackUnavailable,
        RegistrationError,
        Registry,
        ResultError,
        TargetError,
        UnsupportedError,
        UnsupportedOperatorsError,
        UsageError,
        Value,
        VerificationError,
        default_registry,
        onnx_symbolic,
    )

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
    "HuggingFaceExport",
    "InferenceError",
    "InvalidNodesError",
    "MemoryDescriptor",
    "ModelFileError",
    "MutationError",
    "NarrowedError",
    "OnnxModel",
    "OpsetError",
    "OpsettaError",
    "PackedWeight",
    "Plan",
    "PlanError",
    "PrepackError",
    "PrepackUnavailable",
    "Program",
    "RegistrationError",
    "Registry",
    "Report",
    "ResultError",
    "SourceModel",
    "StreamingSession",
    "SweepResults",
    "TargetError",
    "TextGenerator",
    "TrainingProgram",
    "TrainingSession",
    "UnsupportedError",
    "UnsupportedOperatorsError",
    "UsageError",
    "Value",
    "VerificationError",
    "check_inplace",
    "default_registry",
    "export",
    "export_huggingface",
    "export_report",
    "export_training",
    "load",
    "load_session",
    "onnx_symbolic",
    "open_weights",
    "prepack",
    "prepack_conv",
    "prepack_linear",
    "quantize_weights",
    "realize",
    "run_in_arena",
    "run_streaming",
    "save_streaming",
    "sweep",
]


defer_sympy()


def __getattr__(name: str) -> Any:
    # `import opsetta` is fast: other modules are imported at their first use.
    if name in ("exporter", "registration"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'opsetta' has no attribute '{name}'")
    from . import exporter

    if name in exporter.__all__:
        return getattr(exporter, name)
    from . import registration

    if name in ("default_registry", "onnx_symbolic"):
        # Registers opsetta's own functions, before a caller looks for one or overrides one.
        from . import symbolics  # noqa: F401
    return getattr(registration, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
