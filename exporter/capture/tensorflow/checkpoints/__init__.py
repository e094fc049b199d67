"""Reads TensorFlow checkpoints, of the formats V2 and V1, within bounds of time and memory."""

from .checkpoint_files import is_checkpoint, open_checkpoint
from .object_graph import OBJECT_GRAPH, keys_by_name
from .variables import Checkpoint, Region, Variable

__all__ = [
    "OBJECT_GRAPH",
    "Checkpoint",
    "Region",
    "Variable",
    "is_checkpoint",
    "keys_by_name",
    "open_checkpoint",
]
