"""Lowers captured graphs: source nodes by the registry's symbolic functions, or torch's decompositions."""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from ...passes.onnx_graph.inplace.annotations import annotate_inplace
from ...passes.onnx_graph.levels import DEFAULT_LEVEL
from ...registration import (
    DIMENSIONS,
    FIXED_WEIGHTS,
    FROZEN,
    KIND,
    MODULE,
    MUTATES,
    SPECIALIZATIONS,
    STATE_INPUTS,
    UNSHAPED,
    GraphError,
    OpsettaError,
    Registry,
    SymbolicFunction,
    UnsupportedError,
    absent_result,
    held_in,
    holder_of,
    results_of,
    state,
)
from ...registration.arguments import arguments, overloaded_name, qualified_name
from ...registration.functions.operand_shapes import OperandShape, check_operand_shapes
from ...registration.inference.folding import MAXIMUM_ELEMENTS
from ...registration.kinds import is_sequence_type
from ...registration.opsets import check_opset
from ...registration.schemas import operator_schema
from ..files.garbage_collection import rare_for
from ..files.reading import TRUSTED, Bounds
from ..torch_boundary.process.process_lock import random_state_preserved
from .conversion.file_nodes import operator_calls
from .conversion.size import limits_of_source
from .driver import Driver, LoweringScope, Observation, complete_names, map_values

Decompose = Callable[[ir.Node, Callable[[ir.Node], bool]], "ir.Graph | None"]
"""Takes a node and a predicate; decomposes the node into a source graph whose operators all satisfy the
predicate, or returns None."""

_Operator = tuple[str, SymbolicFunction | None, Sequence[OperandShape]]


@dataclasses.dataclass
class LoweredModel:
    """A lowered model, and the ONNX value of each source value that has one."""

    model: ir.Model
    values: dict[Value, Value]


@random_state_preserved()
def lower(
    source: ir.Model,
    opset: int,
    registry: Registry,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    default_output_names: Sequence[str] | None = None,
    decompose: Decompose | None = None,
    keep: Iterable[Value] = (),
    level: str = DEFAULT_LEVEL,
    omitted_passes: Collection[str] = (),
    kernels: Collection[str] = (),
    keeps_weights: bool = False,
    observation: Observation | None = None,
    bounds: Bounds = TRUSTED,
) -> LoweredModel:
    """Lower a source graph to ONNX at exactly `opset`. The source is read, not changed.

    Args:
        source: a model whose graph has source nodes, without in-place operators and implicit promotion.
        input_names: names for the first graph inputs; the others keep the source's names.
        output_names: names for the first graph outputs.
        default_output_names: names for the other outputs; by default the source's.
        decompose: returns a graph of other operators for an operator without a symbolic function.
        keep: source values to add as further outputs, to compare intermediate results.
        level: the level of optimization, one of `passes.onnx_graph.levels.LEVELS`.
        omitted_passes: the names of ONNX passes that do not run.
        kernels: operators for which the target has kernels, where onnxruntime may lack them.
        keeps_weights: whether weights keep their names and contents, as in a graph for training.
        observation: filled with the origins of the ONNX nodes.
        bounds: the limits on the size of the result.

    Raises:
        OpsetError: opsetta does not support the opset.
        UnsupportedOperatorsError: the opset cannot express some operators; lists all of them.
    """
    driver = _SourceDriver(source, opset, registry, decompose)
    driver.given_inputs = input_names or []
    driver.given_outputs = output_names or []
    driver.default_outputs = default_output_names
    driver.keep = list(keep)
    driver.observation = observation
    driver.construction.limits = limits_of_source(source, bounds)
    driver.level, driver.keeps_weights = level, driver.keeps_weights or keeps_weights
    driver.omitted_passes = omitted_passes
    driver.construction.kernels = kernels
    with rare_for(len(source.graph)):
        model = driver.run()
        annotate_inplace(model)
    return LoweredModel(model, driver.values)


@dataclasses.dataclass(frozen=True)
class _SourceScope(LoweringScope):
    """The values of a graph, and the module path for nodes without one."""

    module: str = ""


