"""Lowering: from a source graph to an ONNX graph at one opset, node by node through the registry."""

from __future__ import annotations

import dataclasses
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from ...passes.target.inplace_annotations import annotate_inplace, record_inplace
from ...passes.target.optimize import optimize
from ...registration import (
    DIMENSIONS,
    KIND,
    MODULE,
    GraphContext,
    GraphError,
    Names,
    OpsettaError,
    Registry,
    SymbolicFunction,
    UnsupportedError,
    UnsupportedOperator,
    UnsupportedOperatorsError,
    absent_result,
    held_in,
    holder_of,
    results_of,
)
from ...registration.arguments import arguments, overloaded_name, qualified_name
from ...registration.folding import MAXIMUM_ELEMENTS
from ...registration.opsets import check_opset, ir_version
from ...registration.schemas import first_opset_with_dtype, operator_schema
from ..torch_boundary.process_lock import random_state_preserved

Decompose = Callable[[ir.Node, Callable[[ir.Node], bool]], "ir.Graph | None"]
"""Gives a source graph in place of one node whose operators satisfy the predicate, or None."""


@dataclasses.dataclass
class Lowered:
    """A lowered model, and the ONNX value of every source value that has one."""

    model: ir.Model
    values: dict[Value, Value]


@dataclasses.dataclass
class _Failure:
    node: ir.Node
    module: str
    reason: str
    first_opset: int | None
    registered: bool


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
) -> Lowered:
    """Lower a source graph to ONNX at exactly `opset`. The source is read, not changed.

    Args:
        source: a model whose graph holds source nodes, functional and with explicit promotion.
        input_names: names for the graph inputs, in order; the source's own where they end.
        output_names: likewise for the outputs.
        default_output_names: what outputs without a given name are called; the source's own unless given.
        decompose: gives a graph of other operators for one that has no symbolic function.
        keep: source values to add as further outputs, for comparing intermediate results.

    Raises:
        OpsetError: an opset that cannot be written.
        UnsupportedOperatorsError: operators that cannot be expressed at this opset, all of them at once.
    """
    lowering = _Lowering(source, check_opset(opset), registry, decompose)
    lowering.declare_inputs(input_names or [])
    lowering.run(source.graph, lowering.values)
    lowering.check_outputs()
    if lowering.failures:
        raise UnsupportedOperatorsError(opset, _grouped(lowering.failures))
    lowering.declare_outputs(output_names or [], default_output_names, list(keep))
    _check_element_types(lowering.graph)
    model = ir.Model(lowering.graph, ir_version=ir_version(opset), producer_name="opsetta")
    if DIMENSIONS in source.metadata_props:
        model.metadata_props[DIMENSIONS] = source.metadata_props[DIMENSIONS]
    optimize(model)
    lowering.finish_outputs()
    if model.ir_version < 4:
        _initializers_as_inputs(model, lowering.state)
    annotate_inplace(model)
    return Lowered(model, lowering.values)


