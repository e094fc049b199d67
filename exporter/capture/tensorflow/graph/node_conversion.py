"""Converts each operator to a source node, a constant, an inlined function, a loop or a branch."""

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from .....registration import CaptureError, ModelFileError
from ..messages import AttrValue
from ..node_messages import OPTIONAL_PLACEHOLDER, PLACEHOLDERS
from . import raising
from .flow import OPERATORS, Flow
from .function_library import FunctionBody
from .nodes import ARGUMENT, TABLES, Edge, GraphNode
from .scope import GraphScope, Unit, check_type
from .table_reads import TABLE_READERS, begin_table

_Call = tuple[str, Mapping[str, AttrValue]]


def begin(scope: GraphScope, edge: Edge) -> Unit | None:
    """Begin to convert the node of a result; return None if the result has its value already."""
    node = edge.node
    node.result_type(edge.output)
    if node.op == "Const":
        scope.define(node, [scope.emitter.constant(node, scope.prefix)])
        return None
    if node.op in OPERATORS:
        return raising.begin(scope, edge)
    if node.op in TABLES or node.op in TABLE_READERS:
        return begin_table(scope, node)
    callee = scope.emitter.library.callee(node)
    if callee is not None:
        return Unit(node, node.inputs, lambda: _inline(scope, node, callee))
    functional = _FUNCTIONAL_OPERATORS.get(node.op)
    if functional is not None:
        return Unit(node, node.inputs, lambda: functional(scope, node))
    if node.op == OPTIONAL_PLACEHOLDER and node.inputs:
        # Without a value that is fed, a PlaceholderWithDefault is its default.
        return Unit(node, node.inputs[:1], lambda: scope.define(node, [scope.values[node.inputs[0]]]))
    if node.op in PLACEHOLDERS:
        value = scope.emitter.placeholder(node)
        if value is not None:
            scope.define(node, [value])
            return None
        raise CaptureError(
            f"the outputs depend on placeholder '{node.name}', which is not among the inputs: name it, or "
            "another result that takes its place"
        )
    if node.op == ARGUMENT:
        raise ModelFileError(f"the call has no value for argument '{node.name}'")
    return Unit(node, node.inputs, lambda: scope.emit(node))


def flow_of(
    results: Sequence[Edge], nodes: Mapping[str, GraphNode], cut: Mapping[Edge, object]
) -> Flow | None:
    """The analysis of TensorFlow 1 control flow; None if there is none."""
    if not any(node.op in OPERATORS for node in nodes.values()):
        return None
    return Flow(results, cut)


def _body(
    scope: GraphScope, node: GraphNode, callee: _Call, value_count: int
) -> tuple[FunctionBody, Flow | None]:
    body = scope.emitter.library.body(*callee, node)
    if len(body.arguments) != value_count:
        raise ModelFileError(
            f"{node.label} passes {value_count} values to function '{body.name}', which takes "
            f"{len(body.arguments)}"
        )
    for formal, actual in zip(body.arguments, node.inputs[len(node.inputs) - value_count :], strict=True):
        # A malformed call could otherwise pass a value of another type than the body expects.
        check_type(node, actual, formal.node.result_type(formal.output))
    return body, flow_of(body.results, body.nodes, {})


def _inline(scope: GraphScope, node: GraphNode, callee: _Call) -> None:
    """Inline the body of a function."""
    # A function that calls another twice, and so on, is exponentially large when it is inlined.
    scope.emitter.charge(node)
    body, flow = _body(scope, node, callee, len(node.inputs))
    inner = scope.call(node, body.name, flow)
    for formal, actual in zip(body.arguments, node.inputs, strict=True):
        inner.values[formal] = scope.values[actual]
    scope.define(node, inner.demand(body.results))


def _block(
    scope: GraphScope, node: GraphNode, callee: _Call, inputs: Sequence[Edge], result_count: int
) -> ir.Graph:
    """Convert the body of a function to a block."""
    body, flow = _body(scope, node, callee, len(inputs))
    if len(body.results) != result_count:
        raise ModelFileError(
            f"function '{body.name}' returns {len(body.results)} values to {node.label}, which has "
            f"{result_count}"
        )
    graph = ir.Graph(
        [], [], nodes=[], name=scope.emitter.names.unique(f"{scope.prefix}{node.name}/{body.name}")
    )
    inner = scope.call(node, body.name, flow, graph)
    formals = []
    for formal, actual in zip(body.arguments, inputs, strict=True):
        value = inner.value(formal.node.name, formal.node.result_type(formal.output))
        # The handle of a table is an initializer, which blocks can read: the table is known within them.
        outer = scope.values[actual]
        inner.values[formal] = outer if outer in scope.emitter.tables else value
        formals.append(value)
    return inner.close(formals, inner.demand(body.results))


def _outputs(scope: GraphScope, node: GraphNode) -> list[ir.Value]:
    return [
        scope.value(Edge(node, index).label, element_type)
        for index, element_type in enumerate(node.result_types())
    ]


def _while(scope: GraphScope, node: GraphNode) -> None:
    library, inputs = scope.emitter.library, node.inputs
    blocks = {
        "cond": _block(scope, node, library.function_of(node, "cond"), inputs, 1),
        "body": _block(scope, node, library.function_of(node, "body"), inputs, len(inputs)),
    }
    outputs = _outputs(scope, node)
    scope.add(node, {"input": [scope.values[edge] for edge in inputs]}, outputs, op="While", blocks=blocks)
    scope.define(node, outputs)


def _add_branches(
    scope: GraphScope, node: GraphNode, op: str, argument: str, functions: Mapping[str, _Call]
) -> None:
    """Add an If or a Case."""
    if not node.inputs:
        raise ModelFileError(f"{node.label} has no '{argument}'")
    decision, *inputs = node.inputs
    outputs = _outputs(scope, node)
    blocks = {name: _block(scope, node, callee, inputs, len(outputs)) for name, callee in functions.items()}
    arguments = {argument: scope.values[decision], "input": [scope.values[edge] for edge in inputs]}
    scope.add(node, arguments, outputs, op=op, blocks=blocks)
    scope.define(node, outputs)


def _if(scope: GraphScope, node: GraphNode) -> None:
    library = scope.emitter.library
    functions = {name: library.function_of(node, name) for name in ("then_branch", "else_branch")}
    _add_branches(scope, node, "If", "cond", functions)


def _case(scope: GraphScope, node: GraphNode) -> None:
    functions = scope.emitter.library.functions_of(node, "branches")
    if not functions:
        raise ModelFileError(f"{node.label} has no branches")
    branch_functions = {f"branches_{index}": callee for index, callee in enumerate(functions)}
    _add_branches(scope, node, "Case", "branch_index", branch_functions)


_FUNCTIONAL_OPERATORS: dict[str, Callable[[GraphScope, GraphNode], None]] = {
    "While": _while,
    "StatelessWhile": _while,
    "If": _if,
    "StatelessIf": _if,
    "Case": _case,
    "StatelessCase": _case,
}
