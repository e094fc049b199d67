"""Freezes a graph: replaces variables by constants, and removes nodes that inference does not need."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .....registration import CaptureError, UsageError
from ....files.reading import bounds_of
from ....files.reading.names import listed, quoted
from ..checkpoints import Checkpoint, open_checkpoint
from ..element_types import numpy_type
from ..graph_reading import GraphFile, read_graph
from ..messages import FunctionDef, GraphDef, message_type
from ..node_messages import MessageScope, ResultName, parse_result_name
from ..operator_definitions import Definitions
from ..tensor_protos import set_header
from .bodies import freeze_scope
from .calls import Functions
from .frozen_graph import FrozenGraph
from .inputs import ALL_PLACEHOLDERS, feed_results, set_placeholders
from .plans import has_no_results, make_node
from .scope_analysis import WRITING_OPERATORS, VariableReference
from .variables import GraphVariable, StoredVariable, VariableKeys, handle_constants, variables_of

Names = str | Iterable[str]
"""Names, or one text of names with commas between them."""


def freeze(
    graph: str | os.PathLike[str] | GraphFile | GraphDef,
    checkpoint: Any = None,
    outputs: Names | None = None,
    **options: Any,
) -> GraphDef:
    """Freeze a graph, and return a new GraphDef with its weights in it.

    The arguments and the errors are those of `frozen_graph`, which does not hold the weights in memory.
    """
    return frozen_graph(graph, checkpoint, outputs, **options).message()


def frozen_graph(
    graph: str | os.PathLike[str] | GraphFile | GraphDef,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    outputs: Names | None = None,
    *,
    inputs: Names | None = None,
    values: Mapping[str, Any] | None = None,
    keys: Mapping[str, str] | None = None,
    signature: str | None = None,
    allow_links: bool = False,
    trusted: bool = False,
    keep_tables: bool = False,
) -> FrozenGraph:
    """Freeze a graph. Neither the graph nor the checkpoint is changed.

    Args:
        graph: a file with a GraphDef, a MetaGraph or a SavedModel, or the result of `read_graph` for it, or
            a GraphDef message.
        checkpoint: the checkpoint, see `open_checkpoint`; by default the one beside a MetaGraph or in a
            SavedModel. A graph without variables needs none.
        outputs: the results to keep, "logits" or "split:1"; by default those of the signature.
        inputs: results to feed, which become placeholders: those of a queue or an iterator.
        values: numbers for placeholders, such as a training flag, by name.
        keys: keys in the checkpoint, by the names of variables, for variables whose keys the graph does not
            state.
        signature: the signature that has the outputs.
        allow_links: follow links out of the checkpoint's folder.
        trusted: lift the bounds on the size of the graph file, and on the entries of the checkpoint.
        keep_tables: keep lookup tables, whose contents a frozen graph does not have by itself.

    Raises:
        ModelFileError: a file cannot be read, or is damaged.
        CaptureError: the graph cannot be frozen; the error names all nodes that are in the way.
        UsageError: there is no such input, output or placeholder, or the outputs are missing.
    """
    file = graph_file(graph, signature=signature, trusted=trusted)
    functions = list(file.graph_def.library.function)
    scope = MessageScope(file.graph_def.node, "the graph")
    placeholders = feed_results(scope, file.definitions, _split_names(inputs))
    set_placeholders(scope, values or {})
    output_names = output_results(scope, file, outputs)
    variables = variables_of(scope)
    calls = Functions(functions, keep_tables)
    variable_references = {
        ResultName(variable.node, ""): VariableReference(variable.dtype, variable.node, variable.is_handle)
        for variable in variables.values()
    } | handle_constants(scope)
    frozen = freeze_scope(
        scope,
        output_names,
        variables=variable_references,
        ranges={},
        written_inputs=calls.written_inputs,
        plan_call=calls.plan,
        keep_tables=keep_tables,
        # The contents follow later, when it is known which variables the frozen graph needs.
        constants={
            variable.node: make_node(variable.node, "Const", dtype=variable.dtype)
            for variable in variables.values()
        },
    )
    needed = [variables[node.name] for node in frozen.nodes if node.name in variables]
    message = message_type("GraphDef")(versions=file.graph_def.versions)
    message.node.extend(frozen.nodes)
    # An input that no output depends on stays an input.
    names = {node.name for node in frozen.nodes}
    message.node.extend(scope.nodes[name].message for name in placeholders if name not in names)
    message.library.function.extend(calls.definitions)
    opened_checkpoint = checkpoint_of_graph(file, checkpoint, allow_links, trusted)
    stored = _read_stored_variables(scope, functions, needed, opened_checkpoint, keys or {})
    weights = _set_weights(message, stored)
    return FrozenGraph(message, weights, [str(result) for result in frozen.results])


def graph_file(graph: object, *, signature: str | None = None, trusted: bool = False) -> GraphFile:
    """The graph of a file or a message."""
    if isinstance(graph, GraphFile):
        return graph
    if isinstance(graph, (str, os.PathLike)):
        return read_graph(graph, signature=signature, need_signature=False, bounds=bounds_of(trusted))
    if not isinstance(graph, message_type("GraphDef")):
        raise UsageError(f"the graph must be a path or a GraphDef, not {type(graph).__name__}")
    return GraphFile(graph, Definitions(), "GraphDef", "binary")


def _split_names(names: Names | None) -> list[str]:
    if names is None:
        return []
    return [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]


def output_results(scope: MessageScope, file: GraphFile, outputs: Names | None) -> list[ResultName]:
    """The results to keep: the named ones; else those of the signature; else those that no node reads."""
    output_names = _split_names(outputs) or list(dict.fromkeys(file.outputs.values()))
    for name in output_names:
        if parse_result_name(name).node not in scope.nodes:
            raise UsageError(f"outputs names {quoted(name)}, which is not a node of the graph")
    if output_names:
        return [parse_result_name(name) for name in output_names]
    last = _unread_nodes(scope)
    # A graph for training has many nodes that nobody reads, and few of them are outputs.
    if not last or any(_TRAINING_OPERATORS.fullmatch(node.op) for node in scope.nodes.values()):
        raise UsageError(
            "the graph has training operators: name its outputs with outputs= or --outputs; no node reads "
            f"{listed([quoted(name) for name in last]) or 'its variables'}"
        )
    return [ResultName(name, "") for name in last]


def _unread_nodes(scope: MessageScope) -> list[str]:
    """The unread nodes that depend on a placeholder; if there are none, other unread nodes."""
    readers: dict[str, list[str]] = {}
    for node in scope.nodes.values():
        for result in node.inputs:
            readers.setdefault(result.node, []).append(node.name)
    pending = [node.name for node in scope.nodes.values() if node.op in ALL_PLACEHOLDERS]
    reached = set(pending)
    while pending:
        for reader in readers.get(pending.pop(), ()):
            if reader not in reached:
                reached.add(reader)
                pending.append(reader)
    unread = [n for n in scope.nodes.values() if n.name not in readers and not has_no_results(n)]
    computed = [node.name for node in unread if node.op not in ALL_PLACEHOLDERS]
    return (
        [name for name in computed if name in reached]
        or computed
        or [node.name for node in unread if node.name in reached]
    )


_TRAINING_OPERATORS = re.compile(rf"{WRITING_OPERATORS.pattern}|Save.*|Restore.*|.*Grad.*")


def checkpoint_of_graph(
    file: GraphFile,
    checkpoint: str | os.PathLike[str] | Checkpoint | None,
    allow_links: bool,
    trusted: bool,
) -> Checkpoint | None:
    """Open the caller's checkpoint, or the one in the folder of the graph, if there is one."""
    if isinstance(checkpoint, Checkpoint):
        return checkpoint
    path = file.checkpoint_prefix if checkpoint is None else checkpoint
    return None if path is None else open_checkpoint(path, allow_links=allow_links, trusted=trusted)


