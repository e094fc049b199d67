"""Lowers TensorFlow's While to Loop. Its blocks receive all outer values as arguments."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from ....registration import Block, DataType, GraphContext, Value, onnx_symbolic
from ....registration.arguments import every_node
from ....registration.functions.results import as_list
from ...compositions.branches import check_carried, constant_condition
from ...compositions.list_values import common_shape, loop_inputs
from ...compositions.outputs import is_used
from ...compositions.size_arithmetic import UNKNOWN, Dim, Size, compute, mark_non_negative
from .._common import is_dimension, number
from ..list_values import (
    ScannedList,
    UnwrittenList,
    as_tensor,
    broadcastable_tensor,
    element_sizes,
    resize_list,
)
from ..loop_variables import CounterBound, bounds_of, is_invariant, step_of, writing_counter
from ..recurrent_loops.iteration import InitialValue
from ..recurrent_loops.layers import recurrent_layer
from .conditionals import to_condition


@dataclasses.dataclass
class _LoopVariable:
    """The lowering of a loop variable.

    Attributes:
        initial: its value before the loop.
        is_invariant: whether no iteration changes it.
        step: the number that an iteration adds to it, in a loop whose trip count is known before.
        is_scanned: whether it is a list to which iteration i writes element i.
        body_input: the body's input for a variable that the ONNX loop carries; an `UnwrittenList` as it is.
    """

    initial: Value
    is_invariant: bool = False
    step: int | None = None
    is_scanned: bool = False
    body_input: Value | None = None

    @property
    def is_carried(self) -> bool:
        """Whether the body computes it from the previous iteration's value."""
        return not self.is_invariant and self.step is None and not self.is_scanned

    @property
    def is_loop_input(self) -> bool:
        """Whether it is an input of the ONNX body."""
        return self.is_carried and not isinstance(self.body_input, UnwrittenList)


@onnx_symbolic("tf::While")
def while_(g: GraphContext, input: list[Value]) -> Sequence[Value]:
    """A loop whose condition is evaluated before each iteration.

    If the condition only compares counters, the number of iterations is computed before the loop. The body
    reads invariants from outside, and a list to which each iteration writes the next element becomes a scan
    output.
    """
    condition, body = g.blocks
    bounds = _remove_duplicates(g, bounds_of(condition.graph, body.graph, input))
    trip_count = _trip_count(g, bounds) if bounds else None
    initial_condition = None if bounds else to_condition(g, condition.inline(*input)[0])
    never_runs = trip_count is not None and isinstance(trip_count, int) and trip_count <= 0
    if never_runs or (initial_condition is not None and constant_condition(initial_condition) is False):
        return input
    variables = [_LoopVariable(value, is_invariant(body.graph, index)) for index, value in enumerate(input)]
    for index, variable in enumerate(variables if bounds else ()):
        # Only a scalar is a counter: a tensor that each iteration increases is carried.
        variable.step = step_of(body.graph, index) if g.rank(variable.initial) == 0 else None
    for index, variable in enumerate(variables if bounds else ()):
        counter = writing_counter(body.graph, index)
        if counter is not None and isinstance(variable.initial, UnwrittenList):
            # Element i is written in iteration i only if the counter starts at 0 and advances by 1.
            counter_variable = variables[counter]
            variable.is_scanned = counter_variable.step == 1 and number(g, counter_variable.initial) == 0
    if trip_count is not None:
        layer_values = _run_recurrent_layer(g, body, variables, trip_count)
        if layer_values is not None:
            return _values_after_layer(g, variables, layer_values, bounds, trip_count)
    for variable in variables:
        if variable.is_carried:
            variable.body_input = _body_input(variable.initial, variable.initial.shape)
    loop_body = _build_settled_body(g, condition, body, variables, is_counted=bool(bounds))
    return _emit_loop(g, variables, loop_body, bounds or (), trip_count, initial_condition)


def _remove_duplicates(g: GraphContext, bounds: Sequence[CounterBound] | None) -> list[CounterBound]:
    """Remove duplicate bounds."""
    bounds_by_key: dict[tuple[Value | Size, ...], CounterBound] = {}
    for bound in bounds or ():
        start = number(g, bound.start)
        # Two constants with one number are different values.
        key = (start if isinstance(start, int) else bound.start, bound.limit, bound.limit_offset, bound.step)
        bounds_by_key.setdefault(key, bound)
    return list(bounds_by_key.values())


def _trip_count(g: GraphContext, bounds: Sequence[CounterBound]) -> Size:
    """The number of iterations."""
    count: Size | None = None
    for bound in bounds:
        limit = number(g, bound.limit) if isinstance(bound.limit, Value) else bound.limit
        distance = compute(g, "sub", compute(g, "add", limit, bound.limit_offset), number(g, bound.start))
        # Round up: a last iteration may start anywhere below the limit.
        iterations = compute(g, "floordiv", compute(g, "add", distance, bound.step - 1), bound.step)
        # The loop stops at the first counter that reaches its limit.
        count = iterations if count is None else compute(g, "min", count, iterations)
    assert count is not None
    return max(count, 0) if isinstance(count, int) else count


