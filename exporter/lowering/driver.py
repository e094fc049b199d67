"""`Driver`: lowers a graph of any source dialect to an ONNX graph at one opset, node by node.

A dialect declares its inputs and initializers and lowers one node (`source_dialect` for captured graphs,
`conversion` for ONNX files). Everything else is the same for all dialects.
"""

from __future__ import annotations

import abc
import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Generic, TypeVar

import onnx_ir as ir
from onnx_ir import Value

from ...passes.faults import faults_reported, raise_fault
from ...passes.onnx_graph.constants.initializers import Initializers, rename_tensor
from ...passes.onnx_graph.inplace.annotations import record_inplace
from ...passes.onnx_graph.levels import DEFAULT_LEVEL
from ...passes.onnx_graph.optimize import optimize
from ...registration import (
    MAXIMUM_OPSET,
    GraphContext,
    GraphError,
    InvalidNode,
    Names,
    OpsettaError,
    Registry,
    UnsupportedError,
    UnsupportedOperator,
    UnsupportedOperatorsError,
    facts_of,
    holder_of,
)
from ...registration.arguments import every_node, graphs_of, name_in_errors, overloaded_name
from ...registration.opsets import check_opset, ir_version
from ...registration.origins import set_origins
from ...registration.schemas import first_opset_with_dtype, first_version, operator_schema
from ...registration.size_algebra.dimensions import drop_long_names
from ...registration.validity.node_check import check_nodes
from .newer_opsets import declare_newer_opset

FREE_INITIALIZERS = 4
"""The first IR version in which an initializer need not be an input."""


@dataclasses.dataclass(frozen=True)
class LoweringScope:
    """The values of a graph that is being lowered.

    Attributes:
        values: the ONNX value of each source value that is lowered.
    """

    values: MutableMapping[Value, Value]


S = TypeVar("S", bound=LoweringScope)


@dataclasses.dataclass
class Observation:
    """A record of a lowering, for reports.

    Attributes:
        source: the graph that was lowered; None if the model was copied.
        emitted: how many ONNX nodes each source node was lowered to, before the ONNX passes.
        new_nodes: the ONNX nodes of the lowering; ONNX passes made the other nodes of the finished graph.
    """

    source: ir.Graph | None = None
    emitted: dict[ir.Node, int] = dataclasses.field(default_factory=dict)
    new_nodes: set[ir.Node] = dataclasses.field(default_factory=set)

    def record(self, node: ir.Node, graph: ir.Graph, before: ir.Node | None) -> None:
        """Record that a source node was lowered to the nodes of a graph that follow `before`."""
        count = 0
        # From the end, so that the time depends only on the number of new nodes.
        for new_node in reversed(graph):
            if new_node is before:
                break
            set_origins(new_node, (node,))
            self.new_nodes.add(new_node)
            count += 1
        self.emitted[node] = count


@dataclasses.dataclass
class _Failure:
    name: str
    location: str
    reason: str
    first_opset: int | None
    registered: bool = True


