"""Reads GraphDef, MetaGraph and SavedModel files, binary or text, within bounds on time and memory."""

import dataclasses
import os
import pathlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ....registration import ModelFileError, UsageError
from ...files.garbage_collection import rare_collections
from ...files.reading import BOUNDS, REMEDY, Bounds
from ...files.reading.checks.memory import PROPORTION
from ...files.reading.encodings import text, wire
from ...files.reading.encodings.model_files import decoding_errors, regular_contents
from ...files.reading.names import listed, quoted
from .messages import GraphDef, MetaGraphDef, SignatureDef, TensorInfo, memory_of, message_type
from .operator_definitions import Definitions
from .recognition import GRAPH, META_GRAPH, SAVED_MODEL, Format, file_of, recognise, recognise_head
from .tensor_protos import repeated_bytes

__all__ = ["GraphFile", "read_graph", "recognise"]

FILE_TYPES = (GRAPH, META_GRAPH, SAVED_MODEL)
ENCODINGS = ("binary", "text")
SERVE = "serve"
"""The tag of a graph for inference."""
SERVING = "serving_default"
"""The signature that is used if the caller names none."""
_MAXIMUM_NAMED = 20
_NODE_BYTES, _INPUT_BYTES, _ATTRIBUTE_BYTES = 1_200, 150, 300
"""Bytes of memory that a node takes as a message and in the source graph together, and further bytes for each
input and attribute.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class GraphFile:
    """A graph with the information in its file.

    Attributes:
        graph_def: the `GraphDef`, with its function library.
        definitions: the `OpDef` of an operator, by name.
        file_type: "GraphDef", "MetaGraphDef" or "SavedModel".
        encoding: "binary" or "text".
        signature: the name of the chosen signature, None if there is none.
        inputs: tensor names by the names of the signature's arguments, sorted; empty without a signature.
        outputs: the same for its results.
        checkpoint_prefix: the checkpoint beside the file, "…/variables/variables"; None if there is none.
        meta_graph: the `MetaGraphDef`, None for a GraphDef.
    """

    graph_def: GraphDef
    definitions: Definitions
    file_type: str
    encoding: str
    signature: str | None = None
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    checkpoint_prefix: pathlib.Path | None = None
    meta_graph: MetaGraphDef = None


@rare_collections()
def read_graph(
    path: str | os.PathLike[str],
    *,
    file_type: str | None = None,
    encoding: str | None = None,
    tags: Collection[str] | None = None,
    signature: str | None = None,
    need_signature: bool = True,
    bounds: Bounds = BOUNDS,
) -> GraphFile:
    """Read a GraphDef, MetaGraph or SavedModel; the format is detected by content.

    Args:
        path: the file, or the folder of a SavedModel.
        file_type: "GraphDef", "MetaGraphDef" or "SavedModel", to refuse other files.
        encoding: "binary" or "text", to refuse the other.
        tags: of a SavedModel, exactly those of the graph to read; without them the only graph, or the one
            with the tag "serve" alone.
        signature: the signature to use; without it "serving_default", or the only one.
        need_signature: whether to refuse a file that has several signatures of which none is the default;
            else none of them is used.
        bounds: bounds on memory.

    Raises:
        UsageError: an argument has an unknown value, or does not apply to the type of file.
        ModelFileError: the file cannot be read, has another format, or exceeds a bound; or it has no such
            tags or signature. The message lists those that it has.
    """
    for requested, choices in ((file_type, FILE_TYPES), (encoding, ENCODINGS)):
        if requested is not None and requested not in choices:
            raise UsageError(
                f"the kind of a TensorFlow file must be one of {', '.join(choices)}, not {requested!r}"
            )
    file, label = file_of(path), f"'{os.fspath(path)!s}'"
    format, message = _read_message(file, label, file_type, encoding, bounds)
    try:
        if format.file_type == GRAPH:
            if tags is not None or signature is not None:
                raise UsageError(f"{label} is a GraphDef, which has neither tags nor signatures")
            graph_file = GraphFile(message, Definitions(), *format)
        else:
            graph = (
                _graph_with_tags(message.meta_graphs, tags) if format.file_type == SAVED_MODEL else message
            )
            graph_file = _graph_of_meta_graph(
                graph, format, _checkpoint(file, format.file_type), signature, need_signature
            )
        _check_bounds(graph_file.graph_def, bounds)
    except ModelFileError as error:
        raise ModelFileError(f"{label} cannot be read: {error}") from None
    return graph_file


def _read_message(
    file: pathlib.Path, label: str, file_type: str | None, encoding: str | None, bounds: Bounds
) -> tuple[Format, Any]:
    """Return the format of a file and its message."""
    # The callback recognises the format from the first bytes; the message type is needed afterwards.
    formats: list[Format] = []

    def recognise_encoding(head: bytes, size: int) -> str:
        formats.append(_check_format(recognise_head(head, size), head, file_type, encoding, label))
        return formats[0].encoding

    with decoding_errors(label, lambda: f"a {formats[0].file_type}"):
        data, _ = regular_contents(file, label, recognise_encoding, bounds)
        message = message_type(formats[0].file_type)()
        if formats[0].encoding == "binary":
            wire.check(data, bounds, memory_of(formats[0].file_type))
            message.ParseFromString(data)
        else:
            text.parse(data, "text", message, bounds)
    return formats[0], message


def _check_format(
    recognised: Format | None, head: bytes, file_type: str | None, encoding: str | None, label: str
) -> Format:
    """Detect the format of a file, and check it against the caller's; an empty graph has the caller's."""
    if recognised is None:
        if not head:
            raise ModelFileError(f"{label} is not a TensorFlow graph: it is empty")
        # An empty graph has the same bytes in every format, so only the caller can tell which it is.
        if file_type is None or encoding is None:
            raise ModelFileError(
                f"{label} is not a TensorFlow graph: it is not a GraphDef, MetaGraphDef or SavedModel"
            )
        return Format(file_type, encoding)
    requested = Format(file_type or recognised.file_type, encoding or recognised.encoding)
    if requested != recognised:
        raise ModelFileError(
            f"{label} is a {recognised.encoding} {recognised.file_type}, not a {requested.encoding} "
            f"{requested.file_type}"
        )
    return recognised


def _graph_with_tags(graphs: Iterable[MetaGraphDef], tags: Collection[str] | None) -> MetaGraphDef:
    """The graph of a SavedModel that has exactly these tags."""
    by_tags = [(frozenset(graph.meta_info_def.tags), graph) for graph in graphs]
    if tags is None and len(by_tags) == 1:
        return by_tags[0][1]
    requested_tags = frozenset({SERVE} if tags is None else tags)
    for names, graph in by_tags:
        if names == requested_tags:
            return graph
    present_tags = listed([_quote_tags(names) for names, _ in by_tags], _MAXIMUM_NAMED)
    raise ModelFileError(
        f"it has no graph with the tags {_quote_tags(requested_tags)}; the tags of its graphs are "
        f"{present_tags or 'none'}"
    )


def _quote_tags(names: Iterable[str]) -> str:
    return f"{{{listed(sorted(map(quoted, names)), _MAXIMUM_NAMED)}}}"


def _graph_of_meta_graph(
    graph: MetaGraphDef,
    format: Format,
    checkpoint: pathlib.Path | None,
    signature: str | None,
    need_signature: bool,
) -> GraphFile:
    """The graph of a MetaGraph, with one of its signatures."""
    if not graph.HasField("graph_def"):
        raise ModelFileError("its MetaGraph has no graph")
    name = _choose_signature(graph.signature_def, signature, need_signature)
    signature_message = graph.signature_def[name] if name is not None else message_type("SignatureDef")()
    return GraphFile(
        graph.graph_def,
        Definitions(graph.meta_info_def.stripped_op_list.op),
        *format,
        signature=name,
        inputs=_tensors(signature_message.inputs, "input", name or ""),
        outputs=_tensors(signature_message.outputs, "output", name or ""),
        checkpoint_prefix=checkpoint,
        meta_graph=graph,
    )


def _choose_signature(
    signatures: Mapping[str, SignatureDef], requested: str | None, is_needed: bool
) -> str | None:
    """The name of the signature to use; None if the file has none, or none is needed."""
    # A signature such as `__saved_model_init_op` only initializes, and returns nothing.
    names = sorted(name for name in signatures if not name.startswith("__"))
    if requested is None and not names:
        return None
    if requested is None and len(names) == 1:
        return names[0]
    if requested is None and not is_needed and SERVING not in signatures:
        return None
    if (requested or SERVING) not in signatures:
        present_names = listed(list(map(quoted, names)), _MAXIMUM_NAMED) or "none"
        raise ModelFileError(
            f"it has no signature {quoted(requested or SERVING)}; its signatures are {present_names}"
        )
    return requested or SERVING


def _tensors(tensors: Mapping[str, TensorInfo], role: str, signature: str) -> dict[str, str]:
    """The tensors of a signature's arguments or results, in the order of their names."""
    for name, tensor in tensors.items():
        if not tensor.name:
            tensor_kind = (tensor.WhichOneof("encoding") or "tensor without a name").replace("_", " ")
            raise ModelFileError(
                f"{role} {quoted(name)} of the signature {quoted(signature)} is a {tensor_kind}; only dense "
                "tensors are supported"
            )
    return {name: tensors[name].name for name in sorted(tensors)}


