"""Lists the weights of a graph, of a checkpoint, or of both."""

import dataclasses
import os
from collections.abc import Callable, Mapping

import numpy as np

from ..checkpoints import OBJECT_GRAPH, Checkpoint, open_checkpoint
from ..element_types import numpy_type, type_name
from ..freezing.freeze import Names, checkpoint_of_graph, graph_file, output_results
from ..freezing.variables import VariableKeys, variables_of
from ..graph_reading import GraphFile
from ..messages import GraphDef
from ..node_messages import MessageNode, MessageScope
from ..tensor_protos import array_of
from .layouts import WeightLayout
from .readers import Readers


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight.

    Attributes:
        name: the name of its node, or of the variable in a checkpoint.
        dtype: its element type: "float32", "string".
        shape: its shape, -1 for an unknown size; None if the rank is unknown.
        layout: the meaning of its dimensions, if the operator that reads it defines one.
        read: reads its contents; None if no checkpoint has them.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    layout: WeightLayout | None
    read: Callable[[], np.ndarray] | None


def weights_of_graph(
    graph: str | os.PathLike[str] | GraphFile | GraphDef,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    outputs: Names | None = None,
    *,
    keys: Mapping[str, str] | None = None,
    signature: str | None = None,
    allow_links: bool = False,
    trusted: bool = False,
) -> list[Weight]:
    """The variables of a graph, and the constants that are weights, in the order of the graph.

    A constant is a weight if an operator reads it as one; in a graph without variables, also if it is not a
    scalar and its elements are not integers, booleans or strings. The arguments and errors are those of
    `frozen_graph`; with `outputs` or a signature, only the weights that they depend on are listed.
    """
    file = graph_file(graph, signature=signature, trusted=trusted)
    scope = MessageScope(file.graph_def.node, "the graph")
    library = list(file.graph_def.library.function)
    nodes = list(scope.nodes.values())
    if outputs is not None or file.outputs:
        # The weights of other outputs, and of training alone, are not listed.
        nodes = scope.order(result.node for result in output_results(scope, file, outputs))
    variables = variables_of(scope)
    readers = Readers(scope, library)
    opened_checkpoint = checkpoint_of_graph(file, checkpoint, allow_links, trusted)
    graph_variables = [variables[node.name] for node in nodes if node.name in variables]
    stored = (
        {}
        if opened_checkpoint is None
        else VariableKeys(scope, library, opened_checkpoint, keys or {}).find_stored(graph_variables)
    )
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
            weight = Weight(node.name, _dtype_name(contents.dtype), contents.shape, layout, contents.read)
        else:
            layout = readers.layout(node.name, variable.shape)
            weight = Weight(node.name, _dtype_name(variable.dtype), variable.shape, layout, None)
        if weight is not None:
            weights.append(weight)
    return weights


def weights_of_checkpoint(
    path: str | os.PathLike[str] | Checkpoint, *, allow_links: bool = False, trusted: bool = False
) -> list[Weight]:
    """The variables of a checkpoint; without a graph, their layouts are unknown.

    Raises:
        ModelFileError: see `open_checkpoint`.
    """
    checkpoint = (
        path
        if isinstance(path, Checkpoint)
        else open_checkpoint(path, allow_links=allow_links, trusted=trusted)
    )
    return [
        Weight(variable.name, _dtype_name(variable.dtype), variable.shape, None, variable.read)
        for variable in checkpoint.values()
        if variable.name != OBJECT_GRAPH
    ]


def _constant(node: MessageNode, readers: Readers, *, only_read: bool) -> Weight | None:
    tensor = node.attribute("value").tensor
    dtype = numpy_type(tensor.dtype)
    shape = tuple(int(dim.size) for dim in tensor.tensor_shape.dim)
    if dtype is None or not shape:
        return None
    layout = readers.layout(node.name, shape)
    # In a graph with variables, the constants are parameters of operators rather than weights.
    if layout is None and (only_read or dtype.kind in "iubO"):
        return None
    return Weight(node.name, _dtype_name(tensor.dtype), shape, layout, lambda: array_of(tensor, node.label))


def _dtype_name(dtype: int) -> str:
    """The name of an element type: numpy's name, or TensorFlow's if numpy has none."""
    numpy_dtype = numpy_type(dtype)
    if numpy_dtype is None:
        return type_name(dtype).removeprefix("DT_").lower()
    return "string" if numpy_dtype == np.object_ else numpy_dtype.name
