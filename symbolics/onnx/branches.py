"""If below opset 11, where shape inference refuses branches with different shapes."""

from collections.abc import Sequence

import onnx_ir as ir

from ...registration import GraphContext, Value
from ...registration.functions.results import as_list
from ..compositions.branches import check_carried, same_rank
from ..compositions.size_arithmetic import same_size
from .support import below


@below("If", 11, any_data=True)
def if_(
    g: GraphContext, cond: Value, then_branch: ir.Graph, else_branch: ir.Graph, outputs: int = 1
) -> Sequence[Value]:
    """Hide the shapes of results that may differ between the branches."""
    types = [value.type for value in then_branch.outputs]
    check_carried(g, "If", then_branch.outputs)
    pairs = [(a.shape, b.shape) for a, b in zip(then_branch.outputs, else_branch.outputs, strict=True)]
    if not all(_agree(a, b) for a, b in pairs):
        _hide(g, then_branch, cond, pairs)
        _hide(g, else_branch, g.op("Not", cond), pairs)
    outputs_of_if = g.op("If", cond, then_branch=then_branch, else_branch=else_branch, outputs=outputs)
    results = as_list(outputs_of_if)
    for result, value_type, pair in zip(results, types, pairs, strict=True):
        result.type = value_type
        if not _agree(*pair):
            result.shape = None
    return results


def _hide(
    g: GraphContext,
    graph: ir.Graph,
    branch_runs: Value,
    pairs: Sequence[tuple[ir.Shape | None, ir.Shape | None]],
) -> None:
    """Hide the shapes of the branch's results that may differ from the other branch's."""
    results = list(graph.outputs)
    # `build` appends the outputs again, hidden or not.
    graph.outputs.clear()

    def build() -> list[Value]:
        return [
            value if _agree(a, b) else g.call("composed::branch_result", value, branch_runs, same_rank(a, b))
            for value, (a, b) in zip(results, pairs, strict=True)
        ]

    g.extend(graph, build)


def _agree(a: ir.Shape | None, b: ir.Shape | None) -> bool:
    """Whether shape inference knows the same shape for both results."""
    if a is None or b is None:
        return a is b
    return len(a) == len(b) and all(
        same_size(x, y) or (_is_unnamed(x) and _is_unnamed(y)) for x, y in zip(a, b, strict=True)
    )


def _is_unnamed(size: int | ir.SymbolicDim) -> bool:
    """Whether nothing is known of a size, not even a name."""
    return isinstance(size, ir.SymbolicDim) and size.value is None
