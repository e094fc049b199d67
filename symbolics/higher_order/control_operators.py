"""torch.export's higher-order operators: cond, while_loop, scan, map and associative_scan.

Semantics: the eager implementations in torch/_higher_order_ops. Blocks read invariant operands from the
enclosing graph, as ONNX sub-graphs may.
"""

from collections.abc import Callable, Sequence

import onnx_ir as ir

from ...registration import Block, DataType, GraphContext, Number, Value, onnx_symbolic
from ...registration.functions.results import as_list
from ..compositions.branches import check_carried, choose, constant_condition
from ..compositions.list_values import loop_inputs
from ..compositions.size_arithmetic import compute, fold_size

Step = Callable[..., Sequence[Value]]
"""Maps carried values and slices to new carried values and results to stack."""


@onnx_symbolic("higher_order::cond")
def cond(g: GraphContext, pred: Value | bool, operands: list[Value | Number]) -> Sequence[Value]:
    """A conditional; if the condition is constant, the taken branch is inlined."""
    true_graph, false_graph = g.blocks
    constant = constant_condition(pred)
    if constant is not None:
        return (true_graph if constant else false_graph).inline(*operands)
    return choose(
        g,
        _flag(g, g.constant(pred)),
        [lambda: true_graph.inline(*operands), lambda: false_graph.inline(*operands)],
        [[value.shape for value in block.graph.outputs] for block in g.blocks],
    )


@onnx_symbolic("higher_order::while_loop")
def while_loop(
    g: GraphContext, carried_inputs: list[Value | Number], additional_inputs: list[Value | Number]
) -> Sequence[Value]:
    """A loop whose condition is evaluated before each run of its body."""
    initial = _initial(g, carried_inputs)
    condition = _evaluate_condition(g, initial, additional_inputs)
    if constant_condition(condition) is False:
        return initial
    return _while(g, condition, initial, additional_inputs, [])


@onnx_symbolic("higher_order::while_loop_stack_output")
def while_loop_stack_output(
    g: GraphContext, carried_inputs: list[Value | Number], additional_inputs: list[Value | Number]
) -> Sequence[Value]:
    """The stacked carried values after every run of the body; the initial values if it never runs."""
    initial = _initial(g, carried_inputs)
    condition = _evaluate_condition(g, initial, additional_inputs)

    def return_initial() -> list[Value]:
        return [g.op("Unsqueeze", value, axes=[0]) for value in initial]

    def run() -> Sequence[Value]:
        return _while(g, condition, initial, additional_inputs, initial)[len(initial) :]

    constant = constant_condition(condition)
    if constant is not None:
        return run() if constant else return_initial()
    # The branches return different numbers of rows, so the number of rows is unknown.
    length = ir.SymbolicDim(None)
    stacked = [None if v.shape is None else ir.Shape([length, *v.shape]) for v in initial]
    return choose(g, condition, [run, return_initial], [stacked, stacked])


@onnx_symbolic("higher_order::map_impl")
def map_impl(g: GraphContext, xs: list[Value], pos_args: list[Value | Number]) -> Sequence[Value]:
    """A function of each slice of `xs`, with stacked results."""
    [f] = g.blocks
    return _scan(g, f, [], xs, pos_args)


@onnx_symbolic("higher_order::map_impl", opset=8)
def map_by_loop(g: GraphContext, xs: list[Value], pos_args: list[Value | Number]) -> Sequence[Value]:
    """Below opset 9 a Loop, because Scan has a batch dimension. The Loop must carry a value."""
    [f] = g.blocks
    nothing = g.constant(0)

    def step(carried: Value, *slices: Value) -> list[Value]:
        return [carried, *f.inline(*slices, *pos_args)]

    return _loop_over(g, step, [nothing], [nothing], xs)[1:]


