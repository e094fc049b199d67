"""The functions that run the nodes of a TorchScript graph, a module for each subject."""

# Importing the modules registers their functions.
from ..library import find
from . import (
    containers,
    script_arithmetic,
    script_branches,
    script_loops,
    statements,
    tensor_properties,
    transformers,
)

__all__ = ["find"]
