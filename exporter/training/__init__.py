"""Training graphs: forward, backward and the optimizer's update as one ONNX model, and a runner for it."""

from .entry import export_training
from .program import TrainingProgram
from .session import TrainingSession
from .signature import Signature

__all__ = ["Signature", "TrainingProgram", "TrainingSession", "export_training"]
