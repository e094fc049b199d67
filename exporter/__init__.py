"""Captures models, lowers them, runs and verifies them, and reads and writes files."""

from .capture.stored_weights.opening import open_weights
from .deployment.plan import Plan, run_in_arena
from .deployment.prepack import PackedWeight, load_session, prepack_conv, prepack_linear
from .deployment.prepack.memory_descriptor import MemoryDescriptor
from .deployment.streaming import StreamingSession, run_streaming, save_streaming
from .entry import export
from .loading import load
from .onnx_model import OnnxModel
from .program import Program, SourceModel
from .realizing import realize
from .running.inplace_check import check_inplace

__all__ = [
    "MemoryDescriptor",
    "OnnxModel",
    "PackedWeight",
    "Plan",
    "Program",
    "SourceModel",
    "StreamingSession",
    "check_inplace",
    "export",
    "load",
    "load_session",
    "open_weights",
    "prepack_conv",
    "prepack_linear",
    "realize",
    "run_in_arena",
    "run_streaming",
    "save_streaming",
]