@onnx_symbolic("higher_order::associative_scan")
def associative_scan(
    g: GraphContext, xs: list[Value], additional_inputs: list[Value | Number]
) -> Sequence[Value]:
    """The inclusive scan of the slices of `xs`.

    Combines the n slices sequentially, n - 1 times. A tree would need twice as many combinations, applied to
    stacks of slices. Uses Loop, because onnxruntime's Scan refuses to scan over nothing, which happens for a
    single slice.
    """
    [combine_fn] = g.blocks
    # The first slice is its own result; the Loop starts with the second one.
    first = [g.op("Gather", x, 0, axis=0) for x in xs]
    if fold_size(g, g.size(xs[0], 0)) == 1:
        return xs

    def step(*values: Value) -> list[Value]:
        combined = combine_fn.inline(*values, *additional_inputs)
        return [*combined, *combined]

    formals = combine_fn.graph.inputs[: len(xs)]
    later_results = _loop_over(g, step, formals, first, xs, start=1)[len(xs) :]
    return [
        g.op("Concat", g.op("Unsqueeze", head, axes=[0]), tail, axis=0)
        for head, tail in zip(first, later_results, strict=True)
    ]


def _flag(g: GraphContext, value: Value) -> Value:
    """A condition as a zero-dim BOOL."""
    value = g.cast(value, DataType.BOOL)
    return value if g.rank(value) == 0 else g.op("Reshape", value, [])


def _initial(g: GraphContext, carried: Sequence[Value | Number]) -> list[Value]:
    """The initial values of a loop; Python numbers become tensors of the type that its body takes."""
    body = g.blocks[1]
    return [
        g.constant(value, formal.dtype) for value, formal in zip(carried, body.graph.inputs, strict=False)
    ]


def _evaluate_condition(
    g: GraphContext, carried: Sequence[Value], additional: Sequence[Value | Number]
) -> Value:
    """Evaluate the condition of a while_loop for some carried values."""
    [condition] = g.blocks[0].inline(*carried, *additional)
    return _flag(g, condition)


def _while(
    g: GraphContext,
    initial_condition: Value,
    initial: Sequence[Value],
    additional: Sequence[Value | Number],
    stacked: Sequence[Value],
) -> list[Value]:
    """The Loop of a while_loop: its carried values, then the stacked ones."""
    body_fn = g.blocks[1]

    def build(iteration: Value, condition: Value, *carried: Value) -> list[Value]:
        new = body_fn.inline(*carried, *additional)
        return [_evaluate_condition(g, new, additional), *new, *new[: len(stacked)]]

    formals = body_fn.graph.inputs[: len(initial)]
    graph = g.subgraph(build, [*loop_inputs(), *formals], body_fn.graph.name or "body")
    constant = constant_condition(initial_condition)
    return _loop(g, None, None if constant else initial_condition, initial, graph)


def _scan(
    g: GraphContext,
    block: Block,
    init: Sequence[Value],
    xs: Sequence[Value],
    additional: Sequence[Value | Number],
) -> list[Value]:
    formals = block.graph.inputs[: len(init) + len(xs)]
    body = g.subgraph(lambda *values: block.inline(*values, *additional), formals, block.graph.name or "body")
    results = g.op("Scan", *init, *xs, body=body, num_scan_inputs=len(xs), outputs=len(body.outputs))
    return _set_types(g, "Scan", results, body.outputs, len(init))


def _scan_by_loop(
    g: GraphContext,
    block: Block,
    init: Sequence[Value],
    xs: Sequence[Value],
    additional: Sequence[Value | Number],
) -> list[Value]:
    def step(*values: Value) -> list[Value]:
        return block.inline(*values, *additional)

    return _loop_over(g, step, block.graph.inputs[: len(init)], init, xs)


def _register_scan(opset: int, over_slices: Callable[..., list[Value]]) -> None:
    @onnx_symbolic("higher_order::scan", opset=opset)
    def scan(
        g: GraphContext, init: list[Value], xs: list[Value], additional_inputs: list[Value | Number]
    ) -> Sequence[Value]:
        """Each step maps carried values and slices of `xs` to new carried values and slices of results."""
        [combine_fn] = g.blocks
        return over_slices(g, combine_fn, init, xs, additional_inputs) if xs else init


