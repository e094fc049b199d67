"""Marks in recorded graphs: where a recording took one side of a condition, of which it has both sides.

A mark computes nothing. In the source graph it is a node `sym::decision`, until the sides are joined.
"""

from __future__ import annotations

import torch.fx
import torch.fx.node


@torch.fx.node.has_side_effect
def sym_decision(condition: object) -> None:
    """The function that a mark calls with the condition."""


def mark_decision(graph: torch.fx.Graph, condition: torch.fx.Node) -> None:
    """Append a mark to a graph that is being recorded."""
    graph.call_function(sym_decision, (condition,))


def marks_decision(node: torch.fx.Node) -> bool:
    """Whether a node is a mark."""
    return node.target is sym_decision
