"""TorchScript's branches and loops, the `prim` dialect, as If and Loop, with lists."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ...registration import Block, DataType, GraphContext, Number, Value, onnx_symbolic, schemas
from ...registration.functions.results import as_list
from ..compositions.branches import check_carried, constant_condition, extend_branch, open_branch
from ..compositions.list_values import (
    KnownList,
    as_sequence,
    as_stacked,
    common_shape,
    concatenate_stacked,
    element_shape,
    is_sequence,
    is_settled,
    is_stacked,
    loop_inputs,
    may_stack,
    merge_dimensions,
)
from ..compositions.size_arithmetic import Dim, fold_size, mark_non_negative
from .list_flow import grows_evenly, is_list, is_stacked_later

_ENDLESS = np.iinfo(np.int64).max

_Form = Callable[[GraphContext, Value], Value]
"""Converts a value to the form in which a sub-graph takes or returns it."""


@onnx_symbolic("prim::Constant")
def constant(g: GraphContext, value: Number) -> Value:
    """A Python number as a value, for the result of a block."""
    [expected] = g.expected
    return g.constant(value, expected.dtype)


def _keep(g: GraphContext, value: Value) -> Value:
    return value


def _form_of_list(
    g: GraphContext,
    op_type: str,
    output: Value,
    lists: Sequence[Value],
    shape: Sequence[Dim] | None,
    uniform: bool,
) -> _Form:
    """The representation of a list that an If or a Loop returns: stacked if possible, else a sequence.

    Opsets that cannot return sequences stack the list if the model itself stacks it later.

    Args:
        output: the source value of the result.
        lists: the lists that become the result, or the first of them.
        shape: the shape of its elements, as far as it is known.
        uniform: whether elements that are not in `lists` are known to have the same shape.

    Raises:
        UnsupportedError: no form is certain to work.
    """
    may_be_empty = any(isinstance(candidate, KnownList) and not candidate.items for candidate in lists)
    nonempty_lists = [
        candidate for candidate in lists if not isinstance(candidate, KnownList) or candidate.items
    ]
    fixed_size = not may_be_empty or (shape is not None and all(isinstance(size, int) for size in shape))
    equal_shapes = uniform and all(map(may_stack, nonempty_lists))

    dtype = output.dtype or next(
        (candidate.dtype for candidate in lists if candidate.dtype is not None), None
    )

    def stack_list(g: GraphContext, value: Value) -> Value:
        return as_stacked(g, value, shape, dtype)

    def make_sequence(g: GraphContext, value: Value) -> Value:
        return as_sequence(g, value, dtype)

    if equal_shapes and fixed_size:
        return stack_list
    sequence = Value(type=ir.SequenceType(ir.TensorType(dtype or DataType.FLOAT)))
    if g.has(op_type, result=sequence):
        return make_sequence
    certain = not any(map(is_sequence, nonempty_lists)) and (equal_shapes or is_stacked_later(g, output))
    if certain and (shape is not None or not may_be_empty):
        return stack_list
    raise g.refuse(
        f"the elements of list '{output.name}' may differ in shape, and ONNX operator {op_type} cannot "
        f"return sequences at opset {g.opset}",
        schemas.first_opset_that_carries(op_type, sequence, after=g.opset),
    )


def _copy_outside_lists(g: GraphContext, values: Sequence[Value]) -> list[Value]:
    """Copy the sequences among a sub-graph's results that come from outside or are returned twice."""
    result: list[Value] = []
    for value in values:
        node = value.producer()
        if is_sequence(value) and (node is None or node.graph is not g.graph or value in result):
            # ONNX wants each output of a sub-graph to be a different value, computed inside it.
            value = g.call("composed::copied_list", self=value)
        result.append(value)
    return result


@onnx_symbolic("prim::If")
def if_(g: GraphContext, condition: Value | bool) -> Sequence[Value]:
    """A conditional; if the condition is constant, the taken branch is inlined."""
    blocks = g.blocks
    decided = constant_condition(condition)
    if decided is not None:
        return blocks[0 if decided else 1].inline()
    expected = list(g.expected)
    if not expected:
        return []
    branches = [open_branch(g, block.inline, block.graph.name or "branch") for block in blocks]
    forms = [_branch_form(g, o, [results[i] for _, results in branches]) for i, o in enumerate(expected)]
    converted = [_convert_results(g, graph, forms, results) for graph, results in branches]
    types = [_branch_type(g, output, pair) for output, *pair in zip(expected, *converted, strict=True)]
    choice = g.cast(g.constant(condition), DataType.BOOL)
    for (graph, _), results, is_then in zip(branches, converted, (True, False), strict=True):
        _close(g, graph, choice, is_then, results, types)
    graphs = [graph for graph, _ in branches]
    outputs = as_list(g.op("If", choice, then_branch=graphs[0], else_branch=graphs[1], outputs=len(expected)))
    for value, like in zip(outputs, types, strict=True):
        value.type, value.shape = like.type, like.shape
    return outputs