class Driver(abc.ABC, Generic[S]):
    """Lowers one graph to one opset.

    Attributes:
        source: the model to lower; it is not changed.
        opset: the opset of the written nodes. It is lower than `declared_opset`, the opset of the file, if
            that one is newer than those that opsetta was tested with.
        graph: the ONNX graph under construction; `construction` keeps its names, constants and limits, and
            `context` emits into it.
        names: the names that the ONNX graph uses.
        output_names: names for the outputs of the graph, in order.
        defaults: the defaults of inputs, which become initializers with their names.
        state: the model's parameters, buffers and initializers in the ONNX graph, without the constants that
            lowering makes.
        keeps_weights: whether the values of `state` keep their names and contents.
        has_state_inputs: whether the values of `state` that the model writes to are inputs too.
        is_frozen: whether `state` has constants of a graph, whose names do not stand for their contents.
        level: the level of optimization.
        omitted_passes: the names of ONNX passes that do not run.
        observation: filled during the lowering; None records nothing.
        known_invalid: nodes that the source has at the same opset, and that are not valid there.
    """

    def __init__(self, source: ir.Model, graph: ir.Graph, registry: Registry):
        self.source = source
        self.graph = graph
        self.declared_opset = check_opset(graph.opset_imports[""])
        self.opset = graph.opset_imports[""] = min(self.declared_opset, MAXIMUM_OPSET)
        self.registry = registry
        self.context = GraphContext(graph, self.opset, registry)
        self.construction = self.context.construction
        self.names = self.construction.names
        self.output_names: list[str] = []
        self.state: set[Value] = set()
        self.defaults: dict[Value, ir.TensorProtocol] = {}
        self.keeps_weights = self.has_state_inputs = False
        self.is_frozen = False
        self.level = DEFAULT_LEVEL
        self.omitted_passes: Collection[str] = ()
        self.observation: Observation | None = None
        self.known_invalid: Sequence[InvalidNode] = ()
        self._failures: list[_Failure] = []

    @abc.abstractmethod
    def declare(self) -> S:
        """Add the inputs and initializers to the ONNX graph, and return the scope for its nodes."""

    @abc.abstractmethod
    def lower_node(self, node: ir.Node, scope: S) -> Sequence[Value | None]:
        """Lower one node and return its results, with None for each output that is left out.

        Raises:
            UnsupportedError: the opset cannot express it.
        """

    @abc.abstractmethod
    def outputs(self, scope: S) -> Sequence[Value]:
        """Return the outputs of the graph, after all nodes are lowered, and set `output_names`."""

    def location(self, node: ir.Node, scope: S) -> str:
        """Describe where a node is, for messages."""
        if node.name or not node.outputs:
            return node.name or "a node without outputs"
        return f"the node of '{node.outputs[0].name}'"

    def properties(self) -> dict[str, Any]:
        """Return the properties of the model besides its graph."""
        return {"producer_name": "opsetta"}

    @faults_reported("when it lowered the model")
    def run(self) -> ir.Model:
        """Lower the model.

        Raises:
            UnsupportedOperatorsError: lists all operators that this opset cannot express.
            InvalidNodesError: nodes of the lowered model that are not valid.
            OpsetError: see `declare_newer_opset`.
        """
        scope = self.declare()
        if self.observation is not None:
            self.observation.source = self.source.graph
        self.nodes(self.source.graph, scope)
        self._check_outputs(scope)
        if not self.failed:
            for value in self.outputs(scope):
                self.graph.outputs.append(self.construction.use(value))
        # Also after failures, so that one error lists everything that the opset lacks.
        self._check_element_types()
        if self.failed:
            raise UnsupportedOperatorsError(self.opset, _group_failures(self._failures))
        version = ir_version(self.opset)
        if self.has_state_inputs:
            # Before this version callers cannot replace an initializer.
            version = max(version, FREE_INITIALIZERS)
        model = ir.Model(self.graph, ir_version=version, **self.properties())
        self._optimize(model)
        # Only now, because symbolic functions and passes take a value with contents for a constant. Before IR
        # version 4 callers cannot replace an initializer, so they have to pass the input.
        defaults = self.defaults if model.ir_version >= FREE_INITIALIZERS else {}
        for value, tensor in defaults.items():
            value.const_value = tensor
            self.graph.initializers.add(value)
            self.state.add(value)
        self._finish_outputs()
        for node in every_node(self.graph):
            for value in node.outputs:
                # Files cannot state a shape without a type, as behind operators that ONNX does not have.
                value.shape = None if value.type is None else value.shape
        check_nodes(model, self.known_invalid)
        if model.ir_version < FREE_INITIALIZERS:
            initializers_as_inputs(model, self.state)
        elif self.has_state_inputs:
            self.graph.inputs.extend(
                value for value in self.graph.initializers.values() if facts_of(value).mutated
            )
        if self.declared_opset > self.opset:
            declare_newer_opset(model, self.declared_opset)
        return model

    def _optimize(self, model: ir.Model) -> None:
        """Run the ONNX passes; weights that the model writes to keep their names and contents."""
        mutated = {value for value in self.state if facts_of(value).mutated}
        fixed_weights = self.state if self.keeps_weights else mutated
        initializers = Initializers(model, fixed_weights, () if self.is_frozen else self.state)
        optimize(model, initializers, self.level, self.omitted_passes, self.construction.kernels)
        self.state |= initializers.derived

    @property
    def failed(self) -> bool:
        """Whether the opset cannot express something lowered so far."""
        return bool(self._failures)

    def nodes(self, nodes: Iterable[ir.Node], scope: S) -> None:
        """Lower nodes in order, and record those that the opset cannot express."""
        for node in nodes:
            graph = self.construction.graph
            before = graph[-1] if self.observation is not None and len(graph) else None
            try:
                results = self.lower_node(node, scope)
                record_inplace(node, results, scope.values)
            except UnsupportedError as error:
                # Lowering goes on, so that one error lists every unsupported operator.
                self.refuse(node, scope, error)
                results = self.placeholders(node)
            except OpsettaError:
                raise
            except MemoryError:
                self.refuse(node, scope, UnsupportedError("it takes more memory than there is"))
                results = self.placeholders(node)
            except Exception as error:
                name, location = overloaded_name(node), self.location(node, scope)
                raise_fault(error, f"when it lowered {name} at node '{node.name}' ({location})")
                raise OpsettaError(
                    f"lowering {name} failed at node '{node.name}' ({location}): "
                    f"{type(error).__name__}: {error}"
                ) from error
            if self.observation is not None:
                self.observation.record(node, graph, before)
            for output, result in zip(node.outputs, results, strict=True):
                if result is not None:
                    scope.values[output] = result

    def refuse(self, node: ir.Node, scope: S, error: UnsupportedError) -> None:
        """Record a node that the opset cannot express."""
        location, registered = self.location(node, scope), self.is_registered(node)
        name = name_in_errors(node)
        self._failures.append(_Failure(name, location, str(error), error.first_opset, registered))

    def placeholders(self, node: ir.Node) -> list[Value]:
        """Make values for the outputs of a refused node, so that the rest of the model is checked too."""
        return [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in node.outputs]

    def is_registered(self, node: ir.Node) -> bool:
        """Whether the operator can be expressed at some opset."""
        return True

    def _check_outputs(self, scope: S) -> None:
        """Record the nodes whose outputs have an element type that the opset does not have."""
        for output in self.source.graph.outputs:
            node, value = output.producer(), scope.values.get(output)
            if node is None or value is None or holder_of(value) is None:
                continue
            try:
                self.construction.use(value)
            except UnsupportedError as error:
                self.refuse(node, scope, error)

    def _check_element_types(self) -> None:
        """Record inputs and initializers with an element type that the opset does not have.

        Emission checks types only of the values that nodes read, and an input may go straight to an output.
        The types of an opset are those that its Identity takes.
        """
        schema = operator_schema("Identity", self.opset)
        assert schema is not None
        allowed = schema.inputs[0].dtypes
        failures = []
        for value in (*self.graph.inputs, *self.graph.initializers.data.values()):
            if type(value.type) is ir.TensorType and value.type.dtype in allowed:
                continue
            first, type_name = first_opset_of_type(value.type, self.opset), None
            if first is None and value.dtype is not None and value.dtype not in allowed:
                first, type_name = first_opset_with_dtype("Identity", 0, value.dtype), value.dtype.name
            elif first is None:
                continue
            reason = (
                f"'{value.name}' is {type_name or value.type}, which ONNX does not have at opset {self.opset}"
            )
            failures.append(_Failure("input or initializer", value.name or "", reason, first))
        self._failures = failures + self._failures

    def _finish_outputs(self) -> None:
        """Make every output with a name of its own a distinct value, and set its name, after all passes.

        Passes may also have given two values the same name.
        """
        output_names = set(self.output_names)
        for graph in graphs_of(self.graph):
            names_in_graph = {value.name for value in graph.inputs} if graph is self.graph else set()
            results = [value for node in graph for value in node.outputs]
            formal = [] if graph is self.graph else graph.inputs
            for value in [*formal, *graph.initializers.data.values(), *results]:
                current = value.name
                if not current:
                    continue
                drop_long_names(value)
                if current in output_names or (current in names_in_graph and not value.is_graph_input()):
                    current = self.names.unique(f"{current}_inner")
                    _rename(value, current)
                names_in_graph.add(current)
        earlier_outputs: set[Value] = set()
        for index, (name, value) in enumerate(zip(self.output_names, list(self.graph.outputs), strict=True)):
            if (value.is_graph_input() or value in earlier_outputs) and value.name == name:
                # torch.onnx lists a result that a model returns twice under one name.
                continue
            if value.producer() is None or value in earlier_outputs:
                copy = ir.Node("", "Identity", [value], num_outputs=1, name=self.names.unique("Identity"))
                copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
                self.graph.append(copy)
                self.graph.outputs[index] = value = copy.outputs[0]
            earlier_outputs.add(value)
            value.name = name


