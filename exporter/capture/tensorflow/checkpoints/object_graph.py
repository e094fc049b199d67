"""Finds the names of variables in an object-based checkpoint, whose keys are attribute paths."""

import math

import numpy as np

from .....registration import ModelFileError
from ..element_types import numpy_type
from .entries import parse_message
from .variables import Checkpoint

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The key of the graph of objects."""


def keys_by_name(checkpoint: Checkpoint) -> dict[str, list[str]]:
    """The keys of the named variables, in the order of the objects; a name may have several keys.

    Empty for a name-based checkpoint, which has no objects.

    Raises:
        ModelFileError: the graph of objects is damaged.
    """
    if OBJECT_GRAPH not in checkpoint:
        return {}
    label = f"the graph of objects of the checkpoint '{checkpoint.path}'"
    variable = checkpoint[OBJECT_GRAPH]
    # Bytes of another variable might be any number of strings.
    if numpy_type(variable.dtype) != np.object_ or math.prod(variable.shape) != 1:
        raise ModelFileError(f"{label} is damaged: it is not a single string")
    graph = parse_message("TrackableObjectGraph", variable.read().item(), label)
    keys: dict[str, list[str]] = {}
    for node in graph.nodes:
        for attribute in node.attributes:
            if attribute.full_name and attribute.checkpoint_key in checkpoint:
                keys.setdefault(attribute.full_name, []).append(attribute.checkpoint_key)
    return keys