def _convert_results(
    g: GraphContext, graph: ir.Graph, forms: Sequence[_Form], results: Sequence[Value]
) -> list[Value]:
    """Convert the results of a branch to the representations common to both branches."""
    return extend_branch(
        g, graph, lambda: [form(g, value) for form, value in zip(forms, results, strict=True)]
    )


def _close(
    g: GraphContext,
    graph: ir.Graph,
    condition: Value,
    is_then: bool,
    results: Sequence[Value],
    types: Sequence[Value],
) -> None:
    """Set the outputs of a branch; hide shapes that differ from the other branch."""

    def build() -> list[Value]:
        outputs = list(results)
        for i, (value, like) in enumerate(zip(results, types, strict=True)):
            if not is_sequence(value) and not is_settled(like.shape):
                branch_runs = condition if is_then else g.op("Not", condition)
                same_rank = like.shape is not None
                outputs[i] = g.call("composed::branch_result", value, branch_runs, same_rank)
        return _copy_outside_lists(g, outputs)

    g.extend(graph, build)


def _branch_form(g: GraphContext, output: Value, results: Sequence[Value]) -> _Form:
    if not is_list(output) and not any(
        isinstance(result, KnownList) or is_sequence(result) for result in results
    ):
        return _keep
    shapes = [shape for shape in map(element_shape, results) if shape is not None]
    shape = list(output.shape) if output.shape is not None else common_shape(shapes)
    return _form_of_list(g, "If", output, results, shape, uniform=True)


def _branch_type(g: GraphContext, output: Value, results: Sequence[Value]) -> Value:
    """A value with the common type and shape of both branches."""
    first, second = results
    if first.dtype is not None and second.dtype is not None and first.dtype != second.dtype:
        raise g.refuse(
            f"one branch returns {first.dtype.name} as '{output.name}', and the other {second.dtype.name}: "
            "convert one of them"
        )
    shape = common_shape([first.shape, second.shape])
    like = Value(
        type=first.type if first.dtype is not None else second.type,
        shape=None if shape is None else ir.Shape(shape),
    )
    check_carried(g, "If", [like])
    return like


@dataclasses.dataclass
class _Carried:
    """The lowering of one carried value of a loop.

    Attributes:
        scanned: a list that every iteration appends to: its new elements are scan outputs.
        initial: its value before the loop, in `form` unless it is scanned.
        form: the form of the body's result for it.
        formal: a value with the type of the body's input.
    """

    scanned: bool
    initial: Value
    form: _Form
    formal: Value


def _plan_carried(g: GraphContext, body: ir.Graph, index: int, initial: Value, output: Value) -> _Carried:
    formal = body.inputs[index + 1]
    evenly = grows_evenly(body, index)
    if not is_list(formal) and not isinstance(initial, KnownList) and not is_sequence(initial):
        if evenly:
            return _Carried(True, initial, _keep, KnownList([], formal.dtype, ir.Shape([])))
        return _Carried(False, initial, _keep, formal)
    shape = common_shape([formal.shape, output.shape])
    uniform = is_settled(shape)
    if evenly and not is_sequence(initial):
        # An empty list with unknown element sizes can be carried only as a sequence.
        empty = isinstance(initial, KnownList) and not initial.items
        sequence = Value(type=ir.SequenceType(ir.TensorType(formal.dtype or DataType.FLOAT)))
        unlisted = empty and not g.has("Loop", result=sequence)
        if uniform or unlisted or is_stacked_later(g, output):
            return _Carried(True, initial, _keep, KnownList([], formal.dtype, formal.shape))
    form = _form_of_list(g, "Loop", output, [initial], shape, uniform)
    first = form(g, initial)
    element_sizes = common_shape([element_shape(first), shape])
    like = Value(name=formal.name, type=first.type)
    if element_sizes is not None:
        like.shape = ir.Shape([None, *element_sizes] if is_stacked(first) else element_sizes)
    return _Carried(False, first, form, like)


@onnx_symbolic("prim::Loop")
def loop(
    g: GraphContext, max_trip_count: Value | int, condition: Value | bool, carried: list[Value | Number]
) -> Sequence[Value]:
    """A loop with carried values. A loop that never runs returns their initial values.

    A list to which every iteration appends becomes a scan output; other lists are carried.
    """
    [body] = g.blocks
    expected = list(g.expected)
    initial_values = [
        value if isinstance(value, KnownList) else g.constant(value, output.dtype)
        for value, output in zip(carried, expected, strict=True)
    ]
    trips = fold_size(g, max_trip_count)
    decided = constant_condition(condition)
    if decided is False or (isinstance(trips, int) and trips <= 0) or not initial_values:
        return initial_values
    plans = [
        _plan_carried(g, body.graph, i, value, output)
        for i, (value, output) in enumerate(zip(initial_values, expected, strict=True))
    ]
    carried_plans = [plan for plan in plans if not plan.scanned]
    check_carried(g, "Loop", [plan.initial for plan in carried_plans])
    graph, scans, always_continues = _loop_body(g, body, plans)
    initial = [plan.initial for plan in carried_plans] or [g.constant(False)]
    results = as_list(
        g.op(
            "Loop",
            # TorchScript writes `while` as a loop with the largest trip count.
            None if trips == _ENDLESS else g.constant(trips, DataType.INT64),
            None if decided and always_continues else g.constant(condition),
            *initial,
            body=graph,
            outputs=len(graph.outputs) - 1,
        )
    )
    return _loop_results(g, plans, scans, results, graph)


