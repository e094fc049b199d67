"""Builds an If whose branches may return different shapes, at every opset."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, facts_of, onnx_symbolic, schemas
from ...registration.functions.results import as_list
from ...registration.inference import folding
from ...registration.size_algebra.dimensions import same_shape

Branch = Callable[[], Sequence[Value]]
"""Emits the nodes of a branch and returns its results."""


def choose(
    g: GraphContext, condition: Value, branches: Sequence[Branch], shapes: Sequence[Sequence[ir.Shape | None]]
) -> list[Value]:
    """Emit an If.

    Args:
        condition: a zero-dim BOOL.
        branches: the branch for true, and the branch for false.
        shapes: the known shapes of each branch's results, one for each result.
    """
    pairs = list(zip(*shapes, strict=True))
    ranks_equal = [same_rank(a, b) for a, b in pairs]
    shapes_equal = [same_shape(a, b) for a, b in pairs]

    def build(branch: Branch, is_true_branch: bool) -> ir.Graph:
        def results() -> list[Value]:
            is_taken = condition if is_true_branch or all(shapes_equal) else g.op("Not", condition)
            return [
                value if same_shape else g.call("composed::branch_result", value, is_taken, equal_rank)
                for value, same_shape, equal_rank in zip(branch(), shapes_equal, ranks_equal, strict=True)
            ]

        return g.subgraph(results, name="then_branch" if is_true_branch else "else_branch")

    then_branch, else_branch = (
        build(b, is_true_branch) for b, is_true_branch in zip(branches, (True, False), strict=True)
    )
    results = g.op(
        "If", condition, then_branch=then_branch, else_branch=else_branch, outputs=len(shapes_equal)
    )
    check_carried(g, "If", then_branch.outputs)
    return as_list(results)


def constant_condition(condition: Value | bool) -> bool | None:
    """The value of a condition on constants, and on state that the model never writes to; else None."""
    if isinstance(condition, bool):
        return condition
    array = _read_contents(condition, {})
    return None if array is None or array.size != 1 else bool(array.item())


_DEPTH = 300
"""How many operators may be between a parameter and a condition."""


def _read_contents(
    value: Value | None, cache: dict[Value, np.ndarray | None], depth: int = 0
) -> np.ndarray | None:
    """Return the contents of a value that does not depend on graph inputs; None if unknown or large.

    Buffers that the model writes to are unknown, because a later call may have a new value.
    """
    if value is None or facts_of(value).mutated:
        return None
    if value in cache:
        return cache[value]
    array, node = None, value.producer()
    if value.const_value is not None:
        array = value.const_value.numpy() if value.const_value.size <= folding.MAXIMUM_ELEMENTS else None
    elif node is not None and not node.domain and len(node.outputs) == 1 and depth < _DEPTH:
        inputs: list[np.ndarray] = []
        for operand in node.inputs:
            contents = _read_contents(operand, cache, depth + 1)
            if contents is None:
                break
            inputs.append(contents)
        else:
            attributes = {name: attribute.value for name, attribute in node.attributes.items()}
            array = folding.evaluate(node.op_type, inputs, attributes, condition=True)
            # The evaluation may give another width of the element type.
            if array is not None and value.dtype is not None:
                array = array.astype(value.dtype.numpy())
    cache[value] = array
    return array


def check_carried(g: GraphContext, op_type: str, values: Sequence[Value]) -> None:
    """Check that an operator with sub-graphs can return values of these types.

    Raises:
        UnsupportedError: it cannot at this opset.
    """
    for value in values:
        if value.dtype is None or g.has(op_type, result=value):
            continue
        later = schemas.first_opset_that_carries(op_type, value, after=g.opset)
        raise g.refuse(
            f"ONNX operator {op_type} cannot return {value.dtype.name} at opset {g.opset}"
            + (f"; from {later} it does" if later else ""),
            later,
        )


def open_branch(g: GraphContext, emit: Branch, name: str) -> tuple[ir.Graph, list[Value]]:
    """Build a branch as an ONNX sub-graph; its outputs are set when both branches are known."""
    # Both branches must exist before their results can be given a common form.
    graph = g.subgraph(list, name=name)
    return graph, extend_branch(g, graph, emit)


def extend_branch(g: GraphContext, graph: ir.Graph, emit: Branch) -> list[Value]:
    """Append nodes to a branch, and return their results."""
    results: list[Value] = []

    def build() -> list[Value]:
        results.extend(emit())
        return []

    g.extend(graph, build)
    return results


@onnx_symbolic("composed::branch_result")
def hide_shape(g: GraphContext, value: Value, chosen: Value, same_rank: bool) -> Value:
    """Hide the shape of a branch's result from shape inference.

    Below opset 11 the results of both branches must have the same inferred shape: otherwise shape inference
    refuses the file, or uses the shape of one branch.

    Args:
        chosen: a BOOL that is true if the branch runs.
        same_rank: whether the other branch returns the same rank, as far as it is known.
    """
    shape = g.op("Mul", g.op("Shape", value), g.cast(chosen, DataType.INT64))
    result = g.op("Reshape", value, shape)
    if not same_rank:
        result.shape = None
    return result


@onnx_symbolic("composed::branch_result", opset=11)
def branch_result(g: GraphContext, value: Value, chosen: Value, same_rank: bool) -> Value:
    """From 11: the results may have different shapes."""
    return value


def same_rank(a: ir.Shape | None, b: ir.Shape | None) -> bool:
    """Whether both ranks are known and equal."""
    return a is not None and b is not None and len(a) == len(b)
