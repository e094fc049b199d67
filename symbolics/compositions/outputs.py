"""Tests which outputs of the source node are used."""

from ...registration import GraphContext


def is_used(g: GraphContext, *outputs: int) -> bool:
    """Whether one of these outputs of the source node is used."""
    expected = [g.expected[output] for output in outputs if output < len(g.expected)]
    return any(value.uses() or value.is_graph_output() for value in expected)
