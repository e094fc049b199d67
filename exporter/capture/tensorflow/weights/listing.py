"""Lists the weights of a graph, of a checkpoint, or of both."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..checkpoints import OBJECT_GRAPH, Checkpoint, open_checkpoint
from ..element_types import numpy_type, type_name
from ..freezing.freeze import Names, graph_file, opened_checkpoint, wanted_outputs
from ..freezing.scope import Node, Scope
from ..freezing.variables import VariableKeys, variables_of
from ..tensors import array_of
from .layouts import Layout
from .readers import Readers


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight.

    Attributes:
        name: the name of its node, or of the variable in a checkpoint.
        dtype: its element type: "float32", "string".
        shape: its shape, -1 for an unknown size; None if the rank is unknown.
        layout: what its dimensions are, if an operator tells.
        read: reads its contents; None if there is no checkpoint that has them.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    layout: Layout | None
    read: Callable[[], np.ndarray] | None


def weights_of_graph(
    graph: Any,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    outputs: Names | None = None,
    *,
    keys: Mapping[str, str] | None = None,
    signature: str | None = None,
    allow_links: bool = False,
    trusted: bool = False,
) -> list[Weight]:
    """The variables of a graph, and the constants that are weights, in the order of the graph.

    A constant is a weight if an operator reads it as one; in a graph without variables, also if it has
    dimensions and its elements are not whole numbers, truth values or strings. The arguments and errors are
    those of `frozen_graph`; with `outputs` or a signature, only the weights that they depend on are listed.
    """
    file = graph_file(graph, signature=signature, trusted=trusted)
    scope = Scope(file.graph_def.node, "the graph")
    library = list(file.graph_def.library.function)
    nodes = list(scope.nodes.values())
    if outputs is not None or file.outputs:
        nodes = scope.order(result.node for result in wanted_outputs(scope, file, outputs))
    variables = variables_of(scope)
    readers = Readers(scope, library)
    held = opened_checkpoint(file, checkpoint, allow_links)
    found = [variables[node.name] for node in nodes if node.name in variables]
    stored = {} if held is None else VariableKeys(scope, library, held, keys or {}).stored(found)
    weights = []
    for node in nodes:
        variable = variables.get(node.name)
        if node.op == "Const":
            weight = _constant(node, readers, only_read=bool(variables))
        elif variable is None:
            continue
        elif node.name in stored:
            contents = stored[node.name]
            layout = readers.layout(node.name, contents.shape)
            weight = Weight(node.name, _name_of(contents.dtype), contents.shape, layout, contents.read)
        else:
            layout = readers.layout(node.name, variable.shape)
            weight = Weight(node.name, _name_of(variable.dtype), variable.shape, layout, None)
        if weight is not None:
            weights.append(weight)
    return weights


def weights_of_checkpoint(
    path: str | os.PathLike[str] | Checkpoint, *, allow_links: bool = False
) -> list[Weight]:
    """The variables of a checkpoint; without a graph, their layouts are unknown.

    Raises:
        ModelFileError: see `open_checkpoint`.
    """
    held = path if isinstance(path, Checkpoint) else open_checkpoint(path, allow_links=allow_links)
    return [
        Weight(variable.name, _name_of(variable.dtype), variable.shape, None, variable.read)
        for variable in held.values()
        if variable.name != OBJECT_GRAPH
    ]


def _constant(node: Node, readers: Readers, *, only_read: bool) -> Weight | None:
    tensor = node.attribute("value").tensor
    kind = numpy_type(tensor.dtype)
    shape = tuple(int(dim.size) for dim in tensor.tensor_shape.dim)
    if kind is None or not shape:
        return None
    layout = readers.layout(node.name, shape)
    if layout is None and (only_read or kind.kind in "iubO"):
        return None
    return Weight(node.name, _name_of(tensor.dtype), shape, layout, lambda: array_of(tensor, node.shown))


def _name_of(dtype: int) -> str:
    """The name of an element type: that of numpy; TensorFlow's where numpy has none."""
    kind = numpy_type(dtype)
    if kind is None:
        return type_name(dtype).removeprefix("DT_").lower()
    return "string" if kind == np.object_ else kind.name
