"""Captures models, lowers them, runs and verifies them, and reads and writes files."""

from typing import TYPE_CHECKING

from ..registration.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from .capture.stored_weights.opening import open_weights
    from .devices.plan import Plan, run_in_arena
    from .devices.prepack import PackedWeight, load_session, prepack, prepack_conv, prepack_linear
    from .devices.prepack.memory_descriptor import MemoryDescriptor
    from .devices.streaming import StreamingSession, run_streaming, save_streaming
    from .export_model import export
    from .huggingface import HuggingFaceExport, TextGenerator, export_huggingface
    from .load_model import load
    from .onnx_model import OnnxModel
    from .program import Program, SourceModel
    from .quantizing import quantize_weights
    from .realizing import realize
    from .report.records import Report
    from .reporting import export_report
    from .running.inplace_check import check_inplace
    from .sweeps.run_sweep import SweepResults, sweep
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

if not TYPE_CHECKING:
    # A command or a call imports what it needs, and not all of the exporter.
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".capture.stored_weights.opening": ("open_weights",),
            ".devices.plan": ("Plan", "run_in_arena"),
            ".devices.prepack": ("PackedWeight", "load_session", "prepack", "prepack_conv", "prepack_linear"),
            ".devices.prepack.memory_descriptor": ("MemoryDescriptor",),
            ".devices.streaming": ("StreamingSession", "run_streaming", "save_streaming"),
            ".export_model": ("export",),
            ".huggingface": ("HuggingFaceExport", "TextGenerator", "export_huggingface"),
            ".load_model": ("load",),
            ".onnx_model": ("OnnxModel",),
            ".program": ("Program", "SourceModel"),
            ".quantizing": ("quantize_weights",),
            ".realizing": ("realize",),
            ".report.records": ("Report",),
            ".reporting": ("export_report",),
            ".running.inplace_check": ("check_inplace",),
            ".sweeps.run_sweep": ("SweepResults", "sweep"),
            ".training": ("TrainingProgram", "TrainingSession", "export_training"),
        },
    )