def _rename(value: Value, name: str) -> None:
    """Rename a value, and a copy of its tensor object: the source model may hold the tensor itself."""
    if value.const_value is not None:
        value.const_value = rename_tensor(value.const_value, name)
    value.name = name


def first_opset_of_type(value_type: ir.TypeProtocol | None, opset: int) -> int | None:
    """Return the first opset with a sequence or optional type that this opset lacks; None for other types."""
    operator = None
    if type(value_type) is ir.TensorType:
        return None
    if isinstance(value_type, ir.SequenceType):
        operator = "SequenceEmpty"
    elif isinstance(value_type, ir.OptionalType):
        operator = "Optional"
    if operator is None or operator_schema(operator, opset) is not None:
        return None
    return first_version(operator, "", lambda _: True)


def initializers_as_inputs(model: ir.Model, state: set[Value]) -> None:
    """Make initializers inputs too, as IR versions below 4 require.

    A runtime does not treat an initializer that is also an input as constant, because callers may replace
    it. So constants become Constant nodes if the opset's Constant supports their element type: below opset
    9, only floats.

    Args:
        state: initializers that are the model's weights.
    """
    graph = model.graph
    for value in list(graph.initializers.values()):
        if value in state or not may_be_constant_node(value, graph.opset_imports[""]):
            if not value.is_graph_input():
                graph.inputs.append(value)
            continue
        name = str(value.name)
        del graph.initializers[name]
        constant = constant_node(name, value.const_value)
        result = constant.outputs[0]
        result.type, result.shape = value.type, value.shape
        value.replace_all_uses_with(result)
        graph.insert_before(graph[0], constant)


