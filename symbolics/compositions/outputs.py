"""Which outputs of the source node anything uses."""

from ...registration import GraphContext


def is_used(g: GraphContext, *outputs: int) -> bool:
    """Whether anything uses one of these outputs of the source node."""
    found = [g.expected[output] for output in outputs if output < len(g.expected)]
    return any(value.uses() or value.is_graph_output() for value in found)
