"""The functions that run the nodes of a TorchScript graph, a module for each subject."""

# The modules register their functions.
from ..library import find
from . import arithmetic, containers, control_flow, loops, statements, tensors, transformers