_register_scan(8, _scan_by_loop)  # Below opset 9 a Loop, because Scan has a batch dimension.
_register_scan(9, _scan)


@onnx_symbolic("higher_order::range_loop")
def range_loop_with_value(
    g: GraphContext,
    init: list[Value | Number],
    index: list[Value | int],
    additional_inputs: list[Value | Number],
    count: Value | int,
    step: int,
) -> Sequence[Value]:
    """A loop over a range. Below opset 11 a Loop must carry a value."""
    if init:
        return range_loop(g, init, index, additional_inputs, count, step)
    return _range_loop(g, [], index, additional_inputs, count, step, [g.constant(0)])[1:]


@onnx_symbolic("higher_order::range_loop", opset=11)
def range_loop(
    g: GraphContext,
    init: list[Value | Number],
    index: list[Value | int],
    additional_inputs: list[Value | Number],
    count: Value | int,
    step: int,
) -> Sequence[Value]:
    """A loop over a range: the carried values after the last iteration, then stacked results."""
    return _range_loop(g, init, index, additional_inputs, count, step, [])


def _range_loop(
    g: GraphContext,
    init: Sequence[Value | Number],
    index: Sequence[Value | int],
    additional: Sequence[Value | Number],
    count: Value | int,
    step: int,
    unused: Sequence[Value],
) -> list[Value]:
    """The Loop of a loop over a range; `unused` values are carried besides, first of all."""
    [body_fn] = g.blocks
    [start] = index
    formals = body_fn.graph.inputs[: len(init)]
    initial = [g.constant(value, formal.dtype) for value, formal in zip(init, formals, strict=True)]

    def build(iteration: Value, condition: Value, *carried: Value) -> list[Value]:
        position = compute(g, "add", compute(g, "mul", iteration, step), start)
        values = carried[len(unused) :]
        return [condition, *carried[: len(unused)], *body_fn.inline(*values, position, *additional)]

    body = g.subgraph(build, [*loop_inputs(), *unused, *formals], body_fn.graph.name or "body")
    return _loop(g, g.constant(count, DataType.INT64), None, [*unused, *initial], body)


def _loop_over(
    g: GraphContext,
    step: Step,
    formals: Sequence[Value],
    init: Sequence[Value],
    xs: Sequence[Value],
    start: int = 0,
) -> list[Value]:
    """A Loop over the slices of `xs` from a given one on: carried values, then stacked ones.

    Args:
        formals: values like the carried ones.
    """

    def build(iteration: Value, condition: Value, *carried: Value) -> list[Value]:
        index = g.op("Add", iteration, start) if start else iteration
        return [condition, *step(*carried, *(g.op("Gather", x, index, axis=0) for x in xs))]

    trips = compute(g, "sub", g.size(xs[0], 0), start)
    body = g.subgraph(build, [*loop_inputs(), *formals], "body")
    return _loop(g, g.constant(trips, DataType.INT64), None, init, body)


def _loop(
    g: GraphContext,
    trips: Value | None,
    initial_condition: Value | None,
    initial: Sequence[Value],
    body: ir.Graph,
) -> list[Value]:
    results = g.op("Loop", trips, initial_condition, *initial, body=body, outputs=len(body.outputs) - 1)
    return _set_types(g, "Loop", results, list(body.outputs)[1:], len(initial))


def _set_types(
    g: GraphContext, op_type: str, results: Value | list[Value], returned: Sequence[Value], carried: int
) -> list[Value]:
    """The outputs of a Loop or a Scan as a list, with types and ranks from its body."""
    check_carried(g, op_type, returned)
    results = as_list(results)
    for index, (value, like) in enumerate(zip(results, returned, strict=True)):
        value.type = like.type
        # Results that are stacked have the steps as their first dimension; carried ones may change their
        # shape.
        if index >= carried and like.shape is not None:
            value.shape = ir.Shape([None, *like.shape])
    return results
