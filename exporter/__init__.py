"""Captures models, lowers them, runs and verifies them, and reads and writes files."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .capture.stored_weights.opening import open_weights
    from .deployment.plan import Plan, run_in_arena
    from .deployment.prepack import PackedWeight, load_session, prepack_conv, prepack_linear
    from .deployment.prepack.memory_descriptor import MemoryDescriptor
    from .deployment.streaming import StreamingSession, run_streaming, save_streaming
    from .entry import export
    from .huggingface import HuggingFaceExport, TextGenerator, export_huggingface
    from .loading import load
    from .onnx_model import OnnxModel
    from .program import Program, SourceModel
    from .quantizing import quantize_weights
    from .realizing import realize
    from .report.records import Report
    from .reporting import export_report
    from .running.inplace_check import check_inplace
    from .sweeps.entry import SweepResults, sweep
    from .training import TrainingProgram, TrainingSession, export_training

__all__ = [
    "HuggingFaceExport",
    "MemoryDescriptor",
    "OnnxModel",
    "PackedWeight",
    "Plan",
    "Program",
    "Report",
    "SourceModel",
    "StreamingSession",
    "SweepResults",
    "TextGenerator",
    "TrainingProgram",
    "TrainingSession",
    "check_inplace",
    "export",
    "export_huggingface",
    "export_report",
    "export_training",
    "load",
    "load_session",
    "open_weights",
    "prepack_conv",
    "prepack_linear",
    "quantize_weights",
    "realize",
    "run_in_arena",
    "run_streaming",
    "save_streaming",
    "sweep",
]

_MODULES = {
    "HuggingFaceExport": ".huggingface",
    "MemoryDescriptor": ".deployment.prepack.memory_descriptor",
    "OnnxModel": ".onnx_model",
    "PackedWeight": ".deployment.prepack",
    "Plan": ".deployment.plan",
    "Program": ".program",
    "Report": ".report.records",
    "SourceModel": ".program",
    "StreamingSession": ".deployment.streaming",
    "TextGenerator": ".huggingface",
    "SweepResults": ".sweeps.entry",
    "TrainingProgram": ".training",
    "TrainingSession": ".training",
    "check_inplace": ".running.inplace_check",
    "export": ".entry",
    "export_report": ".reporting",
    "export_huggingface": ".huggingface",
    "export_training": ".training",
    "load": ".loading",
    "load_session": ".deployment.prepack",
    "open_weights": ".capture.stored_weights.opening",
    "prepack_conv": ".deployment.prepack",
    "prepack_linear": ".deployment.prepack",
    "quantize_weights": ".quantizing",
    "realize": ".realizing",
    "run_in_arena": ".deployment.plan",
    "run_streaming": ".deployment.streaming",
    "save_streaming": ".deployment.streaming",
    "sweep": ".sweeps.entry",
}


def __getattr__(name: str) -> Any:
    # A command or a call imports what it needs, and not all of the exporter.
    if name not in _MODULES:
        raise AttributeError(f"module 'opsetta.exporter' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