def _read_stored_variables(
    scope: MessageScope,
    functions: Sequence[FunctionDef],
    needed: Sequence[GraphVariable],
    checkpoint: Checkpoint | None,
    keys: Mapping[str, str],
) -> dict[str, StoredVariable]:
    """The contents of the variables that the frozen graph needs."""
    if not needed and not keys:
        return {}
    if checkpoint is None:
        raise CaptureError(
            "the graph has variables, but there is no checkpoint (checkpoint= or --checkpoint): "
            f"{listed([quoted(v.name) for v in needed])}"
        )
    return VariableKeys(scope, functions, checkpoint, keys).find_stored(needed)


def _set_weights(message: GraphDef, stored: Mapping[str, StoredVariable]) -> dict[str, StoredVariable]:
    """Set the types and shapes of Const nodes, and return the weights to write later, by node name.

    Strings are set at once: `string_val` stores each with its own length, not all as one run of bytes.
    """
    unwritten_weights = {}
    for node in message.node:
        weight = stored.get(node.name)
        if weight is None:
            continue
        tensor = node.attr["value"].tensor
        set_header(tensor, weight.dtype, weight.shape)
        if numpy_type(weight.dtype) == np.object_:
            tensor.string_val.extend(weight.read().reshape(-1).tolist())
        else:
            unwritten_weights[node.name] = weight
    return unwritten_weights
