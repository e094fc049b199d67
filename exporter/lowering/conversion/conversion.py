"""Conversion: from an ONNX graph at one opset to one at another, node by node.

A node whose operator has the same version at the target is copied. Any other is emitted by
the names of its arguments, where its operator still means the same, or by a symbolic function:

    before13::Softmax     Softmax of versions below 13, expressed with the newest operators

or by the version ladder of `symbolics/onnx`, or by the body that ONNX gives the operator.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir import AttributeType, Value

from ....passes.onnx_graph.inplace.annotations import annotate_inplace
from ....passes.onnx_graph.levels import DEFAULT_LEVEL
from ....registration import (
    MAY_OVERWRITE,
    GraphError,
    Registry,
    SymbolicFunction,
    UnsupportedError,
    composed_results,
    load_entry_points,
    registry_or_default,
)
from ....registration.emission.ladder import at_work
from ....registration.functions.results import as_list
from ....registration.opsets import check_opset
from ....registration.schemas import OperatorSchema, inputs_by_name, omissible, operator_schema
from ....registration.validity.node_check import invalid_nodes
from ....registration.validity.ranks import VECTORS
from ...files.garbage_collection import rare_collections
from ...files.reading import BOUNDS, Bounds
from ...files.reading.carried import attach, carried_by, check_training
from ...torch_boundary.process.process_lock import random_state_preserved
from ..driver import Driver, Observation
from . import binding, body_types, converted_constants
from .bodies import body_of
from .chosen_branches import BranchNames, chosen_branch, infer_shape
from .file_scope import FileScope
from .foreign_operators import call_foreign, foreign_function, has_versions
from .preparation import copy_of, opset_of, source_of, with_contents
from .size import limits_of
from .source_validity import check_source, warn_of_invalid
from .vectors import with_vectors

_TRIED = 20  # Nodes of one operator that are refused before its others are refused without a try.


@random_state_preserved()
@rare_collections()
def convert(
    model: ir.Model,
    opset: int,
    registry: Registry | None = None,
    bounds: Bounds = BOUNDS,
    level: str | None = None,
    keeps_weights: bool = False,
    observation: Observation | None = None,
) -> ir.Model:
    """Convert a model to another opset; the model is not changed, and weights are shared.

    Args:
        model: an ONNX model at any opset; nodes of `ai.onnx.ml` and of custom domains stay untouched.
        opset: the opset to write.
        registry: symbolic functions to convert with; the default registry unless given.
        level: of optimization; by default that of `DEFAULT_LEVEL`, and none for a model that has the opset.
        keeps_weights: whether initializers keep their names and contents.
        observation: filled with the origins of the new nodes, unless the model is copied.

    Raises:
        OpsetError: an opset that opsetta does not write.
        UnsupportedOperatorsError: every operator that cannot be said at the opset.
        InvalidNodesError: nodes that are not valid, in the model or in what would be written.
    """
    from .... import symbolics  # noqa: F401

    check_opset(opset)
    load_entry_points()
    limits_of(model, bounds)
    source_opset = opset_of(model)
    if source_opset is None or (source_opset == opset and level is None):
        warn_of_invalid(invalid_nodes(model))
        return _carrying(model, with_contents(copy_of(model)))
    check_training(model, opset)
    source = source_of(model, bounds)
    found = _Conversion(source, opset, registry_or_default(registry), bounds)
    found.known_invalid = check_source(source, source_opset, opset, found.registry)
    found.observation = observation
    found.level, found.keeps_weights = level or DEFAULT_LEVEL, keeps_weights
    return _carrying(model, with_contents(found.run()))


def _carrying(model: ir.Model, converted: ir.Model) -> ir.Model:
    """The converted model with the parts of the source model, without weights packed for its graph."""
    attach(converted, dataclasses.replace(carried_by(model), packed={}))
    return converted


class _Conversion(Driver[FileScope]):
    """Lowers ONNX graphs of other opsets, whose nodes are read with the schemas of their opset."""

    def __init__(self, source: ir.Model, opset: int, registry: Registry, bounds: Bounds):
        imports = {name: version for name, version in source.graph.opset_imports.items() if name != "ai.onnx"}
        graph = ir.Graph(
            [],
            [],
            nodes=[],
            opset_imports={**imports, "": opset},
            name=source.graph.name,
            doc_string=source.graph.doc_string,
            metadata_props=dict(source.graph.metadata_props),
        )
        super().__init__(source, graph, registry)
        self.construction.limits = limits_of(source, bounds)
        self._breaks = binding.breaks(registry)
        self._refused: Counter[str] = Counter()
        self._bound: set[Value] = set()
        self._used_names: set[str] = set()
        self._hidden: dict[Value, ir.TensorProtocol] = {}
        self._moved: set[Value] = set()
        self._branch_names = BranchNames(source.graph, self.names)
        self._has_chosen = False

    def properties(self) -> dict[str, Any]:
        """The properties of the file."""
        names = ("producer_name", "producer_version", "domain", "model_version", "doc_string")
        own = {name: getattr(self.source, name) for name in names}
        return {**own, "metadata_props": dict(self.source.metadata_props)}

    def declare(self) -> FileScope:
        """Inputs and initializers under their own names; the names of the file are taken."""
        self.names.take_all(self.source.graph)
        scope = FileScope({}, opset_of(self.source) or self.opset)
        self._hidden = converted_constants.declare(self.source, self.graph, scope.values)
        self._bound.update(scope.values.values())
        self.state.update(scope.values.values())
        return scope

    def outputs(self, scope: FileScope) -> Sequence[Value]:
        """The outputs of the file under their own names."""
        self.output_names = [str(value.name) for value in self.source.graph.outputs]
        return [self._described(value, scope) for value in self.source.graph.outputs]

    def run(self) -> ir.Model:
        """Lower the model; outputs keep their metadata of the file, and inputs get their defaults back."""
        model = super().run()
        for value, stated in zip(self.graph.outputs, self.source.graph.outputs, strict=True):
            value.metadata_props.update(stated.metadata_props)
            value.doc_string = stated.doc_string or value.doc_string
            if value.shape is None:
                value.shape = stated.shape
        for value, tensor in self._hidden.items():
            value.const_value = tensor
        if any(MAY_OVERWRITE in node.metadata_props for node in self.source.graph.all_nodes()):
            annotate_inplace(model)
        return model

    def refuse(self, node: ir.Node, scope: FileScope, error: UnsupportedError) -> None:
        """Record a refused node of the file; in a body, refuse the node that the body replaces."""
        if not scope.copies:
            raise error
        super().refuse(node, scope, error)
        self._refused[node.op_type] += 1

    def lower_node(self, node: ir.Node, scope: FileScope) -> list[Value | None]:
        """A copy of the node, or its replacement."""
        if scope.copies and self._refused[node.op_type] >= _TRIED:
            raise UnsupportedError(f"it was not tried, because {_TRIED} nodes before it cannot be converted")
        attributes = binding.resolved(node.attributes, scope.attributes)
        function = self.source.functions.get(node.op_identifier())
        if function is not None:
            inputs = [self._mapped(v, scope) for v in node.inputs]
            return self._function(function, inputs, attributes)
        schema = binding.schema_of(node.op_type, scope.opset) if node.domain in ("", "ai.onnx") else None
        if schema is None:
            return self._without_schema(node, attributes, scope)
        constant = converted_constants.constant_of(self.context, node.op_type, attributes)
        if constant is not None:
            return [constant]
        inputs = self._inputs(node, scope)
        branch = chosen_branch(node, inputs[0]) if node.op_type == "If" and inputs else None
        if branch is not None and len(branch.outputs) == len(node.outputs):
            return self._chosen(branch, scope)
        target = operator_schema(node.op_type, self.opset)
        if scope.copies and target is not None and target.since_version == schema.since_version:
            return list(self._copied(node, attributes, scope).outputs)
        before = self.construction.graph[-1] if len(self.construction.graph) else None
        count, emitted = binding.outputs_and_attributes(node, schema, attributes)
        results: list[Value | None] = list(self._said(schema, scope, inputs, emitted, count))
        results += [None] * (len(node.outputs) - len(results))
        if scope.copies:
            results = [
                None if result is None else self._named(output, result)
                for output, result in zip(node.outputs, results, strict=False)
            ]
            self._trace(node, before)
        return results

    def _without_schema(
        self, node: ir.Node, attributes: Mapping[str, ir.Attr], scope: FileScope
    ) -> list[Value | None]:
        """The results of the user's function for an operator that ONNX does not have; else a copy."""
        symbolic = foreign_function(node, self.registry, self.opset)
        if symbolic is not None:
            inputs = [self._mapped(value, scope) for value in node.inputs]
            return list(call_foreign(symbolic, self.context, node, inputs, attributes))
        if node.domain in ("", "ai.onnx") and self.opset != scope.opset and has_versions(node.op_type):
            raise UnsupportedError(f"ONNX has no operator {node.op_type} at opset {scope.opset}")
        copied = self._copied(node, attributes, scope)
        converted_constants.localize(copied, self.context, self._moved)
        return list(copied.outputs)

    def _trace(self, node: ir.Node, before: ir.Node | None) -> None:
        """Give the replacement of a node its metadata, and its last node the name."""
        last = True
        for made in reversed(self.construction.graph):
            if made is before:
                return
            if last and node.name and node.name not in self._used_names:
                self._used_names.add(node.name)
                made.name = node.name
                made.doc_string = node.doc_string
            last = False
            for key, text in node.metadata_props.items():
                made.metadata_props.setdefault(key, text)

    def _inputs(self, node: ir.Node, scope: FileScope) -> list[Value | None]:
        """The new inputs of an ONNX node."""
        inputs = [self._mapped(value, scope) for value in node.inputs]
        return with_vectors(self.context, node.op_type, inputs) if node.op_type in VECTORS else inputs

    def _mapped(self, value: Value | None, scope: FileScope) -> Value | None:
        if value is None or value.name in scope.absent:
            return None
        found = scope.values.get(value)
        if found is None and not scope.copies:
            # The IR library does not see the values of a function that its sub-graphs read.
            found = next((new for old, new in scope.values.items() if old.name == value.name), None)
        if found is None and not scope.copies:
            raise UnsupportedError(f"its body reads '{value.name}' of the graph around it")
        if found is None:
            raise GraphError(f"value '{value.name}' is used before it is defined")
        return found

    def _copied(self, node: ir.Node, attributes: Mapping[str, ir.Attr], scope: FileScope) -> ir.Node:
        """The node itself, reading the new values; its sub-graphs are converted."""
        copied = []
        standard = node.domain in ("", "ai.onnx")
        for name, attribute in attributes.items():
            if standard and omissible(node.op_type, "", self.opset, attribute):
                continue
            if attribute.type == AttributeType.GRAPH:
                attribute = ir.Attr(name, attribute.type, self._subgraph(attribute.as_graph(), scope))
            elif attribute.type == AttributeType.GRAPHS:
                graphs = [self._subgraph(graph, scope) for graph in attribute.as_graphs()]
                attribute = ir.Attr(name, attribute.type, graphs)
            copied.append(attribute)
        inputs = self._inputs(node, scope) if standard else [self._mapped(v, scope) for v in node.inputs]
        for value in inputs:
            if value is not None:
                self.construction.use(value)
        fresh = ir.Node(
            "" if node.domain == "ai.onnx" else node.domain,
            node.op_type,
            inputs,
            copied,
            overload=node.overload,
            num_outputs=len(node.outputs),
            name=node.name if scope.copies else self.names.unique(node.op_type),
            doc_string=node.doc_string,
            metadata_props=dict(node.metadata_props),
        )
        for value, output in zip(node.outputs, fresh.outputs, strict=True):
            output.name = value.name if scope.copies or not value.name else self.names.unique(value.name)
            output.type, output.shape = value.type, value.shape
            output.metadata_props.update(value.metadata_props)
        self._bound.update(fresh.outputs)
        self.construction.graph.append(fresh)
        if self._has_chosen:
            infer_shape(fresh)
        return fresh

    def _named(self, output: Value, result: Value) -> Value:
        """A result with the name and shape of the replaced value, if this conversion made it."""
        if output.dtype is not None and result.dtype is not None and output.dtype != result.dtype:
            raise UnsupportedError(
                f"its replacement returns {result.dtype.name} as '{output.name}', which must be "
                f"{output.dtype.name}"
            )
        producer = result.producer()
        if producer is None or producer.graph is not self.construction.graph or result in self._bound:
            return result
        if output.type is not None:
            result.type = output.type
        settled = result.shape is not None and result.shape.is_static()
        if output.shape is not None and isinstance(output.type, ir.TensorType | None) and not settled:
            result.shape = output.shape
        result.name = output.name
        self._bound.add(result)
        return result

    def _said(
        self,
        schema: OperatorSchema,
        scope: FileScope,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, ir.Attr],
        outputs: int,
    ) -> Sequence[Value]:
        """Express an operator at the target: emitted, composed, or by its body."""
        try:
            return self._emitted(schema, scope, inputs, attributes, outputs)
        except UnsupportedError as error:
            body = body_of(schema.name, scope.opset, self.opset, inputs, attributes, outputs)
            if body is None:
                raise
            try:
                given = binding.completed(schema, attributes)
                found = self._expanded(body.graph, body.opset, inputs, given)
                return [value for value in found if value is not None]
            except UnsupportedError as inner:
                raise UnsupportedError(
                    f"{error}; its function body cannot be converted either: {inner}",
                    first_opset=error.first_opset,
                ) from inner

    def _emitted(
        self,
        schema: OperatorSchema,
        scope: FileScope,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, ir.Attr],
        outputs: int,
    ) -> Sequence[Value]:
        attributes = binding.without_defaults(schema, attributes)
        if self.opset < binding.NEGATIVE_AXES:
            attributes = binding.from_front(self.context, schema.name, inputs, attributes)
            inputs = binding.axes_from_front(self.context, schema.name, schema, inputs)
        named = binding.attributes_by_name(schema, attributes)
        like = body_types.formals(schema.name, inputs, named)
        for name, value in named.items():
            if isinstance(value, ir.Graph):
                named[name] = self._subgraph(value, scope, like)
        if self.failed and any(isinstance(value, ir.Graph) for value in named.values()):
            return [ir.Value() for _ in range(outputs)]
        target = operator_schema(schema.name, self.opset)
        found = self._breaks.get(schema.name, [])
        own = binding.meaning(found, schema.since_version)
        same = target is not None and binding.meaning(found, target.since_version) == own
        if own is not None and not same:
            older = self.registry.lookup(f"before{own}::{schema.name}", "", self.opset)
            assert older is not None
            return self._call_symbolic(older, schema, inputs, named, outputs)
        rung = self.registry.rung(schema.name, self.opset)
        named = {**binding.implied(self.registry, schema), **named}
        if own is None and rung is not None:
            with at_work(self.context, schema.name):
                return self._call_symbolic(rung.symbolic, schema, inputs, named, outputs)
        if target is not None and not same:
            raise UnsupportedError(
                f"ONNX operator {schema.name} has another meaning at opset {self.opset}",
                first_opset=found[-1],
            )
        positional, moved = binding.positions(schema, target, inputs)
        arguments = {**moved, **binding.with_defaults(self.registry, schema, named, target)}
        made = self.context.op_of_target(schema.name, *positional, outputs=outputs, **arguments)
        results = as_list(made)
        body_types.results(schema.name, results, inputs, named)
        refused = binding.refused_kind(schema.name, self.opset, inputs, results) if target else None
        if refused is not None:
            raise UnsupportedError(
                f"ONNX operator {schema.name} does not have {refused} at opset {self.opset}"
            )
        return results

    def _call_symbolic(
        self,
        symbolic: SymbolicFunction,
        schema: OperatorSchema,
        inputs: Sequence[Value | None],
        named: Mapping[str, Any],
        outputs: int,
    ) -> Sequence[Value]:
        arguments = {**inputs_by_name(schema, inputs), **named}
        if "outputs" in symbolic.parameters:
            arguments["outputs"] = outputs
        results = composed_results(symbolic, symbolic(self.context, arguments), outputs)
        return [self.context.constant(item) for item in results]

    def _function(
        self, function: ir.Function, inputs: Sequence[Value | None], attributes: Mapping[str, ir.Attr]
    ) -> list[Value | None]:
        """The nodes of a function of the model in the place of a call."""
        defaults = {name: a for name, a in function.attributes.items() if a.value is not None}
        opset = function.opset_imports.get("", self.opset)
        return self._expanded(function.graph, opset, inputs, {**defaults, **attributes})

    def _expanded(
        self,
        graph: ir.Graph,
        opset: int,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, ir.Attr],
    ) -> list[Value | None]:
        given = dict(zip(graph.inputs, inputs, strict=False))
        values = {formal: actual for formal, actual in given.items() if actual is not None}
        absent = frozenset(str(formal.name) for formal in graph.inputs if formal not in values)
        scope = FileScope(values, opset, attributes, copies=False, absent=absent)
        self.nodes(graph, scope)
        return [scope.values.get(value) for value in graph.outputs]

    def _chosen(self, branch: ir.Graph, outer: FileScope) -> list[Value | None]:
        """The nodes of the branch that an If takes, in the place of the If."""
        self._has_chosen, graph = True, self.construction.graph
        before = graph[-1] if len(graph) else None
        values = ChainMap({}, *getattr(outer.values, "maps", [outer.values]))
        owner = converted_constants.owner(graph, self.graph, self.opset)
        for value in branch.initializers.values():
            copy = converted_constants.initializer(value, self.names.unique(value.name or "initializer"))
            owner.initializers.add(copy)
            if owner is not graph:
                self._moved.add(copy)
            values[value] = copy
        scope = dataclasses.replace(outer, values=values)
        self.nodes(branch, scope)
        new_nodes = itertools.takewhile(lambda node: node is not before, reversed(graph))
        self._branch_names.separate(value for node in new_nodes for value in node.outputs)
        return [self._mapped(value, scope) for value in branch.outputs]

    def _subgraph(self, block: ir.Graph, outer: FileScope, like: Sequence[Value] = ()) -> ir.Graph:
        """A sub-graph at the target; it may read what the graphs around it make.

        Args:
            like: values like those that it is given, for inputs whose types it does not say.
        """
        graph = ir.Graph([], [], nodes=[], name=block.name, doc_string=block.doc_string)
        values = ChainMap({}, *getattr(outer.values, "maps", [outer.values]))
        for position, value in enumerate(block.inputs):
            actual = like[position] if position < len(like) else value
            name = value.name if outer.copies else self.names.unique(value.name or "input")
            copy = ir.Value(name=name, type=value.type or actual.type, shape=value.shape or actual.shape)
            graph.inputs.append(copy)
            values[value] = copy
        owner = converted_constants.owner(graph, self.graph, self.opset)
        for value in block.initializers.values():
            is_own = outer.copies and owner is graph
            name = value.name if is_own else self.names.unique(value.name or "initializer")
            copy = converted_constants.initializer(value, str(name))
            owner.initializers.add(copy)
            if owner is not graph:
                self._moved.add(copy)
            values[value] = copy
        self._bound.update(values.maps[0].values())
        scope = dataclasses.replace(outer, values=values)
        surrounding, self.construction.graph = self.construction.graph, graph
        try:
            self.nodes(block, scope)
            if not self.failed:
                graph.outputs.extend(self._owned(block.outputs, graph, scope))
        finally:
            self.construction.graph = surrounding
        return graph

    def _described(self, output: Value, scope: FileScope) -> Value:
        """The new value of an output, with the type and shape that the file states where it has none."""
        value = self._mapped(output, scope)
        assert value is not None
        if value.type is None:
            value.type = output.type
        if value.shape is None:
            value.shape = output.shape
        return value

    def _owned(self, outputs: Sequence[Value], graph: ir.Graph, scope: FileScope) -> list[Value]:
        """Outputs of a sub-graph under their own names, each made by a node of it or given to it."""
        owned: dict[Value, None] = {}
        for output in outputs:
            value = self.construction.use(self._described(output, scope))
            maker = value.producer()
            own = (maker is not None and maker.graph is graph) or value in graph.inputs
            if not own or value in owned or (value.name != output.name and scope.copies):
                [copy] = self.construction.append("Identity", [value], (), [value.type])
                copy.shape = value.shape
                copy.name = output.name if scope.copies else copy.name
                value = copy
            owned[value] = None
        return list(owned)
