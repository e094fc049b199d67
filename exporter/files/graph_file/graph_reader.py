"""Reads a source file: the captured graph, its interface and its decompositions."""

from __future__ import annotations

import dataclasses

import onnx
import onnx_ir as ir

from ....registration import DimensionError, ModelFileError
from ....registration.arguments import ATTRIBUTE, arguments, graphs_of
from ...captured_graph import dimensions, specializations
from ...captured_graph.capture import Capture
from ..reading.bounds import Bounds
from ..reading.checks.content import check_content
from ..reading.checks.memory import check_memory
from ..reading.external_data.files import Folder
from .decompositions import Decompositions, read_decompositions
from .graphs import GraphReader
from .layout import DOMAIN, INTERFACE, check_fields, check_version, naming, read_metadata
from .structures import check_interface, read_interface
from .weights import WeightReader, Weights

_TEXTS = ("producer_name", "producer_version", "domain", "doc_string")


@dataclasses.dataclass
class SourceFile:
    """The contents of a source file.

    Attributes:
        capture: the graph and its interface, whose tree structures are `structures.Structure`.
        decompositions: the decompositions of nodes without a symbolic function.
        given_inputs, given_outputs: the user's names of inputs and outputs.
    """

    capture: Capture
    decompositions: Decompositions
    given_inputs: list[str] | None
    given_outputs: list[str] | None


def read_source(model: onnx.ModelProto, folder: Folder, weights: Weights, bounds: Bounds) -> SourceFile:
    """Read a source file from its message.

    Args:
        folder: the folder of the file and its external data.
        weights: the weights that the file omits: a mapping from names to arrays or tensors, or the path of a
            model file or an .npz file.
        bounds: what the model, and a model file of weights, may take.

    Raises:
        ModelFileError: it is not a source file, has a newer format, or contradicts itself; or weights are
            missing or differ.
    """
    check_version(model)
    # The bound on memory comes first, because the other checks take time for every message.
    check_memory(model, bounds)
    check_content(model)
    check_fields(model)
    with naming("it contradicts itself"):
        metadata, format_metadata = read_metadata(model.metadata_props)
        if INTERFACE not in format_metadata:
            raise ModelFileError("it does not follow the source format: it has no interface")
        interface, output_names, given_inputs, given_outputs = read_interface(format_metadata[INTERFACE])
        decompositions = read_decompositions(model.functions)
        imports = {entry.domain: entry.version for entry in model.opset_import if entry.domain != DOMAIN}
        graph = GraphReader(WeightReader(model.graph, folder, weights, bounds)).read_graph(
            model.graph, imports
        )
        texts = {field: getattr(model, field) for field in _TEXTS if model.HasField(field)}
        version = model.model_version if model.HasField("model_version") else None
        source = ir.Model(
            graph, ir_version=model.ir_version, model_version=version, metadata_props=metadata, **texts
        )
        check_interface(interface, output_names, given_inputs, given_outputs, graph)
        _check_metadata(metadata)
        for graph_or_block in graphs_of(graph):
            for node in graph_or_block:
                if ATTRIBUTE in node.attributes:
                    # Decoding validates; the decoded arguments are not needed here.
                    arguments(node)
    return SourceFile(
        Capture(source, interface, output_names=output_names), decompositions, given_inputs, given_outputs
    )


def _check_metadata(metadata: dict[str, str]) -> None:
    """Check what calls of the model read: the sizes for which it is valid, and the decisions of its example.

    Raises:
        ModelFileError: an entry does not have the documented form.
        ValueError: the same.
    """
    try:
        dimensions.read_restrictions(metadata)
        dimensions.read_ranges(metadata)
    except DimensionError as error:
        raise ModelFileError(str(error)) from error
    specializations.read_specializations(metadata)
