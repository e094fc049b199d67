"""Lists the weights of TensorFlow graphs and checkpoints, and says what their dimensions are."""

from .layouts import Layout
from .listing import Weight, weights_of_checkpoint, weights_of_graph

__all__ = ["Layout", "Weight", "weights_of_checkpoint", "weights_of_graph"]
