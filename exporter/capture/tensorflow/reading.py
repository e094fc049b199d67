"""Reads GraphDef, MetaGraph and SavedModel files, binary or text, within bounds of time and memory."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from ....registration import ModelFileError, UsageError
from ...files.garbage_collection import rare_collections
from ...files.reading import BOUNDS, REMEDY, Bounds
from ...files.reading.checks.memory import PROPORTION
from ...files.reading.encodings import text, wire
from ...files.reading.encodings.model_files import reason_of, regular_contents
from ...files.reading.names import listed, quoted
from .messages import message_type
from .operator_definitions import Definitions
from .recognition import GRAPH, META_GRAPH, SAVED_MODEL, Format, file_of, recognise, recognise_head
from .tensors import repeated_bytes

__all__ = ["GraphFile", "read_graph", "recognise"]

KINDS = (GRAPH, META_GRAPH, SAVED_MODEL)
FORMS = ("binary", "text")
SERVE = "serve"
"""The tag of a graph that is for inference."""
SERVING = "serving_default"
"""The signature that is used where none is named."""
_MOST_NAMED = 20
_NODE, _INPUT, _ATTRIBUTE = 1_200, 150, 300
"""Bytes of a node in the message and in the source graph, and of each input and attribute."""


@dataclasses.dataclass(frozen=True, slots=True)
class GraphFile:
    """A graph with the information in its file.

    Attributes:
        graph_def: the `GraphDef`, with its function library.
        definitions: the `OpDef` of an operator, by name.
        kind: "GraphDef", "MetaGraphDef" or "SavedModel".
        form: "binary" or "text".
        signature: the name of the signature that was chosen, None where there is none.
        inputs: tensor names by the names of the signature's arguments, sorted; empty without a signature.
        outputs: the same for its results.
        checkpoint_prefix: the checkpoint beside the file, "…/variables/variables"; None where there is none.
        meta_graph: the `MetaGraphDef`, None for a GraphDef.
    """

    graph_def: Any
    definitions: Definitions
    kind: str
    form: str
    signature: str | None = None
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    checkpoint_prefix: pathlib.Path | None = None
    meta_graph: Any = None


@rare_collections()
def read_graph(
    path: str | os.PathLike[str],
    *,
    kind: str | None = None,
    form: str | None = None,
    tags: Collection[str] | None = None,
    signature: str | None = None,
    need_signature: bool = True,
    bounds: Bounds = BOUNDS,
) -> GraphFile:
    """Read a GraphDef, MetaGraph or SavedModel; the format is detected by content.

    Args:
        path: the file, or the folder of a SavedModel.
        kind: "GraphDef", "MetaGraphDef" or "SavedModel", to refuse other files.
        form: "binary" or "text", to refuse the other.
        tags: of a SavedModel, exactly those of the graph to read; without them the only graph, or the one
            with the tag "serve" alone.
        signature: the signature to use; without it "serving_default", or the only one.
        need_signature: without `signature`, refuse a file that has several others; else none is used.
        bounds: bounds on memory.

    Raises:
        UsageError: an argument has an unknown value, or says something that the kind of file does not have.
        ModelFileError: the file cannot be read, is not what it should be, or is beyond a bound; or it has no
            such tags or signature. The message lists those that it has.
    """
    for given, known in ((kind, KINDS), (form, FORMS)):
        if given is not None and given not in known:
            raise UsageError(
                f"the kind of a TensorFlow file must be one of {', '.join(known)}, not {given!r}"
            )
    file, shown = file_of(path), f"'{os.fspath(path)!s}'"
    found, message = _message(file, shown, kind, form, bounds)
    try:
        if found.kind == GRAPH:
            if tags is not None or signature is not None:
                raise UsageError(f"{shown} is a GraphDef, which has neither tags nor signatures")
            read = GraphFile(message, Definitions(), *found)
        else:
            graph = _tagged(message.meta_graphs, tags) if found.kind == SAVED_MODEL else message
            read = _of_meta_graph(graph, found, _checkpoint(file, found.kind), signature, need_signature)
        _check(read.graph_def, bounds)
    except ModelFileError as error:
        raise ModelFileError(f"{shown} cannot be read: {error}") from None
    return read


def _message(
    file: pathlib.Path, shown: str, kind: str | None, form: str | None, bounds: Bounds
) -> tuple[Format, Any]:
    """Return the format of a file and its message."""
    found: list[Format] = []

    def form_of(head: bytes, size: int) -> str:
        found.append(_format(recognise_head(head, size), head, kind, form, shown))
        return found[0].form

    try:
        data, _ = regular_contents(file, shown, form_of, bounds)
        message = message_type(found[0].kind)()
        if found[0].form == "binary":
            wire.check(data, bounds, _memory(found[0].kind))
            message.ParseFromString(data)
        else:
            text.parse(data, "text", message, bounds)
    except wire.BoundError as error:
        raise ModelFileError(f"{shown} cannot be read: {error}") from None
    except DecodeError as error:
        raise ModelFileError(f"{shown} is not a {found[0].kind}: {reason_of(error)}") from None
    except text.SyntaxFault as error:
        raise ModelFileError(f"{shown} is not a {found[0].kind}: {error}") from None
    return found[0], message


def _format(found: Format | None, head: bytes, kind: str | None, form: str | None, shown: str) -> Format:
    """Detect the format of a file, and check it against the caller's; an empty graph has the caller's."""
    if found is None:
        if not head:
            raise ModelFileError(f"{shown} is not a TensorFlow graph: it is empty")
        if kind is None or form is None:
            raise ModelFileError(
                f"{shown} is not a TensorFlow graph: it is not a GraphDef, MetaGraphDef or SavedModel"
            )
        return Format(kind, form)
    wanted = Format(kind or found.kind, form or found.form)
    if wanted != found:
        raise ModelFileError(f"{shown} is a {found.form} {found.kind}, not a {wanted.form} {wanted.kind}")
    return found


@functools.cache
def _memory(kind: str) -> wire.MessageMemory:
    return wire.MessageMemory(message_type(kind).DESCRIPTOR)


def _tagged(graphs: Iterable[Any], tags: Collection[str] | None) -> Any:
    """The graph of a SavedModel that has exactly these tags."""
    by_tags = [(frozenset(graph.meta_info_def.tags), graph) for graph in graphs]
    if tags is None and len(by_tags) == 1:
        return by_tags[0][1]
    wanted = frozenset({SERVE} if tags is None else tags)
    for names, graph in by_tags:
        if names == wanted:
            return graph
    held = listed([_set(names) for names, _ in by_tags], _MOST_NAMED)
    raise ModelFileError(
        f"it has no graph with the tags {_set(wanted)}; the tags of its graphs are {held or 'none'}"
    )


def _set(names: Iterable[str]) -> str:
    return f"{{{listed(sorted(map(quoted, names)), _MOST_NAMED)}}}"


def _of_meta_graph(
    graph: Any,
    found: Format,
    checkpoint: pathlib.Path | None,
    signature: str | None,
    need_signature: bool,
) -> GraphFile:
    """The graph of a MetaGraph, with one of its signatures."""
    if not graph.HasField("graph_def"):
        raise ModelFileError("its MetaGraph has no graph")
    name = _chosen(graph.signature_def, signature, need_signature)
    chosen = graph.signature_def[name] if name is not None else message_type("SignatureDef")()
    return GraphFile(
        graph.graph_def,
        Definitions(graph.meta_info_def.stripped_op_list.op),
        *found,
        signature=name,
        inputs=_tensors(chosen.inputs, "input", name or ""),
        outputs=_tensors(chosen.outputs, "output", name or ""),
        checkpoint_prefix=checkpoint,
        meta_graph=graph,
    )


def _chosen(signatures: Mapping[str, Any], wanted: str | None, needed: bool) -> str | None:
    """The name of the signature to use; None if the file has none, or none is needed."""
    # TensorFlow gives functions that only initialize, and return nothing, names like this.
    names = sorted(name for name in signatures if not name.startswith("__"))
    if wanted is None and not names:
        return None
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted is None and not needed and SERVING not in signatures:
        return None
    if (wanted or SERVING) not in signatures:
        held = listed(list(map(quoted, names)), _MOST_NAMED) or "none"
        raise ModelFileError(f"it has no signature {quoted(wanted or SERVING)}; its signatures are {held}")
    return wanted or SERVING


def _tensors(described: Mapping[str, Any], what: str, signature: str) -> dict[str, str]:
    """The tensors of a signature's arguments or results, in the order of their names."""
    for name, tensor in described.items():
        if not tensor.name:
            kind = (tensor.WhichOneof("encoding") or "tensor without a name").replace("_", " ")
            raise ModelFileError(
                f"{what} {quoted(name)} of the signature {quoted(signature)} is a {kind}; only dense tensors "
                "are supported"
            )
    return {name: described[name].name for name in sorted(described)}