def _loop_body(
    g: GraphContext, body: Block, plans: Sequence[_Carried]
) -> tuple[ir.Graph, dict[int, list[Value]], bool]:
    """The ONNX body, the elements that it appends to scanned lists, and whether its condition is always true.

    Below opset 11 Loop must carry at least one value: without one, a dummy is added.
    """
    carried_plans = [plan for plan in plans if not plan.scanned]
    scans: dict[int, list[Value]] = {}
    always_continues = False

    def build(iteration: Value, keep_going: Value, *formal: Value) -> list[Value]:
        nonlocal always_continues
        mark_non_negative(iteration)
        carried_inputs = iter(formal)
        values = [plan.formal if plan.scanned else next(carried_inputs) for plan in plans]
        condition, *returned = body.inline(iteration, *values)
        always_continues = constant_condition(condition) is True
        results = []
        for index, (plan, value) in enumerate(zip(plans, returned, strict=True)):
            if plan.scanned:
                # The list starts each iteration empty, so the body returns what it appended. After a refused
                # append it returns something else; then the graph is not used.

                scans[index] = value.items if isinstance(value, KnownList) else []
                continue
            value = plan.form(g, value)
            if value.dtype is not None and plan.initial.dtype not in (None, value.dtype):
                name = body.graph.inputs[index + 1].name
                raise g.refuse(
                    f"its carried value '{name}' is {plan.initial.dtype} before the body and "
                    f"{value.dtype} after it: convert one of them"
                )
            results.append(value)
        if not carried_plans:
            results.append(formal[0])
        return [
            condition,
            *_copy_outside_lists(g, results),
            *(appended for items in scans.values() for appended in items),
        ]

    dummy = (
        []
        if carried_plans
        else [Value(name="nothing", type=ir.TensorType(DataType.BOOL), shape=ir.Shape([]))]
    )
    formals = [*loop_inputs(), *(plan.formal for plan in carried_plans), *dummy]
    return g.subgraph(build, formals, body.graph.name or "body"), scans, always_continues


def _loop_results(
    g: GraphContext,
    plans: Sequence[_Carried],
    scans: dict[int, list[Value]],
    results: Sequence[Value],
    graph: ir.Graph,
) -> list[Value]:
    """The carried values after the loop, from the outputs of the ONNX Loop."""
    carried_count = sum(not plan.scanned for plan in plans)
    final, scanned = iter(results[:carried_count]), iter(results[max(carried_count, 1) :])
    items = iter(graph.outputs[1 + max(carried_count, 1) :])
    values = []
    for index, plan in enumerate(plans):
        if not plan.scanned:
            value = next(final)
            value.type, value.shape = plan.initial.type, plan.formal.shape
            values.append(value)
            continue
        appended = []
        for _ in scans[index]:
            value, item = next(scanned), next(items)
            value.type, value.shape = item.type, _scanned_shape(item, plan.formal)
            appended.append(value)
        values.append(_final_list(g, plan.initial, appended))
    return values


def _scanned_shape(element: Value, formal: Value) -> ir.Shape | None:
    """The shape of a scan output; a size named only in the body is unknown outside.

    Args:
        element: the element that an iteration appends.
        formal: the list, whose shape holds for all of its elements.
    """
    if element.shape is None:
        return None
    sizes: list[Dim | None] = [size if isinstance(size, int) else None for size in element.shape]
    if formal.shape is not None and len(formal.shape) == len(sizes):
        sizes = [
            declared if declared is not None else size
            for declared, size in zip(sizes, formal.shape, strict=True)
        ]
    return ir.Shape([None, *sizes])


def _final_list(g: GraphContext, initial: Value, appended: Sequence[Value]) -> Value:
    """The list after a loop: `appended` are the elements that each append of the body produced."""
    if not appended:
        return initial
    if len(appended) == 1:
        grown = appended[0]
    else:
        # Several appends of one iteration alternate in the list: stacked side by side, then merged.
        expanded = [g.op("Unsqueeze", elements, axes=[1]) for elements in appended]
        grown = merge_dimensions(g, g.op("Concat", *expanded, axis=1))
    if isinstance(initial, KnownList) and not initial.items:
        return grown
    return concatenate_stacked(g, as_stacked(g, initial), grown)