def _run_recurrent_layer(
    g: GraphContext, body: Block, variables: Sequence[_LoopVariable], trip_count: Size
) -> dict[int, Value] | None:
    """The carried and scanned variables after the loop, if it is a recurrent layer; else None."""
    initial_values = []
    for variable in variables:
        is_counter = variable.step == 1 and number(g, variable.initial) == 0
        initial_values.append(InitialValue(variable.initial, variable.is_invariant, is_counter))
    carried_indices = [index for index, variable in enumerate(variables) if variable.is_carried]
    scanned_indices = [index for index, variable in enumerate(variables) if variable.is_scanned]
    return recurrent_layer(g, body.graph, initial_values, carried_indices, scanned_indices, trip_count)


def _values_after_layer(
    g: GraphContext,
    variables: Sequence[_LoopVariable],
    layer_values: Mapping[int, Value],
    bounds: Sequence[CounterBound],
    trip_count: Size,
) -> list[Value]:
    """The variables after a loop that is a recurrent layer."""
    results = []
    for index, variable in enumerate(variables):
        if index not in layer_values:
            results.append(_value_after_loop(g, index, variable, trip_count))
        elif variable.is_scanned:
            results.append(_list_of_scan(g, variable.initial, bounds, trip_count, layer_values[index]))
        else:
            results.append(layer_values[index])
    return results


def _value_after_loop(g: GraphContext, index: int, variable: _LoopVariable, trip_count: Size | None) -> Value:
    """The value after the loop of an invariant, a counter, or an unused variable."""
    if variable.step is None or not is_used(g, index):
        return variable.initial
    assert trip_count is not None
    return _counter_value(g, variable, compute(g, "max", trip_count, 0))


def _body_input(like: Value, shape: ir.Shape | Sequence[Dim] | None) -> Value:
    if isinstance(like, UnwrittenList):
        return like
    return Value(name=like.name, type=like.type, shape=None if shape is None else ir.Shape(list(shape)))


@dataclasses.dataclass
class _LoopBody:
    """The body of the ONNX loop, and each variable after an iteration.

    The graph returns a condition, the carried variables and the elements of scanned lists. A result may
    still be an `UnwrittenList` or a `ScannedList`.
    """

    graph: ir.Graph
    results: list[Value]


def _build_settled_body(
    g: GraphContext, condition: Block, body: Block, variables: Sequence[_LoopVariable], *, is_counted: bool
) -> _LoopBody:
    """Build the body for shapes of its variables that hold in every iteration.

    The first attempt uses the shapes before the loop. Sizes that an iteration changes become unknown in the
    next attempt, until no size changes.
    """
    while True:
        loop_body = _build_body(g, condition, body, variables, is_counted)
        widened_shapes = [_widen_shape(g, *pair) for pair in zip(variables, loop_body.results, strict=True)]
        if not any(widened_shapes):
            return loop_body
        _discard(loop_body.graph)


def _build_body(
    g: GraphContext, condition: Block, body: Block, variables: Sequence[_LoopVariable], is_counted: bool
) -> _LoopBody:
    body_results: list[Value] = []
    body_inputs = [
        variable.body_input
        for variable in variables
        if variable.is_loop_input and variable.body_input is not None
    ]
    # Before opset 11, Loop must have at least one carried value.
    dummy_input = (
        [] if body_inputs else [Value(name="nothing", type=ir.TensorType(DataType.BOOL), shape=ir.Shape([]))]
    )

    def build(iteration: Value, condition_value: Value, *carried_values: Value) -> list[Value]:
        mark_non_negative(iteration)
        remaining_inputs = iter(carried_values)
        body_results.extend(
            body.inline(*[_value_in_body(g, variable, iteration, remaining_inputs) for variable in variables])
        )
        pairs = list(zip(variables, body_results, strict=True))
        next_values = [variable.initial if variable.is_invariant else value for variable, value in pairs]
        continues = condition_value if is_counted else to_condition(g, condition.inline(*next_values)[0])
        results = [_body_result(g, variable, value) for variable, value in pairs if variable.is_loop_input]
        # A write of an unsupported form leaves the list itself, which is not a `ScannedList` with an element.
        items = [
            value.item if isinstance(value, ScannedList) and value.item is not None else value
            for variable, value in pairs
            if variable.is_scanned
        ]
        # The dummy input is returned unchanged.
        return [continues, *(results or carried_values), *items]

    return _LoopBody(
        g.subgraph(build, [*loop_inputs(), *body_inputs, *dummy_input], body.graph.name or "body"),
        body_results,
    )


def _value_in_body(
    g: GraphContext, variable: _LoopVariable, iteration: Value, remaining_inputs: Iterator[Value]
) -> Value:
    """The value of a variable in the body."""
    if variable.is_invariant:
        return variable.initial
    if variable.step is not None:
        return _counter_value(g, variable, iteration)
    if variable.is_scanned:
        return ScannedList(variable.initial.dtype)
    return next(remaining_inputs) if variable.is_loop_input else variable.initial


