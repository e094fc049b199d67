"""Replaces the results that a caller feeds by placeholders, and placeholders with values by constants.

The results of data sets and queues become placeholders, too.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from .....registration import UsageError
from ....files.reading.names import quoted
from ..element_types import numpy_type, type_name
from ..messages import GraphDef, NodeDef, TensorShapeProto, message_type
from ..node_messages import (
    OPTIONAL_PLACEHOLDER,
    PLACEHOLDERS,
    MessageNode,
    MessageScope,
    ResultName,
    parse_node,
    parse_result_name,
)
from ..operator_definitions import Definitions
from ..tensor_protos import set_header
from .plans import make_node

ALL_PLACEHOLDERS = PLACEHOLDERS | {OPTIONAL_PLACEHOLDER}
_BATCHES = tuple(f"QueueDequeue{amount}{version}" for amount in ("Many", "UpTo") for version in ("", "V2"))
DATA_SOURCES = frozenset(
    {"IteratorGetNext", "IteratorGetNextSync", "QueueDequeue", "QueueDequeueV2", *_BATCHES}
)
"""Operators that return the next elements of a data set or a queue."""


def feed_results(scope: MessageScope, definitions: Definitions, inputs: Iterable[str]) -> list[str]:
    """Replace results by placeholders: result 0 of node `x` by placeholder `x`, result 1 by `x_1`.

    Returns:
        The names of the placeholders.
    """
    placeholder_of_result: dict[ResultName, ResultName] = {}
    nodes = dict(scope.nodes)
    for text in inputs:
        result = parse_result_name(text)
        node = nodes.get(result.node)
        index = int(result.port) if result.port.isdigit() else 0
        types = [] if node is None else _result_types(node, definitions)
        if node is None or index >= len(types) or numpy_type(types[index]) is None:
            raise UsageError(
                f"inputs names {quoted(text)}, which is not a result of the graph with a known type"
            )
        name = placeholder_name(text)
        if index and name in scope.nodes:
            raise UsageError(f"the input {quoted(text)} would have the name {quoted(name)} of another node")
        message = make_node(name, "Placeholder", node.message.device, dtype=types[index])
        message.attr["shape"].shape.CopyFrom(_result_shape(node, index, len(types)))
        placeholder_of_result[result] = ResultName(name, "")
        scope.nodes[name] = MessageNode(message, (), ())
    # Readers of result 1 and further now read a placeholder with another name.
    for node in list(scope.nodes.values()):
        if any(
            result in placeholder_of_result and placeholder_of_result[result] != result
            for result in node.inputs
        ):
            inputs_of_node = tuple(placeholder_of_result.get(result, result) for result in node.inputs)
            scope.nodes[node.name] = node._replace(inputs=inputs_of_node)
    return [placeholder.node for placeholder in placeholder_of_result.values()]


def replace_data_sources(graph: GraphDef, definitions: Definitions) -> None:
    """Change a graph in place: placeholders instead of the results of data sets and queues.

    They have the names that `feed_results` gives them.
    """
    nodes = {node.name: node for node in graph.node}
    placeholders: dict[str, NodeDef] = {}
    origins: dict[str, ResultName] = {}
    for reader in graph.node:
        for position, text in enumerate(reader.input):
            result = parse_result_name(text)
            source = nodes.get(result.node)
            if source is None or source.op not in DATA_SOURCES:
                continue
            name, index = placeholder_name(text), int(result.port or 0)
            if name not in placeholders:
                types = _result_types(parse_node(source, False), definitions)
                if index >= len(types) or (index and name in nodes):
                    continue
                placeholder = make_node(name, "Placeholder", source.device, dtype=types[index])
                shape = _element_shape(source, nodes, index, len(types))
                placeholder.attr["shape"].shape.CopyFrom(shape)
                placeholders[name], origins[name] = placeholder, result
            reader.input[position] = name
    for source in [node for node in graph.node if node.op in DATA_SOURCES]:
        # Other nodes may wait for a source whose first result is not read.
        source.CopyFrom(placeholders.pop(source.name, None) or make_node(source.name, "NoOp", source.device))
    positions = {name: position for position, name in enumerate(nodes)}
    # Inputs are in the order of the file, and those of one source in the order of its results.
    ordered = sorted(origins, key=lambda name: (positions[origins[name].node], int(origins[name].port or 0)))
    graph.node.extend(placeholders[name] for name in ordered if name in placeholders)


def _element_shape(source: NodeDef, nodes: Mapping[str, NodeDef], index: int, count: int) -> TensorShapeProto:
    """The shape of a result of a data source, which a queue states for each element."""
    shape = _result_shape(parse_node(source, False), index, count)
    queue = nodes.get(parse_result_name(source.input[0]).node) if source.input else None
    if not shape.unknown_rank or queue is None:
        return shape
    element = _result_shape(parse_node(queue, False), index, count)
    if source.op not in _BATCHES or element.unknown_rank:
        return element
    shape = message_type("TensorShapeProto")()
    shape.dim.add(size=-1)
    shape.dim.extend(element.dim)
    return shape


def placeholder_name(text: str) -> str:
    """The name of the placeholder for a result."""
    result = parse_result_name(text)
    return f"{result.node}_{result.port}" if result.port else result.node


def set_placeholders(scope: MessageScope, values: Mapping[str, object]) -> None:
    """Replace placeholders by constants."""
    for name, value in values.items():
        node = scope.nodes.get(parse_result_name(name).node)
        if node is None or node.op not in ALL_PLACEHOLDERS:
            raise UsageError(f"a value is given for {quoted(name)}, which is not a placeholder of the graph")
        dtype = node.attribute("dtype").type
        numpy_dtype = numpy_type(dtype)
        try:
            if numpy_dtype is None or numpy_dtype == np.object_:
                raise ValueError("its type is not a number")
            array = np.asarray(value, numpy_dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(
                f"the placeholder {quoted(name)} is {type_name(dtype)} and cannot be set to {value!r}: "
                f"{error}"
            ) from None
        message = make_node(node.name, "Const", node.message.device, dtype=dtype)
        tensor = message.attr["value"].tensor
        set_header(tensor, dtype, array.shape)
        tensor.tensor_content = array.tobytes()
        scope.nodes[node.name] = MessageNode(message, (), ())


def _result_types(node: MessageNode, definitions: Definitions) -> list[int]:
    """The element types of a node's results; none if its operator is not known."""
    definition = definitions(node.op)
    if definition is None:
        # Iterators and queues state the types of all their results.
        stated = (node.attribute(name).list.type for name in ("output_types", "component_types", "dtypes"))
        return next((list(types) for types in stated if types), [])
    dtypes: list[int] = []
    for argument in definition.output_arg:
        if argument.type_list_attr:
            dtypes += node.attribute(argument.type_list_attr).list.type
            continue
        dtype = argument.type or node.attribute(argument.type_attr).type
        dtypes += [dtype] * (node.attribute(argument.number_attr).i if argument.number_attr else 1)
    return dtypes


def _result_shape(node: MessageNode, index: int, count: int) -> TensorShapeProto:
    """The shape of a result that the node states."""
    for name in ("output_shapes", "_output_shapes", "shapes"):
        shapes = node.attribute(name).list.shape
        if len(shapes) == count:
            return shapes[index]
    shape = node.attribute("shape")
    if node.op in ALL_PLACEHOLDERS and shape.HasField("shape"):
        return shape.shape
    return message_type("TensorShapeProto")(unknown_rank=True)
