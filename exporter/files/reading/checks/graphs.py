"""Checks the graphs of a file for everything that onnx-ir would silently lose or misread."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from .....registration import ModelFileError
from ..bounds import BOUNDS, REMEDY, Bounds
from ..external_data.files import ExternalFiles
from ..names import node_title, quoted
from .attributes import check_attribute, is_number
from .metadata import canonical, check_entries, merge_entries
from .notes import Notes
from .scopes import NameScope
from .tensor_contents import check_tensor
from .values import (
    check_agreement,
    check_value,
    declarations_by_name,
    merge_declarations,
    unify_sizes,
)

DEVICE_CONFIGURATIONS = 11
"""The IR version that introduced device configurations."""


class GraphChecks:
    """Checks one model's graphs and functions, and corrects errors whose meaning is clear.

    Attributes:
        unsorted: whether nodes must be sorted.
        tensor_metadata: whether a tensor in an attribute has metadata.
        nodes: the number of nodes so far.
    """

    def __init__(
        self,
        files: ExternalFiles,
        notes: Notes,
        function_value_names: set[str],
        ir_version: int,
        size: int,
        bounds: Bounds = BOUNDS,
    ):
        """Create the checks for one model.

        Args:
            function_value_names: names in the main graph's value_info that belong to values in functions.
            ir_version: the IR version of the model.
            size: the bytes of the model.
        """
        self._ir_version = ir_version
        self._size = size
        self._bounds = bounds
        self._files = files
        self._notes = notes
        self._function_value_names = function_value_names
        self._configured_nodes = self._values = self._attributes = 0
        self.unsorted = False
        self.tensor_metadata = False
        self.nodes = 0

    def check_graph(
        self,
        graph: onnx.GraphProto,
        domains: set[str],
        title: str,
        outer: NameScope | None,
        in_function: bool,
    ) -> None:
        """Check a graph and the graphs within it.

        Args:
            domains: the imported domains; custom domains that nodes use without an import are added.
            outer: the scope of the enclosing graph, as far as it has been read.

        Raises:
            ModelFileError: the message says what is wrong and where.
        """
        check_entries(graph.metadata_props, title)
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise ModelFileError(f"{title} has the sparse initializer {quoted(name)}, which cannot be kept")
        scope = NameScope(title, outer)
        # onnx-ir indexes values by name, so a second definition would silently replace the first.
        scope.define((info.name for info in graph.input), "an input")
        for info in (*graph.input, *graph.output):
            check_value(info, f"value {quoted(info.name)}")
        declarations = declarations_by_name(graph.value_info, title)
        self._check_initializers(graph, scope, declarations)
        self._check_nodes(graph.node, domains, scope, in_function)
        self._check_interface(graph, scope, declarations)
        self._check_annotations(graph, scope)
        for name in declarations:
            if not scope.defines(name) and (outer is not None or name not in self._function_value_names):
                self._notes.add("the declared types of values that no node computes", quoted(name))
        self.unsorted |= scope.unsorted

    def _check_initializers(
        self, graph: onnx.GraphProto, scope: NameScope, declarations: dict[str, onnx.ValueInfoProto]
    ) -> None:
        """Check the initializers, and move their metadata to their values."""
        inputs = {info.name: info for info in graph.input}
        seen: set[str] = set()
        for tensor in graph.initializer:
            title = f"initializer {quoted(tensor.name)}"
            if tensor.name in seen:
                raise ModelFileError(f"{title} occurs twice in {scope.title}")
            seen.add(tensor.name)
            # An initializer with the name of an input is its default.
            if tensor.name not in inputs:
                scope.define([tensor.name], "an initializer")
            check_tensor(tensor, self._files, title)
            check_entries(tensor.metadata_props, title)
            info = inputs.get(tensor.name) or declarations.get(tensor.name)
            if info is not None:
                check_agreement(info, tensor, title)
            # onnx-ir keeps them on the value, and would lose those of the tensor.
            if tensor.metadata_props or tensor.doc_string:
                if info is None:
                    info = graph.value_info.add(name=tensor.name)
                    info.type.tensor_type.elem_type = tensor.data_type
                    info.type.tensor_type.shape.CopyFrom(_shape(tensor.dims))
                    declarations[tensor.name] = info
                merge_entries(tensor, info, title)
                info.doc_string = info.doc_string or tensor.doc_string
                tensor.ClearField("metadata_props")
                tensor.ClearField("doc_string")

    def _check_interface(
        self, graph: onnx.GraphProto, scope: NameScope, declarations: dict[str, onnx.ValueInfoProto]
    ) -> None:
        """Merge duplicate declarations of inputs and outputs."""
        interface: dict[str, onnx.ValueInfoProto] = {}
        for info in graph.output:
            if not scope.defines(info.name):
                raise ModelFileError(
                    f"{scope.title} returns {quoted(info.name)}, which no node in it computes"
                )
        for info in (*graph.input, *graph.output):
            title = f"value {quoted(info.name)}"
            for declaration in (interface.get(info.name), declarations.get(info.name)):
                if declaration is not None:
                    merge_declarations(declaration, info, title)
            first = interface.setdefault(info.name, info)
            merge_declarations(info, first, title)
            if first != info:
                unify_sizes(first, info, title)

    def _check_annotations(self, graph: onnx.GraphProto, scope: NameScope) -> None:
        """Check quantization annotations: the names of the tensors with scale and zero point."""
        annotation_by_tensor: dict[str, onnx.TensorAnnotation] = {}
        for annotation in graph.quantization_annotation:
            title = f"the quantization annotation of {quoted(annotation.tensor_name)}"
            check_entries(annotation.quant_parameter_tensor_names, title)
            if annotation_by_tensor.setdefault(annotation.tensor_name, annotation) != annotation:
                raise ModelFileError(f"{title} occurs twice in {scope.title}")
            if not scope.defines(annotation.tensor_name):
                self._notes.add(
                    "the quantization annotations of values that no node computes",
                    quoted(annotation.tensor_name),
                )

    def _check_nodes(
        self, nodes: Sequence[onnx.NodeProto], domains: set[str], scope: NameScope, in_function: bool
    ) -> None:
        self.nodes += len(nodes)
        if self.nodes > self._bounds.nodes:
            raise ModelFileError(f"the model has more than {self._bounds.nodes} nodes; {REMEDY}")
        self._attributes += sum(len(node.attribute) for node in nodes)
        allowed = self._bounds.attributes_of(self._size)
        if self._attributes > allowed:
            raise ModelFileError(
                f"the nodes of the model have more than {allowed} attributes, the limit for a file of "
                f"{self._size} bytes; {REMEDY}"
            )
        # Announce all outputs first: a name of a later node is an error of order, not an unknown name.
        for node in nodes:
            scope.announce(node.output)
        self._values += len(scope.defined) + len(scope.defined_later)
        for node in nodes:
            if not node.op_type:
                raise ModelFileError(f"{node_title(node)} has no operator")
            domain = canonical(node.domain)
            if domain not in domains:
                if domain.split(".")[:2] in ([""], ["ai", "onnx"]):
                    named = f"domain {quoted(domain)}" if domain else "ONNX's own domain"
                    raise ModelFileError(
                        f"{node_title(node)} is of {named}, which the model does not import, so that its "
                        "opset is not known: add it with "
                        f"`model.opset_import.add(domain={domain!r}, version=...)`, where the version is "
                        "that of the tool that wrote the file"
                    )
                # The caller imports version 1, as onnxruntime does for custom domains.
                domains.add(domain)
            # Formatting the title of every node would take as long as all of its checks.
            if node.metadata_props:
                check_entries(node.metadata_props, node_title(node))
            for name in node.input:
                if name and name not in scope.defined:
                    scope.resolve(name, node_title(node))
            if node.device_configurations:
                self._check_placement(node_title(node))
            if node.attribute:
                self._check_attributes(node, domains, scope, in_function)
            scope.mark_defined(node.output)

    def _check_placement(self, title: str) -> None:
        """Check that device configurations are allowed and not too many."""
        if self._ir_version < DEVICE_CONFIGURATIONS:
            raise ModelFileError(
                f"{title} has device configurations, which IR version {self._ir_version} does not have"
            )
        self._configured_nodes += 1
        # onnx-ir looks at every value for each node with a device configuration.
        if self._configured_nodes * self._values > self._bounds.placements:
            raise ModelFileError(f"the model has device configurations on more nodes than are read; {REMEDY}")

    def _check_attributes(
        self, node: onnx.NodeProto, domains: set[str], scope: NameScope, in_function: bool
    ) -> None:
        names: set[str] = set()
        title = ""
        for attribute in node.attribute:
            if attribute.name and attribute.name not in names and is_number(attribute):
                names.add(attribute.name)
                continue
            title = title or node_title(node)
            if attribute.name in names:
                raise ModelFileError(f"{title} has the attribute {quoted(attribute.name)} twice")
            names.add(attribute.name)
            graphs = check_attribute(attribute, self._files, title, in_function=in_function)
            self.tensor_metadata |= _has_metadata(attribute)
            for graph in graphs:
                graph_title = f"graph {quoted(attribute.name)} of {title}"
                self.check_graph(graph, domains, graph_title, scope, in_function)

    def check_function(self, function: onnx.FunctionProto, domains: set[str], title: str) -> None:
        """Check a function, as `check_graph` does a graph.

        Raises:
            ModelFileError: the message says what is wrong and where.
        """
        check_entries(function.metadata_props, title)
        scope = NameScope(title)
        scope.define(function.input, "an input")
        attributes = [*function.attribute, *(attribute.name for attribute in function.attribute_proto)]
        if len(set(attributes)) < len(attributes):
            raise ModelFileError(f"{title} has an attribute twice")
        for attribute in function.attribute_proto:
            if check_attribute(attribute, self._files, title, in_function=False):
                raise ModelFileError(f"{title} has a graph as the default of an attribute")
            self.tensor_metadata |= _has_metadata(attribute)
        declarations = declarations_by_name(function.value_info, title)
        self._check_nodes(function.node, domains, scope, True)
        for name in function.output:
            if not scope.defines(name):
                raise ModelFileError(f"{title} returns {quoted(name)}, which no node in it computes")
        for name in declarations:
            if not scope.defines(name):
                self._notes.add(
                    f"the declared types of values that no node of {title} computes", quoted(name)
                )
        self.unsorted |= scope.unsorted


def _shape(dims: Sequence[int]) -> onnx.TensorShapeProto:
    return onnx.TensorShapeProto(dim=[onnx.TensorShapeProto.Dimension(dim_value=size) for size in dims])


def _has_metadata(attribute: onnx.AttributeProto) -> bool:
    tensors = [attribute.t] if attribute.HasField("t") else attribute.tensors
    return any(tensor.metadata_props for tensor in tensors)