def may_be_constant_node(value: Value, opset: int) -> bool:
    """Whether the opset's Constant has the value's element type."""
    schema = operator_schema("Constant", opset)
    return schema is not None and value.dtype in schema.outputs[0].dtypes


def constant_node(name: str, tensor: ir.TensorProtocol | None) -> ir.Node:
    """Make a Constant node whose output has a name."""
    content = ir.Attr("value", ir.AttributeType.TENSOR, tensor)
    node = ir.Node("", "Constant", [], [content], num_outputs=1, name=f"{name}/Constant")
    node.outputs[0].name = name
    return node


def check_names(option: str, names: Sequence[str] | None) -> None:
    """Check the names that a user gives to inputs or outputs.

    Raises:
        OpsettaError: the argument is not a list of different names.
    """
    if names is None:
        return
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
        raise OpsettaError(f"{option} must be a list of names, not {names!r}")
    repeated_name = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated_name is not None:
        raise OpsettaError(f"{option}: '{repeated_name}' occurs twice")


def complete_names(
    defaults: Sequence[str], requested_names: Sequence[str], option: str, reserved: Iterable[str | None] = ()
) -> list[str]:
    """Return the requested names, followed by default names for the others; all are unique."""
    check_names(option, requested_names)
    if len(requested_names) > len(defaults):
        values = option.removesuffix("_names") + ("s" if len(defaults) != 1 else "")
        raise OpsettaError(
            f"{option} has {len(requested_names)} names, but the model has {len(defaults)} {values}"
        )
    names = Names()
    reserved_names = {name or "" for name in reserved}
    for name in (*reserved_names, *requested_names):
        names.take(name)
    default_names = [
        f"{name}_output" if name in reserved_names else name for name in defaults[len(requested_names) :]
    ]
    return [*requested_names, *map(names.unique, default_names)]


def map_values(source_values: Iterable[Value | None], values: Mapping[Value, Value]) -> list[Value | None]:
    """Return the ONNX values of source values; None, for an omitted input, stays None.

    Raises:
        GraphError: a source value has not been lowered yet.
    """
    try:
        return [None if value is None else values[value] for value in source_values]
    except KeyError as error:
        raise GraphError(f"value '{error.args[0].name}' is used before it is defined") from None


def _group_failures(failures: Sequence[_Failure]) -> list[UnsupportedOperator]:
    groups: dict[tuple[str, str, int | None, bool], list[str]] = {}
    for failure in failures:
        key = (failure.name, failure.reason, failure.first_opset, failure.registered)
        groups.setdefault(key, []).append(failure.location)
    return [
        UnsupportedOperator(name, reason, first_opset, tuple(locations), registered)
        for (name, reason, first_opset, registered), locations in groups.items()
    ]