def _checkpoint(file: pathlib.Path, file_type: str) -> pathlib.Path | None:
    """The prefix of the checkpoint of a file, if it exists."""
    prefix = file.parent / "variables" / "variables" if file_type == SAVED_MODEL else file.with_suffix("")
    if prefix.with_name(f"{prefix.name}.index").is_file():
        return prefix
    # A checkpoint of format V1 is one file without a suffix.
    return prefix if file_type == META_GRAPH and file.suffix == ".meta" and prefix.is_file() else None


def _check_bounds(graph: GraphDef, bounds: Bounds) -> None:
    """Check the limits on nodes, memory, and constants that repeat an element."""
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    count, size = sum(map(len, bodies)), graph.ByteSize()
    allowed_nodes = bounds.graph_nodes_of(size)
    if count > allowed_nodes:
        raise ModelFileError(f"it has {count} nodes, more than {allowed_nodes}; {REMEDY}")
    maximum_bytes = bounds.memory + PROPORTION * size
    node_bytes = repeated_constant_bytes = 0
    for node in (node for nodes in bodies for node in nodes):
        node_bytes += _NODE_BYTES + _INPUT_BYTES * len(node.input) + _ATTRIBUTE_BYTES * len(node.attr)
        if node.op == "Const" and "value" in node.attr:
            repeated_constant_bytes += repeated_bytes(
                node.attr["value"].tensor, f"the constant {quoted(node.name)}"
            )
        if node_bytes > maximum_bytes:
            raise ModelFileError(
                f"its nodes would need more than {maximum_bytes >> 20} MiB of memory, the limit for a file "
                f"of {size} bytes; {REMEDY}"
            )
        if repeated_constant_bytes > bounds.memory:
            raise ModelFileError(
                f"its constants repeat elements to more than {bounds.memory >> 20} MiB; {REMEDY}"
            )
