"""Freezes graphs: replaces variables by constants, and removes nodes that inference does not need."""

from .freeze import freeze, frozen_graph, graph_file
from .frozen_graph import FrozenGraph

__all__ = ["FrozenGraph", "freeze", "frozen_graph", "graph_file"]