class _SourceDriver(Driver[_SourceScope]):
    """Lowers captured graphs, whose nodes hold their arguments as `registration.arguments` defines."""

    def __init__(self, source: ir.Model, opset: int, registry: Registry, decompose: Decompose | None):
        graph = ir.Graph([], [], nodes=[], opset_imports={"": check_opset(opset)}, name="main_graph")
        super().__init__(source, graph, registry)
        self.is_frozen = source.metadata_props.get(FROZEN) == "true"
        self.keeps_weights = source.metadata_props.get(FIXED_WEIGHTS) == "true"
        self.has_state_inputs = source.metadata_props.get(STATE_INPUTS) == "true"
        # Sources of other frameworks may lack shapes, which emission then has to infer.
        self.construction.infers = UNSHAPED in source.metadata_props
        self.decompose = decompose
        self.values: dict[Value, Value] = {}
        self.given_inputs: Sequence[str] = ()
        self.given_outputs: Sequence[str] = ()
        self.default_outputs: Sequence[str] | None = None
        self.keep: Sequence[Value] = ()
        self._refused_lists: set[Value] = set()
        self._operators: dict[tuple[str, str, str], _Operator] = {}

    def properties(self) -> dict[str, object]:
        """Return the properties, with the conditions on inputs under which the model is valid as metadata."""
        metadata = self.source.metadata_props
        conditions = {key: metadata[key] for key in (DIMENSIONS, SPECIALIZATIONS) if key in metadata}
        return {**super().properties(), "metadata_props": conditions}

    def location(self, node: ir.Node, scope: _SourceScope) -> str:
        """Return the path of the node's module."""
        return node.metadata_props.get(MODULE) or scope.module

    def is_registered(self, node: ir.Node) -> bool:
        """Whether the operator has a symbolic function at some opset."""
        return self.registry.first_opset(qualified_name(node), node.overload) is not None

    def declare(self) -> _SourceScope:
        """Declare the inputs and initializers of the ONNX graph, under the names that the user will see."""
        names = complete_names(
            [v.name or "" for v in self.source.graph.inputs], self.given_inputs, "input_names"
        )
        for name in names:
            self.names.take(name)
        # A buffer that the model writes to must keep its name and contents: callers read it back.
        mutated = {output.metadata_props.get(MUTATES) for output in self.source.graph.outputs}
        for value in self.source.graph.initializers.data.values():
            if not value.is_graph_input():
                self._declare_state(value, value.name in mutated)
        for name, value in zip(names, self.source.graph.inputs, strict=True):
            copy = ir.Value(name=name, type=value.type, shape=value.shape)
            self.graph.inputs.append(copy)
            self.values[value] = copy
            if value.const_value is not None:
                self.defaults[copy] = value.const_value
        return _SourceScope(self.values)

    def _declare_state(self, value: Value, mutated: bool) -> None:
        tensor = value.const_value
        if tensor is None:
            raise GraphError(f"initializer '{value.name}' of the source graph has no data")
        # Small constants are inlined, so that folding and sharing see their values.
        if value.metadata_props.get(KIND) == "constant" and tensor.size <= MAXIMUM_ELEMENTS:
            self.values[value] = self.context.constant(tensor.numpy())
            return
        name = self.names.unique(value.name or "initializer")
        cast = operator_schema("Cast", self.opset)
        # BFLOAT16 weights are stored as FLOAT if the opset cannot cast them.
        is_held = value.dtype == ir.DataType.BFLOAT16 and (
            cast is None or value.dtype not in cast.inputs[0].dtypes
        )
        if is_held:
            tensor = _widen_bfloat16(tensor, name)
        copy = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype) if is_held else value.type,
            shape=value.shape,
            const_value=tensor,
        )
        self.graph.initializers.add(copy)
        if mutated:
            state(copy, mutated=True)
        self.values[value] = held_in(copy, ir.DataType.BFLOAT16) if is_held else copy
        self.state.add(copy)

    def lower_node(self, node: ir.Node, scope: _SourceScope) -> Sequence[Value | None]:
        """Lower a node by its symbolic function, or by torch's decomposition of the operator."""
        module, values = self.location(node, scope), scope.values
        # Otherwise a refused list would be reported again for each of its readers.
        refused = self._refused_lists
        if refused and any(values.get(value) in refused for value in node.inputs if value is not None):
            return self.placeholders(node)
        # An operator without output elements has nothing to compute.
        if node.domain == "aten" and node.outputs and all(map(_is_empty, node.outputs)):
            self.construction.enter(node, module)
            empty = [np.empty(value.shape.numpy(), dtype=value.dtype.numpy()) for value in node.outputs]  # type: ignore[union-attr]
            return [self.context.constant(array) for array in empty]
        name, symbolic, operands = self._operator(node)
        if symbolic is None:
            inlined = self._lower_decomposition(node, values, module)
            if inlined is not None:
                return inlined
            reason = "no symbolic function is registered for it at this opset"
            if self.decompose is not None:
                reason += ", and torch cannot decompose it into operators that have one"
            raise UnsupportedError(
                reason, first_opset=self.registry.first_opset(qualified_name(node), node.overload)
            )
        self.construction.enter(
            node,
            module,
            lambda block, node_arguments: self._lower_block(block, node_arguments, values, module),
            name,
        )
        node_arguments = arguments(node, map_values(node.inputs, values))
        if operands:
            check_operand_shapes(operands, node_arguments)
        try:
            result = symbolic(self.context, node_arguments)
        except UnsupportedError:
            if node.domain not in operator_calls.DOMAINS:
                raise
            result = operator_calls.convert_call(self.context, node, symbolic, node_arguments)
            if result is None:
                raise
        return self._check_types(node, self._check_results(node, symbolic, result), module)

    def placeholders(self, node: ir.Node) -> list[Value]:
        """Make values for the outputs of a refused node. Readers of a refused list are not reported."""
        placeholders = super().placeholders(node)
        self._refused_lists.update(value for value in placeholders if isinstance(value.type, ir.SequenceType))
        return placeholders

    def _lower_block(
        self, block: ir.Graph, inputs: Sequence[Value], outer: MutableMapping[Value, Value], module: str
    ) -> list[Value]:
        """Lower a sub-block at the current position; its definitions are local to it."""
        # Definitions of a block must not be visible outside of it, but it sees those around it.
        values = ChainMap(dict(zip(block.inputs, inputs, strict=True)), outer)
        self.nodes(block, _SourceScope(values, module))
        return map_values(block.outputs, values)  # type: ignore[return-value]

    def _lower_decomposition(
        self, node: ir.Node, values: MutableMapping[Value, Value], module: str
    ) -> Sequence[Value | None] | None:
        """Lower torch's decomposition of one node in its place."""
        if self.decompose is None:
            return None
        graph = self.decompose(node, self._is_known)
        if graph is None:
            return None
        inner: dict[Value, Value] = {
            formal: values[actual]
            for formal, actual in zip(graph.inputs, [v for v in node.inputs if v is not None], strict=True)
        }
        for initializer in graph.initializers.values():
            inner[initializer] = self.context.constant(initializer.const_value.numpy())  # type: ignore[union-attr]
        self.nodes(graph, _SourceScope(inner, module))
        return self._check_types(node, [inner.get(value) for value in graph.outputs], module)

    def _is_known(self, node: ir.Node) -> bool:
        return self._operator(node)[1] is not None

    def _operator(self, node: ir.Node) -> _Operator:
        """Return a node's operator name, its symbolic function, and its operands with declared shapes.

        These are looked up only once for each operator.
        """
        operator = node.domain, node.op_type, node.overload
        entry = self._operators.get(operator)
        if entry is None:
            symbolic = self.registry.lookup(qualified_name(node), node.overload, self.opset)
            operands = self.registry.operands(qualified_name(node))
            entry = self._operators[operator] = overloaded_name(node), symbolic, operands
        return entry

    def _check_results(self, node: ir.Node, symbolic: SymbolicFunction, result: object) -> list[object]:
        """Return the results of a symbolic function, one item for each output of the node.

        Raises:
            ResultError: the function returned too many items, or something that is not a value.
            UnsupportedError: the function returned no value for an output that is used.
        """
        outputs = node.outputs
        results = results_of(symbolic, result, len(outputs))
        for expected, item in zip(outputs, results, strict=True):
            if item is None and (expected.uses() or expected.is_graph_output()):
                raise UnsupportedError(absent_result(symbolic, result, len(results), expected.name))
        return results

    def _check_types(self, node: ir.Node, results: Sequence[object], module: str) -> Sequence[Value | None]:
        """Convert the results to values, and check them against the source's element types and shapes."""
        values: list[Value | None] = []
        for expected, item in zip(node.outputs, results, strict=True):
            if item is None:
                values.append(None)
                continue
            expected_type = expected.type
            expected_dtype = None if expected_type is None else expected_type.dtype
            value = item if isinstance(item, Value) else self.context.constant(item, expected_dtype)
            dtype = value.dtype
            if dtype is None:
                value.type = expected_type
            elif expected_dtype is not None and dtype != expected_dtype:
                raise OpsettaError(
                    f"the symbolic function of {overloaded_name(node)} returned {dtype.name} "
                    f"for '{expected.name}' in module '{module}', but the operator's result is "
                    f"{expected_dtype.name}"
                )
            # A list has the shape of its elements, but its value may be their stack.
            expected_shape = expected.shape
            if (
                expected_shape is not None
                and value.shape is not expected_shape
                and not is_sequence_type(expected_type)
            ):
                self._set_shape(value, expected_shape)
            values.append(value)
        return values

    def _set_shape(self, value: Value, expected_shape: ir.Shape) -> None:
        """Set the shape that the source declares; a value of an enclosing graph keeps its shape."""
        maker, graph_value = value.producer(), value
        if maker is None:
            graph_value = holder_of(value) or value
            maker = graph_value.producer()
        # A shape that holds in a block need not hold for an outer value elsewhere.
        if maker is None or maker.graph is not self.construction.graph:
            return
        inferred = value.shape
        if self.construction.infers and inferred is not None and len(inferred) == len(expected_shape):
            # Where the source promises no size, the inferred one is better than none.
            pairs = zip(expected_shape, inferred, strict=True)
            expected_shape = ir.Shape(
                [b if isinstance(a, ir.SymbolicDim) and a.value is None else a for a, b in pairs]
            )
        value.shape = _with_inferred_sizes(inferred, expected_shape)
        if graph_value is not value:
            graph_value.shape = value.shape

    def outputs(self, scope: _SourceScope) -> Sequence[Value]:
        """Return the outputs of the model, followed by the values to keep."""
        source_outputs = list(self.source.graph.outputs)
        inputs = {value.name for value in self.graph.inputs}
        clash = next((name for name in self.given_outputs if name in inputs), None)
        if clash is not None:
            raise OpsettaError(f"output_names: an input already has the name '{clash}'")
        source_names = [value.name or f"output_{i}" for i, value in enumerate(source_outputs)]
        defaults = list(self.default_outputs or source_names)
        self.output_names = complete_names(defaults, self.given_outputs, "output_names", inputs)
        # Kept values come last, after the outputs of the model itself.
        self.output_names += [self.names.unique(f"kept_{value.name}") for value in self.keep]
        return [scope.values[value] for value in [*source_outputs, *self.keep]]


def _widen_bfloat16(tensor: ir.TensorProtocol, name: str) -> ir.LazyTensor:
    """Convert a BFLOAT16 tensor to FLOAT when it is read."""
    return ir.LazyTensor(
        lambda: ir.Tensor(tensor.numpy().astype(np.float32), name=name),
        dtype=ir.DataType.FLOAT,
        shape=ir.Shape(tensor.shape.numpy()),
        name=name,
    )


def _is_empty(value: Value) -> bool:
    """Whether a value is known to be a tensor without elements."""
    shape = value.shape
    if shape is None or 0 not in shape.dims or not shape.is_static():
        return False
    return isinstance(value.type, ir.TensorType) and value.dtype is not None


def _with_inferred_sizes(inferred: ir.Shape | None, expected: ir.Shape) -> ir.Shape:
    """Return the declared shape, with inferred numbers in place of symbolic sizes."""
    if inferred is None or len(inferred) != len(expected):
        return expected
    pairs = list(zip(inferred.dims, expected.dims, strict=True))
    for inferred_size, size in pairs:
        if not isinstance(size, int) and isinstance(inferred_size, int):
            return ir.Shape(
                [inferred_size if isinstance(inferred_size, int) else size for inferred_size, size in pairs]
            )
    return expected
