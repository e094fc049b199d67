"""Captures a GraphDef: its inputs, its outputs, and the source graph between them."""

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial

import onnx_ir as ir
from onnx_ir.passes import common

from .....passes import real_pairs
from .....registration import COMPLEX, FROZEN, KIND, UNSHAPED, CaptureError, UsageError
from ....captured_graph.capture import Capture, Interface
from ....files.reading.bounds import BOUNDS, Bounds
from ....files.reading.names import listed
from ..element_types import numpy_type
from ..freezing.variables import StoredVariable
from ..messages import GraphDef
from ..node_messages import OPTIONAL_PLACEHOLDER, PLACEHOLDERS
from ..operator_definitions import definition
from ..tensorflow_options import Names
from .attributes import shape_of
from .encoded_images import take_bytes
from .frozen_handles import read_constants
from .function_library import Library
from .node_conversion import begin, flow_of
from .nodes import TABLES, Define, Edge, GraphNode, ancestors, edge_of, nodes_of
from .parsed_features import PARSERS, ParsedFeatures
from .scope import Emitter, GraphScope, Unit
from .tensor_lists import find_lists

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
    "Queue",
    "Iterator",
    "MakeIterator",
)
_NO_RESULTS_END = ("Summary", "SummaryV2", "Dataset", "DatasetV2", "Queue", "QueueV2", "Iterator")
"""Operators whose unread results are not outputs: they check, save, log, read data, or change variables."""
_LAST_RESORT = ("Exit", "Const", "PlaceholderWithDefault", "Placeholder", "PlaceholderV2")
VARIABLES = frozenset(
    "Variable VariableV2 VarHandleOp ReadVariableOp TemporaryVariable AutoReloadVariable".split()
)
_TO_NCHW, _TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
_SCALAR_IS_UNKNOWN = 21
"""Up to this version of GraphDef a Placeholder of rank 0 has any rank."""


