"""Captures a TensorFlow file: a GraphDef, MetaGraph or SavedModel, with a checkpoint of its variables."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

from ...captured_graph.capture import Capture
from ...files.reading.bounds import BOUNDS, TRUSTED, Bounds
from .freezing.freeze import checkpoint_of_graph, frozen_graph
from .freezing.inputs import placeholder_name, replace_data_sources
from .freezing.scope_analysis import HANDLE_READERS, RESOURCE
from .freezing.variables import StoredVariable
from .graph.graph_capture import VARIABLES, capture_graph
from .graph_reading import GraphFile, read_graph
from .lookup_tables import attach_tables
from .messages import GraphDef
from .node_messages import OPTIONAL_PLACEHOLDER, parse_result_name
from .tensorflow_options import Names, TensorFlowOptions

_WRITTEN_INTO_GRAPH = 4096
"""Bytes of a variable up to which the frozen graph has its contents, such as a flag that chooses a branch."""


@dataclasses.dataclass(frozen=True)
class CapturedFile:
    """A captured file, with the names of inputs and outputs in its signature; None for TensorFlow's own."""

    capture: Capture
    input_names: list[str] | None = None
    output_names: list[str] | None = None


def capture_file(
    path: str | os.PathLike[str], options: TensorFlowOptions | None = None, *, bounds: Bounds = BOUNDS
) -> CapturedFile:
    """Capture a GraphDef, MetaGraph or SavedModel, binary or text; the format is detected by content.

    Raises:
        UsageError: an option does not apply to the format of the file.
        ModelFileError: the file, or its checkpoint, cannot be read or is malformed.
        CaptureError: the graph has no ONNX form.
    """
    options = options if options is not None else TensorFlowOptions()
    has_names = options.inputs is not None or options.outputs is not None
    file = read_graph(
        path,
        encoding=options.input_format,
        tags=options.tags,
        signature=options.signature,
        need_signature=not has_names,
        bounds=bounds,
    )
    inputs: Names | None = options.inputs
    outputs: Sequence[str] | None = options.outputs
    input_names = output_names = None
    # Other outputs may not depend on the inputs of the signature.
    if inputs is None and file.inputs and outputs is None:
        inputs, input_names = list(file.inputs.values()), list(file.inputs)
    if outputs is None and file.outputs:
        outputs, output_names = list(file.outputs.values()), list(file.outputs)
    if inputs is None:
        replace_data_sources(file.graph_def, file.definitions)
    attach_tables(
        file,
        path,
        lambda: checkpoint_of_graph(file, options.checkpoint, options.allow_links, bounds is TRUSTED),
        bounds,
    )
    graph, weights = _freeze_if_needed(file, options, inputs, outputs, bounds)
    inputs_as_nchw = options.inputs_as_nchw
    if graph is not file.graph_def and inputs is not None:
        # A result that is an input has become a placeholder of its own.
        input_names = input_names or [*inputs]
        shapes = inputs if isinstance(inputs, Mapping) else dict.fromkeys(inputs)
        inputs = {placeholder_name(name): shape for name, shape in shapes.items()}
        inputs_as_nchw = [placeholder_name(name) for name in inputs_as_nchw]
    capture = capture_graph(
        graph,
        inputs=inputs,
        outputs=outputs,
        inputs_as_nchw=inputs_as_nchw,
        outputs_as_nchw=options.outputs_as_nchw,
        keep_parse_example=options.keep_parse_example,
        weights=weights,
        define=file.definitions,
        bounds=bounds,
    )
    if input_names is not None and inputs is not None:
        # The features of parsed messages may have replaced inputs.
        names = {str(parse_result_name(text)): name for text, name in zip(inputs, input_names, strict=True)}
        input_names = [names.get(name, name) for name in capture.interface.parameter_names]
    return CapturedFile(capture, input_names, output_names)


def _freeze_if_needed(
    file: GraphFile,
    options: TensorFlowOptions,
    inputs: Names | None,
    outputs: Sequence[str] | None,
    bounds: Bounds,
) -> tuple[GraphDef, Mapping[str, StoredVariable]]:
    """The GraphDef of a file, and the weights of its checkpoint, if there is one."""
    functions = file.graph_def.library.function
    nodes = [file.graph_def.node, *(function.node_def for function in functions)]
    operators = {node.op for body in nodes for node in body}
    passes_handles = any(argument.type == RESOURCE for f in functions for argument in f.signature.input_arg)
    # Without a checkpoint the handles may be constants, or the outputs may not need them. A ReadVariableOp
    # of a constant needs no freezing.
    reads_handles = passes_handles or HANDLE_READERS - {"ReadVariableOp"} & operators
    has_values = file.checkpoint_prefix is not None or reads_handles
    if options.checkpoint is None and not (has_values and (VARIABLES | HANDLE_READERS) & operators):
        return file.graph_def, {}
    frozen = frozen_graph(
        file,
        options.checkpoint,
        outputs,
        inputs=None if inputs is None else list(inputs),
        allow_links=options.allow_links,
        trusted=bounds is TRUSTED,
        keep_tables=True,
    )
    if inputs is not None:
        _restore_defaults(frozen.graph_def, file.graph_def)
    # The message and the model would each have a copy of the weights.
    return frozen.graph_def, frozen.detach_weights(_WRITTEN_INTO_GRAPH)


def _restore_defaults(frozen: GraphDef, original: GraphDef) -> None:
    """Give the placeholders that were inputs with a default their constant defaults again."""
    original_nodes = {node.name: node for node in original.node}
    names = {node.name for node in frozen.node}
    for placeholder in list(frozen.node):
        node = original_nodes.get(placeholder.name)
        if placeholder.op != "Placeholder" or node is None or node.op != OPTIONAL_PLACEHOLDER:
            continue
        default = original_nodes.get(parse_result_name(node.input[0]).node) if node.input else None
        # Freezing keeps the contents of constants, so one that is still there is the same.
        if default is not None and default.op == "Const":
            placeholder.op = OPTIONAL_PLACEHOLDER
            placeholder.input.append(default.name)
            if default.name not in names:
                names.add(default.name)
                frozen.node.add().CopyFrom(default)
