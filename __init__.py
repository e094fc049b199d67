"""opsetta: any model, any opset.

`export(model, args, opset=N)` turns a PyTorch model into ONNX at exactly the opset that you ask for.
"""

import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from .deferred_sympy import defer_sympy

if TYPE_CHECKING:
    from .exporter.capture.stored_weights.opening import open_weights
    from .exporter.devices.plan.arena import run_in_arena
    from .exporter.devices.plan.forms.tflite_plan import TflitePlan, plan_tflite
    from .exporter.devices.plan.plan import Plan
    from .exporter.devices.prepack.memory_descriptor import MemoryDescriptor
    from .exporter.devices.prepack.packed_models import prepack
    from .exporter.devices.prepack.packed_session import load_session
    from .exporter.devices.prepack.packed_weights import PackedWeight, prepack_conv, prepack_linear
    from .exporter.devices.streaming import StreamingSession, run_streaming, save_streaming
    from .exporter.export_model import export
    from .exporter.huggingface import HuggingFaceExport, TextGenerator, export_huggingface
    from .exporter.load_model import load
    from .exporter.onnx_model import OnnxModel
    from .exporter.program import Program, SourceModel
    from .exporter.quantizing import quantize_weights
    from .exporter.realizing import realize
    from .exporter.report.records import Report
    from .exporter.reporting import export_report
    from .exporter.running.comparisons.inplace_check import check_inplace
    from .exporter.sweeps.run_sweep import SweepResults, sweep
    from .exporter.training import TrainingProgram, TrainingSession, export_training
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
    "TflitePlan",
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
    "plan_tflite",
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


_modules: dict[str, Collection[str]] = {
    ".exporter.capture.stored_weights.opening": ("open_weights",),
    ".exporter.devices.plan.arena": ("run_in_arena",),
    ".exporter.devices.plan.plan": ("Plan",),
    ".exporter.devices.plan.forms.tflite_plan": ("TflitePlan", "plan_tflite"),
    ".exporter.devices.prepack.memory_descriptor": ("MemoryDescriptor",),
    ".exporter.devices.prepack.packed_models": ("prepack",),
    ".exporter.devices.prepack.packed_session": ("load_session",),
    ".exporter.devices.prepack.packed_weights": ("PackedWeight", "prepack_conv", "prepack_linear"),
    ".exporter.devices.streaming": ("StreamingSession", "run_streaming", "save_streaming"),
    ".exporter.export_model": ("export",),
    ".exporter.huggingface": ("HuggingFaceExport", "TextGenerator", "export_huggingface"),
    ".exporter.load_model": ("load",),
    ".exporter.onnx_model": ("OnnxModel",),
    ".exporter.program": ("Program", "SourceModel"),
    ".exporter.quantizing": ("quantize_weights",),
    ".exporter.realizing": ("realize",),
    ".exporter.report.records": ("Report",),
    ".exporter.reporting": ("export_report",),
    ".exporter.running.comparisons.inplace_check": ("check_inplace",),
    ".exporter.sweeps.run_sweep": ("SweepResults", "sweep"),
    ".exporter.training": ("TrainingProgram", "TrainingSession", "export_training"),
}
_modules[".registration"] = {*__all__}.difference(*_modules.values())


def __getattr__(name: str) -> Any:
    # `import opsetta` is fast: other modules are imported at their first use.
    if name in ("exporter", "registration"):
        return importlib.import_module(f"{__name__}.{name}")
    module = next((module for module, names in _modules.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if name in ("default_registry", "onnx_symbolic"):
        # Registers opsetta's own functions, before a caller looks for one or overrides one.
        from . import symbolics  # noqa: F401
    return getattr(importlib.import_module(module, __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
