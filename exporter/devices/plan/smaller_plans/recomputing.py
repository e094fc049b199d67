"""Runs nodes again shortly before late readers of their results, so that a plan meets a memory limit."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from .....passes.onnx_graph.inplace.annotations import annotate_inplace
from .....passes.planning import buffers_of
from .....passes.planning.node_work import is_repeatable, work_of
from .....passes.planning.order import captured_values
from .....passes.planning.recomputation import EffectGraph, Execution, NodeEffect, recompute
from .....registration import PLAN_PHASE
from .....registration.arguments import every_node
from ....lowering.conversion.prepared_models.preparation import copy_of
from .live_memory import MemoryModel
from .reordering import overwritable_operands


def recompute_nodes(
    model: ir.Model,
    memory_model: MemoryModel,
    consumed: Mapping[str, str] | None,
    limit: int,
    most_work: float,
) -> tuple[ir.Model, float]:
    """Repeat nodes of a model so that its plan needs at most `limit` bytes, or as few as the search finds.

    The results stay the same, bit for bit. A repeated node runs in the phase of its reader.

    Args:
        model: the model, in execution order, with in-place annotations.
        consumed: by name of an input that may be overwritten, the output that is its next value; None if no
            node overwrites an operand.
        most_work: the most operations that repeated nodes may add, as a share of the model's operations.

    Returns:
        A changed copy, or the model itself; and the added operations, as a share of the model's.

    Raises:
        PlanError: a size is a formula.
    """
    work = sum(map(work_of, model.graph))
    changed = copy_of(model)
    problem, values = _problem(changed.graph, memory_model, consumed)
    _rewrite(changed.graph, recompute(problem, limit, int(most_work * work)), values)
    if consumed is not None:
        annotate_inplace(changed, consumed)
    # A repeated reader of a state must not move the state's next value out of its buffer.
    before, after = (memory_model.lay_out(graph) for graph in (model.graph, changed.graph))
    if memory_model.states_in_place(after) < memory_model.states_in_place(before):
        return model, 0.0
    return changed, max(0.0, sum(map(work_of, changed.graph)) / max(work, 1) - 1)


def _problem(
    graph: ir.Graph, memory_model: MemoryModel, consumed: Mapping[str, str] | None
) -> tuple[EffectGraph, list[ir.Value]]:
    """Describe a graph for `recompute`; return the description, and the values by number.

    Raises:
        PlanError: a size is a formula.
    """
    nodes = list(graph)
    # Values that share a buffer only by an in-place result count separately: the search decides about them.
    memory = buffers_of(graph, nodes, overwrites=False)
    intervals = memory_model.intervals(memory)
    size_of = {id(buffer): interval.size for buffer, interval in zip(memory.buffers, intervals, strict=False)}
    values = list(memory.of)
    numbers = {value: number for number, value in enumerate(values)}
    opset = graph.opset_imports.get("", 0)
    operations = []
    for node in nodes:
        candidates = [] if consumed is None else overwritable_operands(node, graph, memory_model.dimensions)
        operations.append(
            NodeEffect(
                tuple(-1 if value is None else numbers.get(value, -1) for value in node.inputs),
                tuple(numbers[value] for value in captured_values(node) if value in numbers),
                tuple(numbers[value] for value in node.outputs if value in numbers),
                node in memory.views and memory.views[node] in numbers,
                tuple(
                    position
                    for position, value in enumerate(node.inputs)
                    if any(value is candidate for candidate in candidates)
                ),
                work_of(node),
                is_repeatable(node, opset),
                memory_model.workspaces.get(node.name or "", 0),
            )
        )
    inputs = {value: numbers[value] for value in graph.inputs if value in numbers}
    problem = EffectGraph(
        operations,
        [size_of[id(memory.of[value])] for value in values],
        frozenset(inputs.values()),
        frozenset(number for value, number in inputs.items() if value.name in (consumed or {})),
        frozenset(numbers[value] for value in graph.outputs if value in numbers),
    )
    return problem, values


def _rewrite(graph: ir.Graph, executions: Sequence[Execution], values: Sequence[ir.Value]) -> None:
    """Replace the nodes of a graph by the sequence of executions, some of which repeat a node."""
    nodes = list(graph)
    numbers = {value: number for number, value in enumerate(values)}
    names = {value.name or "" for node in every_node(graph) for value in node.outputs}
    names |= {value.name or "" for value in (*graph.inputs, *graph.initializers.values())}
    node_names = {node.name or "" for node in every_node(graph)}
    versions = {numbers[value]: value for value in graph.inputs if value in numbers}
    ordered: list[ir.Node] = []
    executed: set[int] = set()
    for execution in executions:
        node = nodes[execution.operation]
        inputs = [
            value if number < 0 else versions[number]
            for value, number in zip(node.inputs, execution.reads, strict=True)
        ]
        outputs = [value for value in node.outputs if value in numbers]
        run = node
        # The first execution of a node is the node itself, even if it is later than in the model.
        # Further executions are copies.
        if execution.operation in executed:
            run = _copy_node(node, inputs, names, node_names)
        else:
            for position, value in enumerate(inputs):
                node.replace_input_with(position, value)
        executed.add(execution.operation)
        written = [run.outputs[node.outputs.index(value)] for value in outputs]
        versions.update(zip(execution.writes, written, strict=True))
        ordered.append(run)
    phase = None
    for execution, run in zip(reversed(executions), reversed(ordered), strict=True):
        is_added = any(version >= len(values) for version in execution.writes)
        if not is_added:
            phase = run.metadata_props.get(PLAN_PHASE)
        elif phase is not None:
            run.metadata_props[PLAN_PHASE] = phase
    for number, node in enumerate(nodes):
        if number not in executed:
            for position in range(len(node.inputs)):
                node.replace_input_with(position, None)
    for node in nodes:
        graph.remove(node)
    graph.extend(ordered)


def _copy_node(
    node: ir.Node, inputs: Sequence[ir.Value | None], names: set[str], node_names: set[str]
) -> ir.Node:
    """Copy a node to run it again, with unique names."""
    run = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        list(node.attributes.values()),
        num_outputs=len(node.outputs),
        name=_unused_name(node.name or "", node_names),
        metadata_props=dict(node.metadata_props),
    )
    for output, value in zip(run.outputs, node.outputs, strict=True):
        output.name = _unused_name(value.name, names) if value.name else ""
        output.type, output.shape = value.type, value.shape
    return run


def _unused_name(name: str, names: set[str]) -> str:
    """Return an unused name for a copied node or its result, and add it to `names`."""
    candidate = next(text for number in itertools.count(2) if (text := f"{name}/run_{number}") not in names)
    names.add(candidate)
    return candidate
