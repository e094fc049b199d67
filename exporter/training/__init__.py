"""Training graphs: forward, backward and the optimizer's update as one ONNX model, and a runner for it."""

from .program import TrainingProgram
from .session import TrainingSession
from .signature import Signature
from .training_export import export_training

__all__ = ["Signature", "TrainingProgram", "TrainingSession", "export_training"]
