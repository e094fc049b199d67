"""Freezes graphs: variables become constants, and what inference does not reach is left out."""

from .freeze import freeze, frozen_graph, graph_file
from .frozen_graph import FrozenGraph

__all__ = ["FrozenGraph", "freeze", "frozen_graph", "graph_file"]
