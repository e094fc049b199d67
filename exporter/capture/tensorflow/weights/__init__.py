"""Lists the weights of TensorFlow graphs and checkpoints with the meaning of their dimensions."""

from .layouts import Layout
from .listing import Weight, weights_of_checkpoint, weights_of_graph

__all__ = ["Layout", "Weight", "weights_of_checkpoint", "weights_of_graph"]