def _counter_value(g: GraphContext, variable: _LoopVariable, iterations: Size) -> Value:
    """The value of a counter after some iterations."""
    start, dtype = variable.initial, variable.initial.dtype or DataType.INT64
    increment = g.constant(iterations, dtype)
    if variable.step != 1:
        increment = g.op("Mul", increment, variable.step)
    return increment if number(g, start) == 0 else g.op("Add", start, increment)


def _body_result(g: GraphContext, variable: _LoopVariable, value: Value) -> Value:
    """The result of the body for a variable."""
    value = as_tensor(g, value)
    declared_dtype = variable.initial.dtype
    if declared_dtype is not None and value.dtype is not None and value.dtype != declared_dtype:
        raise g.refuse(
            f"its variable '{variable.initial.name}' is {declared_dtype.name} before the body and "
            f"{value.dtype.name} after it"
        )
    return value


def _widen_shape(g: GraphContext, variable: _LoopVariable, result: Value) -> bool:
    """Generalize the shape of a variable to that of the body's result; return whether it changed.

    A result of unknown rank has the rank of the variable, because TensorFlow demands equal ranks.
    """
    body_input = variable.body_input
    if not variable.is_carried or body_input is None or isinstance(result, UnwrittenList):
        return False
    if isinstance(body_input, UnwrittenList):
        sizes = element_sizes(result)
        if sizes is None:
            raise g.refuse("the rank of the elements of a list that a loop writes is unknown")
        variable.initial = broadcastable_tensor(g, body_input, sizes)
        variable.body_input = _body_input(variable.initial, variable.initial.shape)
        return True
    if body_input.shape is None:
        return False
    shape: list[Dim] | None = [UNKNOWN] * len(body_input.shape)
    if result.shape is not None:
        shape = common_shape([body_input.shape, result.shape])
    if shape is not None and _comparable_sizes(shape) == _comparable_sizes(body_input.shape):
        return False
    variable.body_input = _body_input(body_input, shape)
    return True


def _comparable_sizes(shape: ir.Shape | Sequence[Dim]) -> list[int | str | None]:
    return [size if isinstance(size, int) else size.value for size in shape]


def _discard(graph: ir.Graph) -> None:
    """Detach the nodes of a sub-graph from their inputs."""
    for node in every_node(graph):
        for index in range(len(node.inputs)):
            # Outer values must not list uses in a body that is thrown away.
            node.replace_input_with(index, None)


def _emit_loop(
    g: GraphContext,
    variables: Sequence[_LoopVariable],
    body: _LoopBody,
    bounds: Sequence[CounterBound],
    trip_count: Size | None,
    initial_condition: Value | None,
) -> list[Value]:
    """The variables after the loop."""
    passed_variables = [variable for variable in variables if variable.is_loop_input]
    body_outputs = list(body.graph.outputs)[1:]
    check_carried(g, "Loop", body_outputs)
    outputs = as_list(
        g.op(
            "Loop",
            None if trip_count is None else g.constant(trip_count, DataType.INT64),
            None if initial_condition is None or constant_condition(initial_condition) else initial_condition,
            *([as_tensor(g, variable.initial) for variable in passed_variables] or [g.constant(False)]),
            body=body.graph,
            outputs=len(body_outputs),
        )
    )
    for value, body_output in zip(outputs, body_outputs, strict=True):
        value.type = body_output.type
    # A Loop without carried variables has the dummy in their place.
    scan_start = max(len(passed_variables), 1)
    carried = iter(outputs[: len(passed_variables)])
    scans = zip(outputs[scan_start:], body_outputs[scan_start:], strict=True)
    results = []
    for index, (variable, result) in enumerate(zip(variables, body.results, strict=True)):
        if variable.is_loop_input and variable.body_input is not None:
            value = next(carried)
            value.shape = variable.body_input.shape
        elif variable.is_scanned:
            assert trip_count is not None
            stacked, item = next(scans)
            if item.shape is not None:
                stacked.shape = ir.Shape([trip_count if isinstance(trip_count, int) else None, *item.shape])
            value = _list_of_scan(g, variable.initial, bounds, trip_count, stacked)
        elif variable.is_invariant or variable.step is not None:
            value = _value_after_loop(g, index, variable, trip_count)
        else:
            value = result
        results.append(value)
    return results


def _list_of_scan(
    g: GraphContext, initial: Value, bounds: Sequence[CounterBound], trip_count: Size, stacked: Value
) -> Value:
    """Make the list from the elements of all iterations; the list may have further, unwritten elements."""
    assert isinstance(initial, UnwrittenList)
    count = trip_count if isinstance(trip_count, int) else None
    [first, *further_bounds] = bounds
    # The loop counts from 0 to the stated number of elements, so it writes all of them.
    fills_list = (
        not further_bounds
        and first.limit is initial.stated_count
        and first.step == 1
        and not first.limit_offset
    )
    if (fills_list and number(g, first.start) == 0) or (count is not None and initial.count == count):
        return stacked
    if stacked.shape is not None and is_dimension(initial.count, stacked.shape[0]):
        return stacked
    return resize_list(g, stacked, initial.count)
