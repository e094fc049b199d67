"""Converts each operator to a source node, a constant, an inlined function, a loop or a branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from .....registration import CaptureError, ModelFileError
from . import raising
from .flow import OPERATORS, Flow
from .functions import Body
from .nodes import ARGUMENT, Edge, Node
from .scope import Scope, Unit, check_type

PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
OPTIONAL_PLACEHOLDER = "PlaceholderWithDefault"
_Call = tuple[str, Mapping[str, Any]]


def begin(scope: Scope, edge: Edge) -> Unit | None:
    """Begin to convert the node of a result; a constant gets its value at once.

    Raises:
        ModelFileError: the node is malformed.
        CaptureError: it has no ONNX form.
    """
    node = edge.node
    node.result_type(edge.output)
    if node.op == "Const":
        scope.define(node, [scope.emitter.constant(node, scope.prefix)])
        return None
    if node.op in OPERATORS:
        return raising.begin(scope, edge)
    called = scope.emitter.library.called(node)
    if called is not None:
        return Unit(node, node.inputs, lambda: _inline(scope, node, called))
    functional = _FUNCTIONAL.get(node.op)
    if functional is not None:
        return Unit(node, node.inputs, lambda: functional(scope, node))
    if node.op == OPTIONAL_PLACEHOLDER and node.inputs:
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


def flow_of(results: Sequence[Edge], nodes: Mapping[str, Node], cut: Mapping[Edge, object]) -> Flow | None:
    """The analysis of TensorFlow 1 control flow; None if there is none."""
    if not any(node.op in OPERATORS for node in nodes.values()):
        return None
    return Flow(results, cut)


def _body(scope: Scope, node: Node, called: _Call, given: int) -> tuple[Body, Flow | None]:
    body = scope.emitter.library.body(*called, node)
    if len(body.arguments) != given:
        raise ModelFileError(
            f"{node.shown} passes {given} values to function '{body.name}', which takes {len(body.arguments)}"
        )
    for formal, actual in zip(body.arguments, node.inputs[len(node.inputs) - given :], strict=True):
        check_type(node, actual, formal.node.result_type(formal.output))
    return body, flow_of(body.results, body.nodes, {})


def _inline(scope: Scope, node: Node, called: _Call) -> None:
    """Inline the body of a function."""
    scope.emitter.charge(node)
    body, flow = _body(scope, node, called, len(node.inputs))
    inner = scope.call(node, body.name, flow)
    for formal, actual in zip(body.arguments, node.inputs, strict=True):
        inner.values[formal] = scope.values[actual]
    scope.define(node, inner.demand(body.results))


def _block(scope: Scope, node: Node, called: _Call, inputs: Sequence[Edge], results: int) -> ir.Graph:
    """The body of a function as a block."""
    body, flow = _body(scope, node, called, len(inputs))
    if len(body.results) != results:
        raise ModelFileError(
            f"function '{body.name}' returns {len(body.results)} values to {node.shown}, which has {results}"
        )
    graph = ir.Graph(
        [], [], nodes=[], name=scope.emitter.names.unique(f"{scope.prefix}{node.name}/{body.name}")
    )
    inner = scope.call(node, body.name, flow, graph)
    formals = []
    for formal in body.arguments:
        value = inner.value(formal.node.name, formal.node.result_type(formal.output))
        inner.values[formal] = value
        formals.append(value)
    return inner.close(formals, inner.demand(body.results))


def _outputs(scope: Scope, node: Node) -> list[ir.Value]:
    return [scope.value(Edge(node, index).shown, kind) for index, kind in enumerate(node.results())]


def _while(scope: Scope, node: Node) -> None:
    library, inputs = scope.emitter.library, node.inputs
    blocks = {
        "cond": _block(scope, node, library.function_of(node, "cond"), inputs, 1),
        "body": _block(scope, node, library.function_of(node, "body"), inputs, len(inputs)),
    }
    outputs = _outputs(scope, node)
    scope.add(node, {"input": [scope.values[edge] for edge in inputs]}, outputs, op="While", blocks=blocks)
    scope.define(node, outputs)


def _branches(scope: Scope, node: Node, op: str, argument: str, functions: Mapping[str, _Call]) -> None:
    """An If or a Case."""
    if not node.inputs:
        raise ModelFileError(f"{node.shown} has no '{argument}'")
    decision, *inputs = node.inputs
    outputs = _outputs(scope, node)
    blocks = {name: _block(scope, node, called, inputs, len(outputs)) for name, called in functions.items()}
    arguments = {argument: scope.values[decision], "input": [scope.values[edge] for edge in inputs]}
    scope.add(node, arguments, outputs, op=op, blocks=blocks)
    scope.define(node, outputs)


def _if(scope: Scope, node: Node) -> None:
    library = scope.emitter.library
    functions = {name: library.function_of(node, name) for name in ("then_branch", "else_branch")}
    _branches(scope, node, "If", "cond", functions)


def _case(scope: Scope, node: Node) -> None:
    functions = scope.emitter.library.functions_of(node, "branches")
    if not functions:
        raise ModelFileError(f"{node.shown} has no branches")
    named = {f"branches_{index}": called for index, called in enumerate(functions)}
    _branches(scope, node, "Case", "branch_index", named)


_FUNCTIONAL: dict[str, Callable[[Scope, Node], None]] = {
    "While": _while,
    "StatelessWhile": _while,
    "If": _if,
    "StatelessIf": _if,
    "Case": _case,
    "StatelessCase": _case,
}
