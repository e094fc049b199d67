"""Captures a GraphDef: its inputs, its outputs, and the source graph between them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir.passes import common

from .....passes import real_pairs
from .....registration import COMPLEX, FROZEN, KIND, UNSHAPED, CaptureError, UsageError
from ....captured_graph.capture import Capture, Interface
from ....files.reading.bounds import BOUNDS, Bounds
from ..operator_definitions import definition
from .attributes import shape_of
from .frozen_handles import read_constants
from .functions import Library
from .nodes import Define, Edge, Node, ancestors, edge_of, nodes_of
from .operators import OPTIONAL_PLACEHOLDER, PLACEHOLDERS, begin, flow_of
from .scope import Emitter, Scope
from .tensor_lists import find_lists

Names = Sequence[str] | Mapping[str, Sequence[int] | None]
"""Results by name, or with the shape that each is to have, -1 for a size that varies."""
Sizes = Sequence[int] | None

_NO_RESULTS = frozenset(
    "Assert Const ControlTrigger Enter Exit NoOp Placeholder PlaceholderV2 PlaceholderWithDefault "
    "Print PrintV2 Switch RefSwitch VarHandleOp VarIsInitializedOp IsVariableInitialized Variable VariableV2 "
    "MergeV2Checkpoints ShardedFilename SaveV2 SaveSlices Save RestoreV2 Restore RestoreSlice".split()
)
_NO_RESULTS_BEGIN = (
    "Assign",
    "Apply",
    "ResourceApply",
    "SparseApply",
    "ResourceSparseApply",
    "ResourceScatter",
)
_NO_RESULTS_END = ("Summary", "SummaryV2")
"""Operators whose results nobody reads that are no outputs: they check, save, log, or change variables."""
_LAST_RESORT = ("Exit", "Const", "PlaceholderWithDefault", "Placeholder", "PlaceholderV2")
VARIABLES = frozenset(
    "Variable VariableV2 VarHandleOp ReadVariableOp TemporaryVariable AutoReloadVariable".split()
)
_TO_NCHW, _TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
_SCALAR_IS_UNKNOWN = 21
"""Up to this version of GraphDef a Placeholder of rank 0 has any rank."""


def capture_graph(
    message: Any,
    *,
    inputs: Names | None = None,
    outputs: Sequence[str] | None = None,
    inputs_as_nchw: Sequence[str] = (),
    outputs_as_nchw: Sequence[str] = (),
    define: Define = definition,
    bounds: Bounds = BOUNDS,
) -> Capture:
    """Capture a GraphDef.

    Args:
        message: a GraphDef message, without variables.
        inputs: the results that a caller feeds, `name` or `name:1`, whatever makes them in the graph; by
            default the placeholders that the outputs depend on. A mapping gives their shapes.
        outputs: the results to return; by default those of the nodes that no node reads.
        inputs_as_nchw: inputs, [batch, height, width, channels] in the graph, that a caller feeds as [batch,
            channels, height, width].
        outputs_as_nchw: likewise for outputs.
        define: the definitions of operators.
        bounds: what the model may take.

    Raises:
        ModelFileError: the graph is malformed.
        CaptureError: a name does not exist, the graph has variables, or control flow without ONNX form.
        UsageError: the names are no list of different names.
    """
    library = Library(message.library.function, define)
    nodes = nodes_of(message.node, library.define)
    read_constants(nodes, library.define)
    wanted = _named("outputs", outputs, nodes) if outputs is not None else _default_outputs(nodes)
    shapes: Mapping[str, Sizes] = inputs if isinstance(inputs, Mapping) else {}
    cut = _named("inputs", list(inputs or ()), nodes)
    _check_variables(wanted, cut)
    stored = len(message.node) + sum(len(function.node_def) for function in message.library.function)
    graph = ir.Graph([], [], nodes=[], name="main_graph", opset_imports={"tf": 1})
    emitter = Emitter(graph, library, begin, bounds, stored)
    scope = Scope(emitter, graph, flow_of(wanted, nodes, dict.fromkeys(cut)))
    moved = _named("inputs_as_nchw", inputs_as_nchw, nodes)
    added: dict[Edge, ir.Value] = {}

    def add(edge: Edge, sizes: Sizes) -> ir.Value:
        sizes = sizes if sizes is not None else _stated_shape(edge, message.versions.producer)
        added[edge] = _input(scope, edge, sizes, edge in moved)
        return scope.transposed(added[edge], _TO_NHWC) if edge in moved else added[edge]

    if inputs is None:
        emitter.placeholder = lambda node: add(Edge(node, 0), None) if nodes.get(node.name) is node else None
    for name, edge in zip(inputs or (), cut, strict=True):
        scope.values[edge] = add(edge, shapes.get(name))
    results = scope.demand(wanted)
    places = {node: place for place, node in enumerate(nodes.values())}
    order = cut if inputs is not None else sorted(added, key=lambda edge: places[edge.node])
    graph.inputs.extend(added[edge] for edge in order)
    _check_among("inputs_as_nchw", moved, order)
    moved = _named("outputs_as_nchw", outputs_as_nchw, nodes)
    _check_among("outputs_as_nchw", moved, wanted)
    for edge, value in zip(wanted, results, strict=True):
        graph.outputs.append(scope.transposed(value, _TO_NCHW) if edge in moved else value)
    find_lists(graph)
    metadata = {UNSHAPED: "true", FROZEN: "true"}
    model = ir.Model(graph, ir_version=10, producer_name="opsetta", metadata_props=metadata)
    common.RemoveUnusedNodesPass()(model)
    real_pairs(model)
    return Capture(model, _interface(graph), output_names=[edge.shown for edge in wanted])


def _interface(graph: ir.Graph) -> Interface:
    """Make an interface that takes and returns arrays in the order of inputs and outputs."""
    names = [value.name or "" for value in graph.inputs]
    return Interface(
        input_specification=None,
        output_specification=None,
        inputs=list(names),
        constants=[None] * len(names),
        outputs=list(range(len(graph.outputs))),
        complex_outputs=[
            index for index, value in enumerate(graph.outputs) if COMPLEX in value.metadata_props
        ],
        parameter_names=list(names),
    )


def _check_among(option: str, named: Sequence[Edge], edges: Sequence[Edge]) -> None:
    """Refuse results in an option that are not inputs or outputs."""
    wrong = next((edge for edge in named if edge not in edges), None)
    if wrong is not None:
        kind = option.partition("_")[0]
        shown = ", ".join(repr(edge.shown) for edge in edges)
        raise UsageError(f"{option}: '{wrong.shown}' is not among the {kind}, which are {shown}")


def _named(option: str, names: Sequence[str] | None, nodes: Mapping[str, Node]) -> list[Edge]:
    """The results that a user names."""
    found: list[Edge] = []
    for name in names or ():
        if not isinstance(name, str):
            raise UsageError(f"{option} must be names of results, such as 'x' or 'x:0', not {name!r}")
        edge = edge_of(name, nodes)
        if edge is None:
            close = difflib.get_close_matches(name.partition(":")[0], nodes, n=3)
            hint = f"; there are {', '.join(map(repr, close))}" if close else ""
            raise CaptureError(f"{option}: the graph has no node '{name}'{hint}")
        edge.node.result_type(edge.output)
        if edge in found:
            raise UsageError(f"{option}: '{name}' occurs twice")
        found.append(edge)
    return found


def _default_outputs(nodes: Mapping[str, Node]) -> list[Edge]:
    """The results of the nodes that no other node reads or waits for."""
    read = {edge.node for node in nodes.values() for edge in node.inputs}
    read |= {other for node in nodes.values() for other in node.controls}
    found: list[Edge] = []
    unread = [node for node in nodes.values() if node not in read]
    for node in unread:
        if node.op in _NO_RESULTS:
            continue
        if node.op.startswith(_NO_RESULTS_BEGIN) or node.op.endswith(_NO_RESULTS_END):
            continue
        count = 1 if node.definition is None or node.op.startswith("FusedBatchNorm") else len(node.results())
        found += [Edge(node, index) for index in range(count)]
    for op in _LAST_RESORT:
        # The results of a loop, or constants, where the graph has nothing else.
        found = found or [Edge(node, 0) for node in unread if node.op == op]
    if not found:
        reason = "has no results" if unread else "has nodes, but every result is read by another node"
        raise CaptureError(f"the graph {reason}: name the outputs")
    return found


def _check_variables(wanted: Sequence[Edge], cut: Sequence[Edge]) -> None:
    """Refuse a graph whose weights are in a checkpoint."""
    variables = _variables(wanted, cut)
    if variables:
        rest = f" and {len(variables) - 3} more" if len(variables) > 3 else ""
        shown = ", ".join(f"'{name}'" for name in variables[:3])
        raise CaptureError(
            f"the outputs depend on variables, whose values are in a checkpoint ({shown}{rest}): give the "
            "checkpoint, and name the outputs"
        )


def _variables(wanted: Sequence[Edge], cut: Sequence[Edge]) -> list[str]:
    reached = ancestors(wanted, frozenset(cut), controls=False)
    return sorted(node.name for node in reached if node.op in VARIABLES)


def _input(scope: Scope, edge: Edge, sizes: Sizes, moved: bool) -> ir.Value:
    """Make the graph input for a result.

    Args:
        moved: whether a caller feeds it with its channels first.
    """
    kind = edge.node.result_type(edge.output)
    if kind is not None and not isinstance(kind, ir.DataType):
        raise CaptureError(f"'{edge.shown}' is a {kind}; only a tensor can be an input")
    if moved and sizes is None:
        sizes = [-1] * 4
    if moved and sizes is not None:
        if len(sizes) != 4:
            raise UsageError(f"inputs_as_nchw: '{edge.shown}' must have 4 dimensions, not {len(sizes)}")
        sizes = [sizes[dim] for dim in _TO_NCHW]
    value = scope.value(edge.shown, kind)
    if sizes is not None:
        stem = re.sub(r"\W", "_", edge.shown)
        value.shape = ir.Shape([size if size >= 0 else f"{stem}_{dim}" for dim, size in enumerate(sizes)])
    value.metadata_props[KIND] = "user"
    return value


def _stated_shape(edge: Edge, producer: int) -> Sizes:
    node = edge.node
    if node.op in (*PLACEHOLDERS, OPTIONAL_PLACEHOLDER) and node.has("shape"):
        sizes = shape_of(node.attribute("shape").shape)
        if sizes is not None and (sizes or node.op != "Placeholder" or producer > _SCALAR_IS_UNKNOWN):
            return sizes
    if "_output_shapes" in node.stored:
        shapes = node.attribute("_output_shapes").list.shape
        return shape_of(shapes[edge.output]) if edge.output < len(shapes) else None
    return None
