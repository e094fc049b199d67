"""TensorFlow's While as Loop. Its blocks receive all outer values as arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from ...registration import Block, DataType, GraphContext, Value, onnx_symbolic
from ..compositions.branches import check_carried, constant_condition
from ..compositions.list_values import common_shape, loop_inputs
from ..compositions.outputs import is_used
from ..compositions.size_arithmetic import UNKNOWN, Dim, Size, compute, mark_non_negative
from ._common import is_dimension, number
from .control_flow import flag
from .list_values import Scanned, Unwritten, as_tensor, broadcastable, element_sizes, resized
from .loop_variables import Bound, bounds_of, is_kept, step_of, writing_counter
from .recurrent_loops.iteration import Given
from .recurrent_loops.layers import recurrent_layer


@dataclasses.dataclass
class _Variable:
    """The lowering of a loop variable.

    Attributes:
        initial: its value before the loop.
        kept: whether it never changes.
        step: what an iteration adds to it, in a loop whose number of iterations is known before.
        scanned: whether it is a list, and each iteration writes the element of its own number.
        formal: what the body takes, for a variable that the ONNX loop carries; a list without a tensor is
            passed as it is.
    """

    initial: Value
    kept: bool = False
    step: int | None = None
    scanned: bool = False
    formal: Value | None = None

    @property
    def carried(self) -> bool:
        """Whether the body computes it from its value in the previous iteration."""
        return not self.kept and self.step is None and not self.scanned

    @property
    def passed(self) -> bool:
        """Whether it is an input of the ONNX body."""
        return self.carried and not isinstance(self.formal, Unwritten)


@onnx_symbolic("tf::While")
def while_(g: GraphContext, input: list[Value]) -> Sequence[Value]:
    """A loop whose condition is evaluated before each iteration.

    If the condition only compares counters, the number of iterations is computed before the loop. Invariants
    are read from outside, and a list to which each iteration writes the next element is a scan output.
    """
    condition, body = g.blocks
    bounds = _distinct(g, bounds_of(condition.graph, body.graph, input))
    trips = _trips(g, bounds) if bounds else None
    going = None if bounds else flag(g, condition.inline(*input)[0])
    never = trips is not None and isinstance(trips, int) and trips <= 0
    if never or (going is not None and constant_condition(going) is False):
        return input
    variables = [_Variable(value, is_kept(body.graph, index)) for index, value in enumerate(input)]
    for index, variable in enumerate(variables if bounds else ()):
        # A tensor that each iteration increases is carried.
        variable.step = step_of(body.graph, index) if g.rank(variable.initial) == 0 else None
    for index, variable in enumerate(variables):
        variable.scanned = bool(bounds) and _is_scanned(g, body.graph, index, variables)
    if trips is not None:
        layer = _layer(g, body, variables, trips)
        if layer is not None:
            return _after_layer(g, variables, layer, bounds, trips)
    for variable in variables:
        if variable.carried:
            variable.formal = _formal(variable.initial, variable.initial.shape)
    made = _settled(g, condition, body, variables, counted=bool(bounds))
    return _results(g, variables, made, bounds or (), trips, going)


def _distinct(g: GraphContext, bounds: Sequence[Bound] | None) -> list[Bound]:
    """Remove duplicate bounds."""
    found: dict[tuple[Value | Size, ...], Bound] = {}
    for bound in bounds or ():
        start = number(g, bound.start)
        key = (start if isinstance(start, int) else bound.start, bound.limit, bound.beyond, bound.step)
        found.setdefault(key, bound)
    return list(found.values())


def _trips(g: GraphContext, bounds: Sequence[Bound]) -> Size:
    """The number of iterations."""
    found: Size | None = None
    for bound in bounds:
        limit = number(g, bound.limit) if isinstance(bound.limit, Value) else bound.limit
        distance = compute(g, "sub", compute(g, "add", limit, bound.beyond), number(g, bound.start))
        whole = compute(g, "floordiv", compute(g, "add", distance, bound.step - 1), bound.step)
        found = whole if found is None else compute(g, "min", found, whole)
    assert found is not None
    return max(found, 0) if isinstance(found, int) else found


def _is_scanned(g: GraphContext, body: ir.Graph, index: int, variables: Sequence[_Variable]) -> bool:
    counter = writing_counter(body, index)
    if counter is None or not isinstance(variables[index].initial, Unwritten):
        return False
    return variables[counter].step == 1 and number(g, variables[counter].initial) == 0


def _layer(
    g: GraphContext, body: Block, variables: Sequence[_Variable], trips: Size
) -> dict[int, Value] | None:
    """The carried and scanned variables after the loop, if it is a recurrent layer."""
    given = []
    for variable in variables:
        counts = variable.step == 1 and number(g, variable.initial) == 0
        given.append(Given(variable.initial, variable.kept, counts))
    changed = [index for index, variable in enumerate(variables) if variable.carried]
    scanned = [index for index, variable in enumerate(variables) if variable.scanned]
    return recurrent_layer(g, body.graph, given, changed, scanned, trips)


def _after_layer(
    g: GraphContext,
    variables: Sequence[_Variable],
    layer: Mapping[int, Value],
    bounds: Sequence[Bound],
    trips: Size,
) -> list[Value]:
    """The variables after a loop that is a recurrent layer."""
    results = []
    for index, variable in enumerate(variables):
        if index not in layer:
            results.append(_known_after(g, index, variable, trips))
        elif variable.scanned:
            results.append(_scan(g, variable.initial, bounds, trips, layer[index]))
        else:
            results.append(layer[index])
    return results


def _known_after(g: GraphContext, index: int, variable: _Variable, trips: Size | None) -> Value:
    """The value after the loop of an invariant, a counter, or an unused variable."""
    if variable.step is None or not is_used(g, index):
        return variable.initial
    assert trips is not None
    return _counted(g, variable, compute(g, "max", trips, 0))


def _formal(like: Value, shape: ir.Shape | Sequence[Dim] | None) -> Value:
    if isinstance(like, Unwritten):
        return like
    return Value(name=like.name, type=like.type, shape=None if shape is None else ir.Shape(list(shape)))


@dataclasses.dataclass
class _Body:
    """The body of the ONNX loop.

    Attributes:
        graph: the body; it returns a condition, the variables that are passed, and the elements of lists.
        results: what each variable is after an iteration, before it is a tensor.
    """

    graph: ir.Graph
    results: list[Value]


def _settled(
    g: GraphContext, condition: Block, body: Block, variables: Sequence[_Variable], *, counted: bool
) -> _Body:
    """The body for shapes of its variables that hold in every iteration.

    The shapes before the loop are tried first; sizes that an iteration changes are unknown in another try.
    """
    while True:
        made = _build_body(g, condition, body, variables, counted)
        widened = [_widened(g, *pair) for pair in zip(variables, made.results, strict=True)]
        if not any(widened):
            return made
        _discard(made.graph)


def _build_body(
    g: GraphContext, condition: Block, body: Block, variables: Sequence[_Variable], counted: bool
) -> _Body:
    found: list[Value] = []
    formals = [variable.formal for variable in variables if variable.passed and variable.formal is not None]
    # Below opset 11 Loop must carry a value.
    nothing = (
        [] if formals else [Value(name="nothing", type=ir.TensorType(DataType.BOOL), shape=ir.Shape([]))]
    )

    def build(iteration: Value, going: Value, *given: Value) -> list[Value]:
        mark_non_negative(iteration)
        rest = iter(given)
        found.extend(body.inline(*[_value_in_body(g, variable, iteration, rest) for variable in variables]))
        pairs = list(zip(variables, found, strict=True))
        after = [variable.initial if variable.kept else value for variable, value in pairs]
        again = going if counted else flag(g, condition.inline(*after)[0])
        results = [_result(g, variable, value) for variable, value in pairs if variable.passed]
        items = [_item(value) for variable, value in pairs if variable.scanned]
        return [again, *(results or given), *items]

    return _Body(g.subgraph(build, [*loop_inputs(), *formals, *nothing], body.graph.name or "body"), found)


def _value_in_body(g: GraphContext, variable: _Variable, iteration: Value, rest: Iterator[Value]) -> Value:
    """The value of a variable in the body."""
    if variable.kept:
        return variable.initial
    if variable.step is not None:
        return _counted(g, variable, iteration)
    if variable.scanned:
        return Scanned(variable.initial.dtype)
    return next(rest) if variable.passed else variable.initial


def _item(value: Value) -> Value:
    """The element that an iteration writes to a list; the list itself if the write is not supported."""
    return value.item if isinstance(value, Scanned) and value.item is not None else value


def _counted(g: GraphContext, variable: _Variable, iterations: Size) -> Value:
    """The value of a counter after some iterations."""
    start, dtype = variable.initial, variable.initial.dtype or DataType.INT64
    added = g.constant(iterations, dtype)
    if variable.step != 1:
        added = g.op("Mul", added, variable.step)
    return added if number(g, start) == 0 else g.op("Add", start, added)


def _result(g: GraphContext, variable: _Variable, value: Value) -> Value:
    """The result of the body for a variable."""
    value = as_tensor(g, value)
    due = variable.initial.dtype
    if due is not None and value.dtype is not None and value.dtype != due:
        raise g.refuse(
            f"its variable '{variable.initial.name}' is {due.name} before the body and {value.dtype.name} "
            "after it"
        )
    return value


def _widened(g: GraphContext, variable: _Variable, result: Value) -> bool:
    """Generalize the shape of a variable to that of the body's result; return whether it changed.

    A result of unknown rank has the rank of the variable, as TensorFlow's loops require.
    """
    formal = variable.formal
    if not variable.carried or formal is None or isinstance(result, Unwritten):
        return False
    if isinstance(formal, Unwritten):
        sizes = element_sizes(result)
        if sizes is None:
            raise g.refuse("the rank of the elements of a list that a loop writes is unknown")
        variable.initial = broadcastable(g, formal, sizes)
        variable.formal = _formal(variable.initial, variable.initial.shape)
        return True
    if formal.shape is None:
        return False
    shape: list[Dim] | None = [UNKNOWN] * len(formal.shape)
    if result.shape is not None:
        shape = common_shape([formal.shape, result.shape])
    if shape is not None and _sizes(shape) == _sizes(formal.shape):
        return False
    variable.formal = _formal(formal, shape)
    return True


def _sizes(shape: ir.Shape | Sequence[Dim]) -> list[int | str | None]:
    return [size if isinstance(size, int) else size.value for size in shape]


def _discard(graph: ir.Graph) -> None:
    """Detach the nodes of a sub-graph from their inputs."""
    for node in list(graph.all_nodes()):
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)


def _results(
    g: GraphContext,
    variables: Sequence[_Variable],
    body: _Body,
    bounds: Sequence[Bound],
    trips: Size | None,
    going: Value | None,
) -> list[Value]:
    """The variables after the loop."""
    passed = [variable for variable in variables if variable.passed]
    returned = list(body.graph.outputs)[1:]
    check_carried(g, "Loop", returned)
    made = g.op(
        "Loop",
        None if trips is None else g.constant(trips, DataType.INT64),
        None if going is None or constant_condition(going) else going,
        *([as_tensor(g, variable.initial) for variable in passed] or [g.constant(False)]),
        body=body.graph,
        outputs=len(returned),
    )
    made = made if isinstance(made, list) else [made]
    for value, like in zip(made, returned, strict=True):
        value.type = like.type
    first = max(len(passed), 1)
    carried, scans = iter(made[: len(passed)]), zip(made[first:], returned[first:], strict=True)
    results = []
    for index, (variable, result) in enumerate(zip(variables, body.results, strict=True)):
        if variable.passed and variable.formal is not None:
            value = next(carried)
            value.shape = variable.formal.shape
        elif variable.scanned:
            assert trips is not None
            stacked, item = next(scans)
            if item.shape is not None:
                stacked.shape = ir.Shape([trips if isinstance(trips, int) else None, *item.shape])
            value = _scan(g, variable.initial, bounds, trips, stacked)
        elif variable.kept or variable.step is not None:
            value = _known_after(g, index, variable, trips)
        else:
            value = result
        results.append(value)
    return results


def _scan(g: GraphContext, initial: Value, bounds: Sequence[Bound], trips: Size, stacked: Value) -> Value:
    """Make the list to which each iteration wrote one element; the list may be longer."""
    assert isinstance(initial, Unwritten)
    count = trips if isinstance(trips, int) else None
    [first, *others] = bounds
    whole = not others and first.limit is initial.stated and first.step == 1 and not first.beyond
    if (whole and number(g, first.start) == 0) or (count is not None and initial.count == count):
        return stacked
    if stacked.shape is not None and is_dimension(initial.count, stacked.shape[0]):
        return stacked
    return resized(g, stacked, initial.count)