def capture_graph(
    message: GraphDef,
    *,
    inputs: Names | None = None,
    outputs: Sequence[str] | None = None,
    inputs_as_nchw: Sequence[str] = (),
    outputs_as_nchw: Sequence[str] = (),
    keep_parse_example: bool = False,
    weights: Mapping[str, StoredVariable] | None = None,
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
        keep_parse_example: keep parsers of serialized messages, which lowering refuses, instead of taking
            their features as inputs.
        weights: the contents of Const nodes of the graph that the message lacks, by their names.
        define: the definitions of operators.
        bounds: bounds on nodes and memory.

    Raises:
        ModelFileError: the graph is malformed.
        CaptureError: a name does not exist, the graph has variables, or control flow without ONNX form.
        UsageError: the names are not a list of distinct names.
    """
    library = Library(message.library.function, define)
    nodes = nodes_of(message.node, library.define, "the graph")
    read_constants(nodes, library.define)
    output_edges = _find_edges("outputs", outputs, nodes) if outputs is not None else _default_outputs(nodes)
    shapes: Mapping[str, Sizes] = inputs if isinstance(inputs, Mapping) else {}
    input_edges = _find_edges("inputs", list(inputs or ()), nodes)
    _check_variables(output_edges, input_edges)
    node_count = len(message.node) + sum(len(function.node_def) for function in message.library.function)
    # Variables have an element type that numpy has; others are no weights.
    size = message.ByteSize() + sum(
        math.prod(weight.shape) * dtype.itemsize
        for weight in (weights or {}).values()
        if (dtype := numpy_type(weight.dtype)) is not None
    )
    graph = ir.Graph([], [], nodes=[], name="main_graph", opset_imports={"tf": 1})
    features = ParsedFeatures()
    begin_node = begin if keep_parse_example else partial(_begin, features)
    emitter = Emitter(graph, library, begin_node, bounds, node_count, size)
    emitter.weights = {nodes[name]: weight for name, weight in (weights or {}).items()}
    scope = GraphScope(emitter, graph, flow_of(output_edges, nodes, dict.fromkeys(input_edges)))
    nchw_edges = _find_edges("inputs_as_nchw", inputs_as_nchw, nodes)
    graph_inputs: dict[Edge, ir.Value] = {}

    def add_input(edge: Edge, sizes: Sizes) -> ir.Value:
        sizes = sizes if sizes is not None else _stated_shape(edge, message.versions.producer)
        graph_inputs[edge] = _make_input(scope, edge, sizes, edge in nchw_edges)
        default = edge.node.inputs[0].node if edge.node.op == OPTIONAL_PLACEHOLDER else None
        # A default that is computed, or has another layout than the input, is not a tensor of the file.
        if default is not None and default.op == "Const" and edge not in nchw_edges:
            graph_inputs[edge].const_value = emitter.constant(default, "").const_value
            graph.initializers.add(graph_inputs[edge])
        return (
            scope.transpose_value(graph_inputs[edge], _TO_NHWC) if edge in nchw_edges else graph_inputs[edge]
        )

    if inputs is None:
        # A node in the body of a function may have the name of a placeholder of the graph.
        emitter.placeholder = lambda node: (
            add_input(Edge(node, 0), None) if nodes.get(node.name) is node else None
        )
    for name, edge in zip(inputs or (), input_edges, strict=True):
        scope.values[edge] = add_input(edge, shapes.get(name))
    results = scope.demand(output_edges)
    # Results are emitted backwards, which meets placeholders in another order than that of the file.
    positions = {node: position for position, node in enumerate(nodes.values())}
    order = input_edges if inputs is not None else sorted(graph_inputs, key=lambda edge: positions[edge.node])
    graph.inputs.extend(graph_inputs[edge] for edge in order)
    _check_among("inputs_as_nchw", nchw_edges, order)
    nchw_edges = _find_edges("outputs_as_nchw", outputs_as_nchw, nodes)
    _check_among("outputs_as_nchw", nchw_edges, output_edges)
    for edge, value in zip(output_edges, results, strict=True):
        graph.outputs.append(scope.transpose_value(value, _TO_NCHW) if edge in nchw_edges else value)
    find_lists(graph)
    take_bytes(graph)
    metadata = {UNSHAPED: "true", FROZEN: "true"}
    model = ir.Model(graph, ir_version=10, producer_name="opsetta", metadata_props=metadata)
    common.RemoveUnusedNodesPass()(model)
    graph.inputs.extend(features.close(graph))
    real_pairs(model)
    return Capture(model, _interface(graph), output_names=[edge.label for edge in output_edges])


def _begin(features: ParsedFeatures, scope: GraphScope, edge: Edge) -> Unit | None:
    """Like `begin`; the features of serialized messages become inputs."""
    return features.begin(scope, edge) if edge.node.op in PARSERS else begin(scope, edge)


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


def _check_among(option: str, named_edges: Sequence[Edge], edges: Sequence[Edge]) -> None:
    """Refuse results in an option that are not inputs or outputs."""
    wrong_edge = next((edge for edge in named_edges if edge not in edges), None)
    if wrong_edge is not None:
        subject = option.partition("_")[0]
        edge_names = ", ".join(repr(edge.label) for edge in edges)
        raise UsageError(f"{option}: '{wrong_edge.label}' is not among the {subject}, which are {edge_names}")


def _find_edges(option: str, names: Sequence[str] | None, nodes: Mapping[str, GraphNode]) -> list[Edge]:
    """Find the results that a user names in an option."""
    # A signature may name thousands, of which a list would be searched for each.
    edges: dict[Edge, None] = {}
    for name in names or ():
        if not isinstance(name, str):
            raise UsageError(f"{option} must be names of results, such as 'x' or 'x:0', not {name!r}")
        edge = edge_of(name, nodes)
        if edge is None:
            close = difflib.get_close_matches(name.partition(":")[0], nodes, n=3)
            hint = f"; there are {', '.join(map(repr, close))}" if close else ""
            raise CaptureError(f"{option}: the graph has no node '{name}'{hint}")
        edge.node.result_type(edge.output)
        if edge in edges:
            raise UsageError(f"{option}: '{name}' occurs twice")
        edges[edge] = None
    return list(edges)


def _default_outputs(nodes: Mapping[str, GraphNode]) -> list[Edge]:
    """The results of the nodes that no other node reads or waits for."""
    read_nodes = {edge.node for node in nodes.values() for edge in node.inputs}
    read_nodes |= {control for node in nodes.values() for control in node.controls}
    output_edges: list[Edge] = []
    unread = [node for node in nodes.values() if node not in read_nodes]
    for node in unread:
        if node.op in _NO_RESULTS or node.op in TABLES:
            continue
        if node.op.startswith(_NO_RESULTS_BEGIN) or node.op.endswith(_NO_RESULTS_END):
            continue
        count = (
            # The further results of FusedBatchNorm serve training.
            1 if node.definition is None or node.op.startswith("FusedBatchNorm") else len(node.result_types())
        )
        output_edges += [Edge(node, index) for index in range(count)]
    if not output_edges:
        read_nodes = {edge.node for node in nodes.values() for edge in node.inputs}
        unread = [node for node in nodes.values() if node not in read_nodes]
    for op in _LAST_RESORT:
        # A graph may consist of a loop or of constants alone; then their results are the outputs, even if
        # other nodes wait for them.
        output_edges = output_edges or [Edge(node, 0) for node in unread if node.op == op]
    if not output_edges:
        reason = "has no results" if unread else "has nodes, but every result is read by another node"
        raise CaptureError(f"the graph {reason}: name the outputs")
    return output_edges


def _check_variables(output_edges: Sequence[Edge], input_edges: Sequence[Edge]) -> None:
    """Refuse a graph whose weights are in a checkpoint."""
    reached = ancestors(output_edges, frozenset(input_edges), controls=False)
    variables = sorted(node.name for node in reached if node.op in VARIABLES)
    if variables:
        names = listed([f"'{name}'" for name in variables], 3)
        raise CaptureError(
            f"the outputs depend on variables, whose values are in a checkpoint ({names}): give the "
            "checkpoint (checkpoint= or --checkpoint), and name the outputs"
        )


def _make_input(scope: GraphScope, edge: Edge, sizes: Sizes, channels_first: bool) -> ir.Value:
    """Make the graph input for a result.

    Args:
        channels_first: whether a caller feeds it as [batch, channels, height, width].
    """
    element_type = edge.node.result_type(edge.output)
    if element_type is not None and not isinstance(element_type, ir.DataType):
        raise CaptureError(f"'{edge.label}' is a {element_type}; only a tensor can be an input")
    if channels_first and sizes is None:
        sizes = [-1] * 4
    if channels_first and sizes is not None:
        if len(sizes) != 4:
            raise UsageError(f"inputs_as_nchw: '{edge.label}' must have 4 dimensions, not {len(sizes)}")
        sizes = [sizes[dim] for dim in _TO_NCHW]
    value = scope.value(edge.label, element_type)
    if sizes is not None:
        # Conditions on sizes are expressions, in which the name of a dimension must be an identifier.
        stem = re.sub(r"\W", "_", edge.label)
        value.shape = ir.Shape([size if size >= 0 else f"{stem}_{dim}" for dim, size in enumerate(sizes)])
    value.metadata_props[KIND] = "user"
    return value


def _stated_shape(edge: Edge, producer: int) -> Sizes:
    node = edge.node
    if node.op in (*PLACEHOLDERS, OPTIONAL_PLACEHOLDER) and node.has("shape"):
        sizes = shape_of(node.attribute("shape").shape)
        # Older versions write the same shape for a scalar and for an unknown rank.
        if sizes is not None and (sizes or node.op != "Placeholder" or producer > _SCALAR_IS_UNKNOWN):
            return sizes
    if node.op == "Const":
        return shape_of(node.attribute("value").tensor.tensor_shape)
    if "_output_shapes" in node.stated_attributes:
        shapes = node.attribute("_output_shapes").list.shape
        return shape_of(shapes[edge.output]) if edge.output < len(shapes) else None
    return None
