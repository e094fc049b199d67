"""Converts an ONNX graph from one opset to another, node by node.

A node whose operator has the same version at the target is copied. Any other is emitted by the names of its
arguments, where its operator still means the same, or by a symbolic function (`before13::Softmax`), by the
version ladder of `symbolics/onnx`, or by the body that ONNX gives the operator.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap, Counter
from collections.abc import Mapping, MutableMapping, Sequence

import onnx_ir as ir
from onnx_ir import AttributeType, Value

from ....passes.onnx_graph.inplace.annotations import annotate_inplace
from ....registration import (
    MAY_OVERWRITE,
    GraphError,
    Registry,
    UnsupportedError,
)
from ....registration.arguments import every_node
from ....registration.emission.ladder import use_target_version
from ....registration.emission.nonnegative_axes import NEGATIVE_AXES, attributes_from_front, inputs_from_front
from ....registration.functions.results import as_list
from ....registration.schemas import OperatorSchema, omissible, operator_schema
from ....registration.validity.ranks import VECTORS
from ...files.reading import Bounds
from ..driver import Driver
from . import converted_constants
from .chosen_branches import BranchNames, chosen_branch, infer_shape
from .file_nodes import binding
from .file_nodes.file_scope import FileScope
from .file_nodes.foreign_operators import call_foreign, foreign_function, has_versions, rewrites_operators
from .file_nodes.replacements import describe, last_node, nodes_after
from .file_nodes.vectors import with_vectors
from .prepared_models import body_types
from .prepared_models.preparation import opset_of
from .prepared_models.schema_functions import body_of
from .size import limits_of
from .written_shapes import WrittenShapes

_MAXIMUM_REFUSED = 20
"""After so many refused nodes of one operator, its further nodes are refused without an attempt."""


class Conversion(Driver[FileScope]):
    """Lowers ONNX graphs of other opsets, whose nodes are read with the schemas of their opset."""

    def __init__(
        self, source: ir.Model, opset: int, registry: Registry, bounds: Bounds, shapes: WrittenShapes
    ):
        # `ai.onnx` is another name of the default domain, and a model may have both.
        imports = {name: version for name, version in source.graph.opset_imports.items() if name != "ai.onnx"}
        graph = ir.Graph([], [], nodes=[], opset_imports={**imports, "": opset}, name=source.graph.name)
        graph.doc_string = source.graph.doc_string
        graph.metadata_props.update(source.graph.metadata_props)
        super().__init__(source, graph, registry)
        self.construction.limits = limits_of(source, bounds)
        self._meaning_changes = binding.meaning_changes(registry)
        self._refused: Counter[str] = Counter()
        self._bound, self._moved = set[Value](), set[Value]()
        self._used_names: set[str] = set()
        self._hidden: dict[Value, ir.TensorProtocol] = {}
        self._branch_names = BranchNames(source.graph, self.names)
        # Files lack shapes after operators that ONNX does not have.
        self._infers_shapes = self.construction.infers = rewrites_operators(source, registry, opset)
        self._shapes = shapes

    def properties(self) -> dict[str, object]:
        """Return the properties of the file's model."""
        names = ("producer_name", "producer_version", "domain", "model_version", "doc_string")
        file_properties = {name: getattr(self.source, name) for name in names}
        return {**file_properties, "metadata_props": dict(self.source.metadata_props)}

    def declare(self) -> FileScope:
        """Declare inputs and initializers under their names in the file, and reserve all its names."""
        self.names.take_all(self.source.graph)
        scope = FileScope({}, opset_of(self.source) or self.opset)
        self._hidden = converted_constants.declare(self.source, self.graph, scope.values)
        self._bound.update(scope.values.values())
        self.state.update(scope.values.values())
        return scope

    def outputs(self, scope: FileScope) -> Sequence[Value]:
        """Return the outputs, under their names in the file."""
        self.output_names = [str(value.name) for value in self.source.graph.outputs]
        return [self._map_output(value, scope) for value in self.source.graph.outputs]

    def run(self) -> ir.Model:
        """Lower the model; outputs keep their metadata of the file, and inputs get their defaults back."""
        model = super().run()
        for value, stated in zip(self.graph.outputs, self.source.graph.outputs, strict=True):
            value.metadata_props.update(stated.metadata_props)
            value.doc_string = stated.doc_string or value.doc_string
            value.shape = stated.shape if value.shape is None else value.shape
        for value, tensor in self._hidden.items():
            value.const_value = tensor
        if any(MAY_OVERWRITE in node.metadata_props for node in every_node(self.source.graph)):
            annotate_inplace(model)
        self._shapes.check_model(model)
        return model

    def refuse(self, node: ir.Node, scope: FileScope, error: UnsupportedError) -> None:
        """Record a refused node of the file; in a body, refuse the node that the body replaces."""
        if not scope.copies:
            raise error
        super().refuse(node, scope, error)
        self._refused[node.op_type] += 1

    def lower_node(self, node: ir.Node, scope: FileScope) -> list[Value | None]:
        """Return the results of a copy of the node, or of its replacement."""
        # Otherwise refusing a model of 100,000 nodes would take minutes.
        if scope.copies and self._refused[node.op_type] >= _MAXIMUM_REFUSED:
            raise UnsupportedError(
                f"it was not tried, because {_MAXIMUM_REFUSED} nodes before it cannot be converted"
            )
        attributes = binding.resolve_references(node.attributes, scope.attributes)
        function = self.source.functions.get(node.op_identifier())
        if function is not None:
            return self._expand_function(
                function, [self._map_value(v, scope) for v in node.inputs], attributes
            )
        schema = binding.schema_of(node.op_type, scope.opset, frozenset(attributes))
        if schema is None or node.domain not in ("", "ai.onnx"):
            return self._without_schema(node, attributes, scope)
        constant = converted_constants.constant_of(self.context, node.op_type, attributes)
        if constant is not None:
            return [constant]
        inputs = self._inputs(node, scope)
        branch = chosen_branch(node, inputs[0]) if node.op_type == "If" and inputs else None
        if branch is not None and len(branch.outputs) == len(node.outputs):
            results = self._convert_branch(branch, scope)
            for output, result in zip(node.outputs, results, strict=True):
                self._shapes.compare(output.shape, None if result is None else result.shape)
            return results
        target = operator_schema(node.op_type, self.opset)
        if scope.copies and binding.may_copy(schema, target, inputs, attributes, self.opset):
            return list(self._copy_node(node, attributes, scope).outputs)
        before = last_node(self.construction.graph)
        count, emitted = binding.outputs_and_attributes(node, schema, attributes)
        results = list[Value | None](self._express_at_target(schema, scope, inputs, emitted, count))
        results += [None] * (len(node.outputs) - len(results))
        return self._name_results(node, results, before, scope)

    def _without_schema(
        self, node: ir.Node, attributes: Mapping[str, ir.Attr], scope: FileScope
    ) -> list[Value | None]:
        """Lower an operator that ONNX does not have by the user's function; else copy it."""
        symbolic = foreign_function(node, self.registry, self.opset)
        if symbolic is not None:
            inputs = [self._map_value(value, scope) for value in node.inputs]
            before = last_node(self.construction.graph)
            foreign_results = call_foreign(symbolic, self.context, node, inputs, attributes)
            return self._name_results(node, foreign_results, before, scope)
        if node.domain in ("", "ai.onnx") and self.opset != scope.opset and has_versions(node.op_type):
            raise UnsupportedError(f"ONNX has no operator {node.op_type} at opset {scope.opset}")
        copied = self._copy_node(node, attributes, scope)
        converted_constants.localize(copied, self.context, self._moved)
        return list(copied.outputs)

    def _inputs(self, node: ir.Node, scope: FileScope) -> list[Value | None]:
        """Return the new values of a node's inputs."""
        inputs = [self._map_value(value, scope) for value in node.inputs]
        return with_vectors(self.context, node.op_type, inputs) if node.op_type in VECTORS else inputs

    def _map_value(self, value: Value | None, scope: FileScope) -> Value | None:
        if value is None or value.name in scope.absent:
            return None
        new_value = scope.values.get(value)
        if new_value is None and not scope.copies:
            # onnx-ir does not connect the values of a function to the sub-graphs that read them.
            new_value = next((inner for key, inner in scope.values.items() if key.name == value.name), None)
        if new_value is None and not scope.copies:
            raise UnsupportedError(f"its body reads '{value.name}' of the graph around it")
        if new_value is None:
            raise GraphError(f"value '{value.name}' is used before it is defined")
        return new_value

    def _copy_node(self, node: ir.Node, attributes: Mapping[str, ir.Attr], scope: FileScope) -> ir.Node:
        """Copy a node so that it reads the new values; its sub-graphs are converted."""
        new_attributes = []
        standard = node.domain in ("", "ai.onnx")
        for name, attribute in attributes.items():
            if standard and omissible(node.op_type, self.opset, attribute):
                continue
            if attribute.type == AttributeType.GRAPH:
                attribute = ir.Attr(name, attribute.type, self._subgraph(attribute.as_graph(), scope))
            elif attribute.type == AttributeType.GRAPHS:
                graphs = [self._subgraph(graph, scope) for graph in attribute.as_graphs()]
                attribute = ir.Attr(name, attribute.type, graphs)
            new_attributes.append(attribute)
        inputs = self._inputs(node, scope) if standard else [self._map_value(v, scope) for v in node.inputs]
        for value in inputs:
            if value is not None:
                self.construction.use(value)
        new_node = ir.Node(
            "" if node.domain == "ai.onnx" else node.domain,
            node.op_type,
            inputs,
            new_attributes,
            overload=node.overload,
            num_outputs=len(node.outputs),
            name=node.name if scope.copies else self.names.unique(node.op_type),
            doc_string=node.doc_string,
            metadata_props=dict(node.metadata_props),
        )
        for value, output in zip(node.outputs, new_node.outputs, strict=True):
            output.name = value.name if scope.copies or not value.name else self.names.unique(value.name)
            output.type, output.shape = value.type, value.shape
            output.metadata_props.update(value.metadata_props)
        self._bound.update(new_node.outputs)
        self.construction.graph.append(new_node)
        self._shapes.watch(node, [new_node])
        if self._infers_shapes:
            infer_shape(new_node, self.opset)
        return new_node

    def _name_results(
        self, node: ir.Node, results: list[Value | None], before: ir.Node | None, scope: FileScope
    ) -> list[Value | None]:
        """Give the nodes after `before`, which replace a node of the file, and their results its names."""
        if not scope.copies:
            return results
        pairs = zip(node.outputs, results, strict=False)
        results = [None if result is None else self._name_result(output, result) for output, result in pairs]
        nodes = nodes_after(self.construction.graph, before)
        describe(nodes, node, self._used_names)
        self._shapes.check_replacement(node, nodes, results)
        return results

    def _name_result(self, output: Value, result: Value) -> Value:
        """Give a result the name and shape of the replaced value; a value named before is copied."""
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
        self._shapes.compare(output.shape, result.shape)
        has_sizes = result.shape is not None and result.shape.is_static()
        if output.shape is not None and isinstance(output.type, ir.TensorType | None) and not has_sizes:
            result.shape = output.shape
        result.name = output.name or result.name  # An output that the file leaves out has no name.
        self._bound.add(result)
        return result

    def _express_at_target(
        self,
        schema: OperatorSchema,
        scope: FileScope,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, ir.Attr],
        outputs: int,
    ) -> Sequence[Value]:
        """Express an operator at the target opset: by emission, composition, or its function body."""
        try:
            return self._emit_at_target(schema, scope, inputs, attributes, outputs)
        except UnsupportedError as error:
            body = body_of(schema.name, scope.opset, self.opset, inputs, attributes, outputs)
            if body is None:
                raise
            try:
                body_attributes = binding.complete_attributes(schema, attributes)
                results = self._expand_graph(body.graph, body.opset, inputs, body_attributes)
                return [value for value in results if value is not None]
            except UnsupportedError as inner:
                raise UnsupportedError(
                    f"{error}; its function body cannot be converted either: {inner}",
                    first_opset=error.first_opset,
                ) from inner

    def _emit_at_target(
        self,
        schema: OperatorSchema,
        scope: FileScope,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, ir.Attr],
        outputs: int,
    ) -> Sequence[Value]:
        attributes = binding.without_defaults(schema, attributes)
        if self.opset < NEGATIVE_AXES:
            try:
                front = attributes_from_front(schema.name, inputs, attributes.values(), needs_rank=True)
                inputs = inputs_from_front(self.context, schema, list(inputs), needs_rank=True)
            except UnsupportedError:
                from_end = self.registry.lookup(f"from_end::{schema.name}", "", self.opset)
                if from_end is None:
                    raise
                named = binding.attributes_by_name(schema, attributes)
                return binding.call_symbolic(self.context, from_end, schema, inputs, named, outputs)
            attributes = {attribute.name: attribute for attribute in front}
        named = binding.attributes_by_name(schema, attributes)
        formal_values = body_types.formal_inputs(schema.name, inputs, named)
        for name, value in named.items():
            if isinstance(value, ir.Graph):
                named[name] = self._subgraph(value, scope, formal_values)
        if self.failed and any(isinstance(value, ir.Graph) for value in named.values()):
            return [ir.Value() for _ in range(outputs)]
        target = operator_schema(schema.name, self.opset)
        changes = self._meaning_changes.get(schema.name, [])
        source_meaning = binding.meaning(changes, schema.since_version)
        means_same = target is not None and binding.meaning(changes, target.since_version) == source_meaning
        if source_meaning is not None and not means_same:
            earlier_function = self.registry.lookup(f"before{source_meaning}::{schema.name}", "", self.opset)
            assert earlier_function is not None
            return binding.call_symbolic(self.context, earlier_function, schema, inputs, named, outputs)
        rung = self.registry.rung(schema.name, self.opset)
        named = {**binding.implied_arguments(self.registry, schema), **named}
        if source_meaning is None and rung is not None:
            with use_target_version(self.context, schema.name):
                return binding.call_symbolic(self.context, rung.symbolic, schema, inputs, named, outputs)
        if target is not None and not means_same:
            raise UnsupportedError(
                f"ONNX operator {schema.name} has another meaning at opset {self.opset}",
                first_opset=changes[-1],
            )
        positional, moved = binding.place_inputs(schema, target, inputs)
        arguments = {**moved, **binding.with_defaults(self.registry, schema, named, target)}
        emitted = self.context.op_of_target(schema.name, *positional, outputs=outputs, **arguments)
        results = as_list(emitted)
        body_types.set_result_types(schema.name, results, inputs, named)
        refused = binding.refused_type(schema.name, self.opset, inputs, results) if target else None
        if refused is not None:
            raise UnsupportedError(
                f"ONNX operator {schema.name} does not have {refused} at opset {self.opset}"
            )
        return results

    def _expand_function(
        self, function: ir.Function, inputs: Sequence[Value | None], attributes: Mapping[str, ir.Attr]
    ) -> list[Value | None]:
        """Lower the nodes of a model's function in place of a call."""
        defaults = {name: a for name, a in function.attributes.items() if a.value is not None}
        opset = function.opset_imports.get("", self.opset)
        return self._expand_graph(function.graph, opset, inputs, {**defaults, **attributes})

    def _expand_graph(
        self, graph: ir.Graph, opset: int, inputs: Sequence[Value | None], attributes: Mapping[str, ir.Attr]
    ) -> list[Value | None]:
        bindings = dict(zip(graph.inputs, inputs, strict=False))
        values = {formal: actual for formal, actual in bindings.items() if actual is not None}
        absent = frozenset(str(formal.name) for formal in graph.inputs if formal not in values)
        scope = FileScope(values, opset, attributes, copies=False, absent=absent)
        self.nodes(graph, scope)
        return [scope.values.get(value) for value in graph.outputs]

    def _convert_branch(self, branch: ir.Graph, outer: FileScope) -> list[Value | None]:
        """Lower the nodes of the branch that an If takes, in place of the If."""
        self._infers_shapes, graph = True, self.construction.graph
        before = last_node(graph)
        values = ChainMap({}, *getattr(outer.values, "maps", [outer.values]))
        self._copy_initializers(branch, graph, values, keeps_names=False)
        scope = dataclasses.replace(outer, values=values)
        self.nodes(branch, scope)
        new_nodes = nodes_after(graph, before)
        self._branch_names.separate(value for node in new_nodes for value in node.outputs)
        return [self._map_value(value, scope) for value in branch.outputs]

    def _subgraph(self, block: ir.Graph, outer: FileScope, formal_values: Sequence[Value] = ()) -> ir.Graph:
        """Convert a sub-graph; it may read values of the enclosing graphs.

        Args:
            formal_values: values whose types are used for inputs without a declared type.
        """
        graph = ir.Graph([], [], nodes=[], name=block.name, doc_string=block.doc_string)
        values = ChainMap({}, *getattr(outer.values, "maps", [outer.values]))
        for position, value in enumerate(block.inputs):
            actual = formal_values[position] if position < len(formal_values) else value
            name = value.name if outer.copies else self.names.unique(value.name or "input")
            copy = ir.Value(name=name, type=value.type or actual.type, shape=value.shape or actual.shape)
            graph.inputs.append(copy)
            values[value] = copy
        self._copy_initializers(block, graph, values, keeps_names=outer.copies)
        self._bound.update(values.maps[0].values())
        scope = dataclasses.replace(outer, values=values)
        outer_graph, self.construction.graph = self.construction.graph, graph
        try:
            self.nodes(block, scope)
            if not self.failed:
                graph.outputs.extend(self._local_outputs(block.outputs, graph, scope))
        finally:
            self.construction.graph = outer_graph
        return graph

    def _copy_initializers(
        self, block: ir.Graph, graph: ir.Graph, values: MutableMapping[Value, Value], *, keeps_names: bool
    ) -> None:
        """Copy the initializers of a sub-graph to the graph that replaces it, or to the main graph."""
        owner = converted_constants.owner(graph, self.graph, self.opset)
        for value in block.initializers.values():
            keeps_name = keeps_names and owner is graph
            name = value.name if keeps_name else self.names.unique(value.name or "initializer")
            copy = converted_constants.initializer(value, str(name))
            owner.initializers.add(copy)
            if owner is not graph:
                self._moved.add(copy)
            values[value] = copy

    def _map_output(self, output: Value, scope: FileScope) -> Value:
        """Return the new value of an output; a missing type or shape is taken from the file."""
        value = self._map_value(output, scope)
        assert value is not None
        if value.type is None:
            value.type = output.type
        if value.shape is None:
            value.shape = output.shape
        return value

    def _local_outputs(self, outputs: Sequence[Value], graph: ir.Graph, scope: FileScope) -> list[Value]:
        """Return a sub-graph's outputs under their names; an Identity copies outer or repeated values."""
        distinct_outputs: dict[Value, None] = {}
        for output in outputs:
            value = self.construction.use(self._map_output(output, scope))
            maker = value.producer()
            is_local = (maker is not None and maker.graph is graph) or value in graph.inputs
            if not is_local or value in distinct_outputs or (value.name != output.name and scope.copies):
                [copy] = self.construction.append("Identity", [value], (), [value.type])
                copy.shape = value.shape
                copy.name = output.name if scope.copies else copy.name
                value = copy
            distinct_outputs[value] = None
        return list(distinct_outputs)