class _Lowering:
    def __init__(self, source: ir.Model, opset: int, registry: Registry, decompose: Decompose | None):
        self.source = source
        self.registry = registry
        self.decompose = decompose
        self.names = Names()
        self.graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="main_graph")
        self.context = GraphContext(self.graph, opset, registry, self.names)
        self.values: dict[Value, Value] = {}
        self.failures: list[_Failure] = []
        self.output_names: list[str] = []
        self.state: set[Value] = set()
        self.refused_lists: set[Value] = set()

    def declare_inputs(self, given: Sequence[str]) -> None:
        """Inputs and initializers of the ONNX graph, under the names that the user will see."""
        names = _named([v.name or "" for v in self.source.graph.inputs], given, "input_names")
        for name in names:
            self.names.take(name)
        for value in self.source.graph.initializers.values():
            self._declare_state(value)
        for name, value in zip(names, self.source.graph.inputs, strict=True):
            copy = ir.Value(name=name, type=value.type, shape=value.shape)
            self.graph.inputs.append(copy)
            self.values[value] = copy

    def _declare_state(self, value: Value) -> None:
        tensor = value.const_value
        if tensor is None:
            raise GraphError(f"initializer '{value.name}' of the source graph has no data")
        if value.metadata_props.get(KIND) == "constant" and tensor.size <= MAXIMUM_ELEMENTS:
            self.values[value] = self.context.constant(tensor.numpy())
            return
        name = self.names.unique(value.name or "initializer")
        is_held = value.dtype == ir.DataType.BFLOAT16 and not _is_cast(value.dtype, self.context.opset)
        if is_held:
            tensor = _widened(tensor, name)
        copy = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype) if is_held else value.type,
            shape=value.shape,
            const_value=tensor,
        )
        self.graph.initializers.add(copy)
        self.values[value] = held_in(copy, ir.DataType.BFLOAT16) if is_held else copy
        self.state.add(copy)

    def run(
        self, nodes: Iterable[ir.Node], values: MutableMapping[Value, Value], module: str | None = None
    ) -> None:
        """Lower nodes in order; `module` is the module path of nodes that have none of their own."""
        for node in nodes:
            results = self._lower_node(node, values, node.metadata_props.get(MODULE) or module or "")
            record_inplace(node, results, values)
            for output, result in zip(node.outputs, results, strict=True):
                if result is not None:
                    values[output] = result

    def _lower_node(
        self, node: ir.Node, values: MutableMapping[Value, Value], module: str
    ) -> Sequence[Value | None]:
        if any(values.get(value) in self.refused_lists for value in node.inputs if value is not None):
            return self._placeholders(node)
        if _makes_nothing(node):
            self.context.enter(node, module)
            empty = [np.empty(value.shape.numpy(), dtype=value.dtype.numpy()) for value in node.outputs]  # type: ignore[union-attr]
            return [self.context.constant(array) for array in empty]
        symbolic = self.registry.lookup(qualified_name(node), node.overload, self.context.opset)
        try:
            if symbolic is None:
                inlined = self._decomposed(node, values, module)
                if inlined is not None:
                    return inlined
                raise UnsupportedError(
                    "it has no symbolic function at this opset, and no decomposition that ends in such",
                    first_opset=self.registry.first_opset(qualified_name(node), node.overload),
                )
            self.context.enter(
                node, module, lambda block, given: self._lower_block(block, given, values, module)
            )
            mapped = {name: _mapped(item, values) for name, item in arguments(node).items()}
            result = symbolic(self.context, mapped)
            return self._checked(node, self._given(node, symbolic, result), module)
        except UnsupportedError as error:
            registered = self.registry.first_opset(qualified_name(node), node.overload) is not None
            self.failures.append(_Failure(node, module, str(error), error.first_opset, registered))
            return self._placeholders(node)
        except OpsettaError:
            raise
        except Exception as error:
            raise OpsettaError(
                f"the symbolic function of {overloaded_name(node)} failed at node '{node.name}' "
                f"in module '{module}': {type(error).__name__}: {error}"
            ) from error

    def _placeholders(self, node: ir.Node) -> list[Value]:
        """Stand-ins for what a refused node gives, so that the rest of the model is looked at too.

        A list has several forms, and what reads one that has none yet says nothing of its own.
        """
        found = [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in node.outputs]
        self.refused_lists.update(value for value in found if isinstance(value.type, ir.SequenceType))
        return found

    def _lower_block(
        self, block: ir.Graph, given: Sequence[Value], outer: MutableMapping[Value, Value], module: str
    ) -> list[Value]:
        """Lower a sub-block where the context stands; what it defines is seen nowhere else."""
        values = ChainMap(dict(zip(block.inputs, given, strict=True)), outer)
        self.run(block, values, module)
        return [_mapped(value, values) for value in block.outputs]

    def _decomposed(
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
        self.run(graph, inner, module)
        return self._checked(node, [inner.get(value) for value in graph.outputs], module)

    def _is_known(self, node: ir.Node) -> bool:
        return self.registry.lookup(qualified_name(node), node.overload, self.context.opset) is not None

    def _given(self, node: ir.Node, symbolic: SymbolicFunction, result: Any) -> list[Any]:
        """What a symbolic function returned, one item for each output of the node.

        Raises:
            ResultError: it returned too much, or something that is not a value.
            UnsupportedError: it gives no value for an output that is used.
        """
        results = results_of(symbolic, result, len(node.outputs))
        for expected, item in zip(node.outputs, results, strict=True):
            if item is None and (expected.uses() or expected.is_graph_output()):
                raise UnsupportedError(absent_result(symbolic, result, len(results), expected.name))
        return results

    def _checked(self, node: ir.Node, results: Sequence[Any], module: str) -> Sequence[Value | None]:
        """The results as values, held against the element types and shapes that the source promises."""
        checked: list[Value | None] = []
        for expected, item in zip(node.outputs, results, strict=True):
            if item is None:
                checked.append(None)
                continue
            value = item if isinstance(item, Value) else self.context.constant(item, expected.dtype)
            if value.dtype is None:
                value.type = expected.type
            elif expected.dtype is not None and value.dtype != expected.dtype:
                raise OpsettaError(
                    f"the symbolic function of {overloaded_name(node)} gave {value.dtype.name} "
                    f"for '{expected.name}' in module '{module}', where {expected.dtype.name} is due"
                )
            if isinstance(expected.type, ir.SequenceType):
                # A list has the shape of its elements, and the value that stands for it may be their stack.
                checked.append(value)
                continue
            # What a block returns of the graphs around it keeps the shape that it has there.
            real = holder_of(value) or value
            maker = real.producer()
            if expected.shape is not None and maker is not None and maker.graph is self.context.graph:
                real.shape = value.shape = _sharper(value.shape, expected.shape)
            checked.append(value)
        return checked

    def check_outputs(self) -> None:
        """Note the nodes that give outputs of an element type that the opset does not have."""
        for output in self.source.graph.outputs:
            node, value = output.producer(), self.values.get(output)
            if node is None or value is None or holder_of(value) is None:
                continue
            try:
                self.context.use(value)
            except UnsupportedError as error:
                module = node.metadata_props.get(MODULE, "")
                self.failures.append(_Failure(node, module, str(error), error.first_opset, True))

    def declare_outputs(
        self, given: Sequence[str], defaults: Sequence[str] | None, keep: Sequence[Value]
    ) -> None:
        """Graph outputs, whose names come last: passes may still put one value in the place of another."""
        wanted = list(self.source.graph.outputs)
        inputs = {value.name for value in self.graph.inputs}
        clash = next((name for name in given if name in inputs), None)
        if clash is not None:
            raise OpsettaError(f"output_names: '{clash}' is the name of an input already")
        own = [value.name or f"output_{i}" for i, value in enumerate(wanted)]
        self.output_names = _named(list(defaults or own), given, "output_names", inputs)
        self.output_names += [self.names.unique(f"kept_{value.name}") for value in keep]
        for value in [*wanted, *keep]:
            self.graph.outputs.append(self.context.use(self.values[value]))

    def finish_outputs(self) -> None:
        """Give every output a value of its own, and its name, once no pass moves them any more."""
        taken = set(self.output_names)
        for graph in (self.graph, *self.graph.subgraphs()):
            inner = [value for node in graph for value in node.outputs]
            formal = [] if graph is self.graph else graph.inputs
            for value in [*formal, *inner, *list(graph.initializers.values())]:
                if value.name in taken:
                    value.name = self.names.unique(f"{value.name}_inner")
        seen: set[Value] = set()
        for index, (name, value) in enumerate(zip(self.output_names, list(self.graph.outputs), strict=True)):
            if value.producer() is None or value in seen:
                copy = ir.Node("", "Identity", [value], num_outputs=1, name=self.names.unique("Identity"))
                copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
                self.graph.append(copy)
                self.graph.outputs[index] = value = copy.outputs[0]
            seen.add(value)
            value.name = name


def _is_cast(dtype: ir.DataType, opset: int) -> bool:
    """Whether Cast takes an element type."""
    schema = operator_schema("Cast", opset)
    return schema is not None and dtype in schema.inputs[0].dtypes


def _widened(tensor: ir.TensorProtocol, name: str) -> ir.LazyTensor:
    """A tensor of BFLOAT16 as FLOAT, made as it is read."""
    return ir.LazyTensor(
        lambda: ir.Tensor(tensor.numpy().astype(np.float32), name=name),
        dtype=ir.DataType.FLOAT,
        shape=ir.Shape(tensor.shape.numpy()),
        name=name,
    )


def _makes_nothing(node: ir.Node) -> bool:
    """Whether an operator is known to give tensors without elements only, which need no computation."""
    return node.domain == "aten" and bool(node.outputs) and all(map(_is_empty, node.outputs))


def _is_empty(value: Value) -> bool:
    shape = value.shape
    plain = isinstance(value.type, ir.TensorType) and value.dtype is not None
    return plain and shape is not None and shape.is_static() and 0 in shape.dims


def _check_element_types(graph: ir.Graph) -> None:
    """Refuse element types that the opset does not have, of values that no operator of ours has looked at.

    Identity takes every type that an opset has: an input may be an output, and a constant any operand.
    """
    opset = graph.opset_imports[""]
    schema = operator_schema("Identity", opset)
    assert schema is not None
    for value in (*graph.inputs, *graph.initializers.values()):
        if value.dtype is not None and value.dtype not in schema.inputs[0].dtypes:
            first = first_opset_with_dtype("Identity", 0, value.dtype)
            raise UnsupportedError(
                f"'{value.name}' is {value.dtype.name}, which ONNX does not have at opset {opset}"
                + (f"; from {first} it does" if first else ""),
                first_opset=first,
            )


def _initializers_as_inputs(model: ir.Model, state: set[Value]) -> None:
    """Make initializers inputs too, as IR versions below 4 demand.

    Constants become Constant nodes where that opset's Constant takes their element type (floats only, below
    opset 9): a default that callers may replace is not constant to a runtime.
    """
    graph = model.graph
    schema = operator_schema("Constant", graph.opset_imports[""])
    allowed = schema.outputs[0].dtypes if schema is not None else frozenset()
    for value in list(graph.initializers.values()):
        if value in state or value.dtype not in allowed:
            graph.inputs.append(value)
            continue
        name = str(value.name)
        del graph.initializers[name]
        tensor = ir.Attr("value", ir.AttributeType.TENSOR, value.const_value)
        constant = ir.Node("", "Constant", [], [tensor], num_outputs=1, name=f"{name}/Constant")
        result = constant.outputs[0]
        result.type, result.shape, result.name = value.type, value.shape, name
        value.replace_all_uses_with(result)
        graph.insert_before(graph[0], constant)


def check_names(option: str, given: Sequence[str] | None) -> None:
    """Check the names that a user gives to inputs or outputs.

    Raises:
        OpsettaError: they are not a list of different names.
    """
    if given is None:
        return
    if not isinstance(given, (list, tuple)) or not all(isinstance(name, str) and name for name in given):
        raise OpsettaError(f"{option} must be a list of names, not {given!r}")
    double = next((name for name, count in Counter(given).items() if count > 1), None)
    if double is not None:
        raise OpsettaError(f"{option}: '{double}' stands twice")


def _named(
    defaults: Sequence[str], given: Sequence[str], option: str, reserved: Iterable[str | None] = ()
) -> list[str]:
    """The given names, then the defaults that remain, made unique where they clash."""
    check_names(option, given)
    if len(given) > len(defaults):
        raise OpsettaError(f"{option} has {len(given)} names, but the model has {len(defaults)}")
    names = Names()
    taken = {name or "" for name in reserved}
    for name in (*taken, *given):
        names.take(name)
    rest = [f"{name}_output" if name in taken else name for name in defaults[len(given) :]]
    return [*given, *map(names.unique, rest)]


def _mapped(item: Any, values: Mapping[Value, Value]) -> Any:
    if isinstance(item, Value):
        found = values.get(item)
        if found is None:
            raise GraphError(f"value '{item.name}' is used before it is defined")
        return found
    if isinstance(item, list):
        return [_mapped(member, values) for member in item]
    return item


def _sharper(inferred: ir.Shape | None, promised: ir.Shape) -> ir.Shape:
    """The promised shape, with sizes that emission knows as numbers where the source has them symbolic."""
    if inferred is None or len(inferred) != len(promised) or promised.is_static():
        return promised
    pairs = list(zip(inferred, promised, strict=True))
    if not any(isinstance(known, int) and not isinstance(size, int) for known, size in pairs):
        return promised
    return ir.Shape([known if isinstance(known, int) else size for known, size in pairs])


def _grouped(failures: Sequence[_Failure]) -> list[UnsupportedOperator]:
    groups: dict[tuple[str, str, int | None, bool], list[str]] = {}
    for failure in failures:
        key = (overloaded_name(failure.node), failure.reason, failure.first_opset, failure.registered)
        groups.setdefault(key, []).append(failure.module)
    return [
        UnsupportedOperator(name, reason, first_opset, tuple(modules), registered)
        for (name, reason, first_opset, registered), modules in groups.items()
    ]
