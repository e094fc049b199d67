"""Lists the weights of TensorFlow graphs and checkpoints with the meaning of their dimensions."""

from .layouts import WeightLayout
from .listing import Weight, weights_of_checkpoint, weights_of_graph

__all__ = ["Weight", "WeightLayout", "weights_of_checkpoint", "weights_of_graph"]