def _checkpoint(file: pathlib.Path, kind: str) -> pathlib.Path | None:
    """The prefix of the checkpoint of a file, if it exists."""
    prefix = file.parent / "variables" / "variables" if kind == SAVED_MODEL else file.with_suffix("")
    if prefix.with_name(f"{prefix.name}.index").is_file():
        return prefix
    # The first format of checkpoints is one file without a suffix.
    return prefix if kind == META_GRAPH and file.suffix == ".meta" and prefix.is_file() else None


def _check(graph: Any, bounds: Bounds) -> None:
    """Check the limits on nodes, memory, and constants that repeat an element."""
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    count = sum(map(len, bodies))
    if count > bounds.nodes:
        raise ModelFileError(f"it has {count} nodes, more than {bounds.nodes}; {REMEDY}")
    size = graph.ByteSize()
    allowed = bounds.memory + PROPORTION * size
    taken = repeated = 0
    for node in (node for nodes in bodies for node in nodes):
        taken += _NODE + _INPUT * len(node.input) + _ATTRIBUTE * len(node.attr)
        if node.op == "Const" and "value" in node.attr:
            repeated += repeated_bytes(node.attr["value"].tensor, f"the constant {quoted(node.name)}")
        if taken > allowed:
            raise ModelFileError(
                f"its nodes would need more than {allowed >> 20} MiB of memory, the limit for a file of "
                f"{size} bytes; {REMEDY}"
            )
        if repeated > bounds.memory:
            raise ModelFileError(
                f"its constants repeat elements to more than {bounds.memory >> 20} MiB; {REMEDY}"
            )
