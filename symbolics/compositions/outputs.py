"""Which outputs of the source node anything uses."""

from ...registration import GraphContext


def is_used(g: GraphContext, output: int) -> bool:
    """Whether anything uses this output of the source node."""
    if len(g.expected) <= output:
        return False
    value = g.expected[output]
    return bool(value.uses()) or value.is_graph_output()
