"""Stores the arguments of an operator in a source node, and reads them.

A source node is an `onnx_ir.Node` whose domain is the dialect (`aten`, `sym`, a library's own), whose
`op_type` and `overload` are the operator's, and whose single attribute `arguments` holds every argument as
JSON, a list of `[schema name, argument]`. Values (tensors, symbolic numbers) are node inputs, and the JSON
refers to them by position: `{"value": 0}`. Everything else is stored exactly:

    null, true, 3, "mean"            None, bool, int of any size, str
    0.1, 1.0, -0.0                   float, in double precision
    {"float": "inf"}                 float without a JSON form: inf, -inf, nan
    {"complex": [re, im]}            complex
    {"dtype": "FLOAT16"}             onnx_ir.DataType
    {"device": "cpu"}, {"layout": …}, {"memory_format": …}
    [ … ]                            list or tuple, nested and mixed with values
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from .errors import GraphError
from .json_text import parse_json
from .kinds import is_value

ATTRIBUTE = "arguments"
_ARGUMENTS_ALONE = [ATTRIBUTE]
"""The attributes of a source node without sub-blocks."""
# Members of an enumeration take several times as long to look up as a name of the module.
_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


class Device(str):
    """A device argument, `cpu` or `cuda:0`."""


class Layout(str):
    """A layout argument, `strided`."""


class MemoryFormat(str):
    """A memory format argument, `channels_last`."""


_TEXT_TYPES: dict[str, type[str]] = {"device": Device, "layout": Layout, "memory_format": MemoryFormat}
_KEYWORD_OF_TEXT_TYPE = {text_type: name for name, text_type in _TEXT_TYPES.items()}


_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class _Reference(int):
    """Position of a value among the node's inputs."""


_RESOLVED = frozenset({_Reference, list})
"""Types of decoded arguments that are, or may contain, references to values."""


def _encode(value: Any, inputs: list[ir.Value]) -> Any:
    argument_type = type(value)
    if value is None or argument_type is bool or argument_type is int or argument_type is str:
        return value
    if argument_type is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if is_value(value):
        inputs.append(value)
        return {"value": len(inputs) - 1}
    if argument_type is list or argument_type is tuple:
        return [_encode(item, inputs) for item in value]
    if argument_type is ir.DataType:
        return {"dtype": value.name}
    if argument_type is complex:
        return {"complex": [_encode(value.real, inputs), _encode(value.imag, inputs)]}
    if argument_type in _KEYWORD_OF_TEXT_TYPE:
        return {_KEYWORD_OF_TEXT_TYPE[argument_type]: str(value)}
    raise GraphError(
        f"an argument of type {argument_type.__name__} cannot be stored on a source node: {value!r}"
    )


def _decode_object(pairs: list[tuple[str, Any]]) -> Any:
    if len(pairs) == 1:
        key, item = pairs[0]
        if key == "value" and type(item) is int:
            return _Reference(item)
        if key == "float" and isinstance(item, str):
            return float(item)
        if key == "dtype" and isinstance(item, str):
            return ir.DataType[item]
        if key == "complex" and isinstance(item, list):
            return complex(*item)
        if key in _TEXT_TYPES and isinstance(item, str):
            return _TEXT_TYPES[key](item)
    return dict(pairs)


# The same arguments are read by several passes and by lowering; parsing JSON each time would dominate them.
@functools.lru_cache(maxsize=8192)
def _decode(text: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, item) for name, item in parse_json(text, object_pairs_hook=_decode_object))


def _resolve(item: Any, inputs: Sequence[ir.Value | None]) -> Any:
    item_type = type(item)
    if item_type is _Reference:
        if not 0 <= item < len(inputs):
            raise GraphError(
                f"an argument refers to input {int(item)}, but the node has {len(inputs)} inputs"
            )
        return inputs[item]
    if item_type is list:
        return [_resolve(member, inputs) for member in item]
    return item


def _pack(arguments: Mapping[str, object]) -> tuple[str, list[ir.Value]]:
    inputs: list[ir.Value] = []
    pairs = [[name, _encode(value, inputs)] for name, value in arguments.items()]
    return _JSON.encode(pairs), inputs


def source_node(
    name: str,
    arguments: Mapping[str, object],
    *,
    overload: str = "",
    outputs: Sequence[ir.Value] | None = None,
    num_outputs: int | None = None,
    node_name: str | None = None,
    attributes: Sequence[ir.Attr] = (),
    metadata_props: dict[str, str] | None = None,
) -> ir.Node:
    """Make a source node.

    Args:
        name: qualified operator name, `aten::topk`.
        arguments: the operator's arguments by schema name; values (`onnx_ir.Value`) become node inputs.
        overload: overload name, `default` or `Tensor`.
        outputs: the node's outputs; by default `num_outputs` new values.
        attributes: further attributes, such as the graphs of sub-blocks.

    Raises:
        GraphError: an argument has a type that cannot be stored.
    """
    domain, _, op_type = name.partition("::")
    if not op_type:
        raise GraphError(f"'{name}' is not a qualified operator name such as aten::relu")
    text, inputs = _pack(arguments)
    return ir.Node(
        domain,
        op_type,
        inputs,
        (ir.Attr(ATTRIBUTE, ir.AttributeType.STRING, text), *attributes),
        overload=overload,
        outputs=outputs,
        num_outputs=num_outputs,
        name=node_name,
        metadata_props=metadata_props,
    )


def arguments(node: ir.Node, inputs: Sequence[ir.Value | None] | None = None) -> dict[str, Any]:
    """Return the node's arguments by schema name, as they were passed to `source_node`.

    Args:
        inputs: values that replace the node's inputs in the arguments.

    Raises:
        GraphError: the node has no arguments, or they cannot be decoded.
    """
    attribute = node.attributes.data.get(ATTRIBUTE)
    if attribute is None:
        raise GraphError(
            f"node '{node.name}' ({qualified_name(node)}) is not a node of a source graph: it has no "
            "'arguments' attribute"
        )
    node_inputs = node.inputs if inputs is None else inputs
    return {
        name: _resolve(item, node_inputs) if type(item) in _RESOLVED else item
        for name, item in _decode(attribute.value)
    }


def replace_arguments(node: ir.Node, arguments: Mapping[str, object]) -> None:
    """Replace the arguments of a source node in place; its outputs do not change."""
    text, inputs = _pack(arguments)
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        if node.inputs[index] is not value:
            node.replace_input_with(index, value)
    node.attributes[ATTRIBUTE] = ir.Attr(ATTRIBUTE, ir.AttributeType.STRING, text)


def blocks(node: ir.Node) -> list[ir.Graph]:
    """Return the graph attributes of a node in order: sub-blocks of source nodes, ONNX sub-graphs."""
    graphs: list[ir.Graph] = []
    # Every walk through a graph calls this; reading the UserDict around the dict takes several times as long.
    attributes = node.attributes.data
    if not attributes or [*attributes] == _ARGUMENTS_ALONE:
        return graphs
    for attribute in attributes.values():
        attribute_type = attribute.type
        if attribute_type == _GRAPH and not attribute.is_ref():
            graphs.append(attribute.as_graph())
        elif attribute_type == _GRAPHS and not attribute.is_ref():
            graphs += attribute.as_graphs()
    return graphs


def graphs_of(graph: ir.Graph) -> list[ir.Graph]:
    """Return a graph and its nested sub-graphs, outer graphs first.

    A list takes a fraction of the time of `ir.Graph.subgraphs`.
    """
    graphs: list[ir.Graph] = []
    stack = [graph]
    while stack:
        current = stack.pop()
        graphs.append(current)
        inner = [block for node in current if node.attributes.data for block in blocks(node)]
        stack += reversed(inner)
    return graphs


def every_node(graph: ir.Graph | ir.Function) -> list[ir.Node]:
    """Return the nodes of a graph in order, each before the nodes of its sub-graphs.

    A list takes a fraction of the time of `ir.Graph.all_nodes`, whose time grows with the depth of each node,
    and the graph may change.
    """
    return walk_graphs(graph)[0]


def walk_graphs(graph: ir.Graph | ir.Function) -> tuple[list[ir.Node], list[ir.Graph]]:
    """The nodes of a graph in the order of `every_node`, and the graph with its sub-graphs."""
    nodes: list[ir.Node] = []
    graphs: list[ir.Graph] = []
    waiting: list[ir.Graph | Iterator[ir.Node]] = [graph.graph if isinstance(graph, ir.Function) else graph]
    while waiting:
        current = waiting[-1]
        if isinstance(current, ir.Graph):
            graphs.append(current)
            current = waiting[-1] = iter(current)
        # An iterator on the stack resumes after the node whose sub-graphs came next.
        for node in current:
            nodes.append(node)
            inner = blocks(node) if node.attributes.data else ()
            if inner:
                waiting.extend(reversed(inner))
                break
        else:
            waiting.pop()
    return nodes, graphs


def qualified_name(node: ir.Node) -> str:
    """`aten::topk` for a source node, the operator's name for an ONNX node of the default domain."""
    domain = node.domain
    return f"{domain}::{node.op_type}" if domain else node.op_type


def overloaded_name(node: ir.Node) -> str:
    """The qualified name with the overload, `aten::add.Tensor`."""
    overload = node.overload
    return f"{qualified_name(node)}.{overload}" if overload else qualified_name(node)


def name_in_errors(node: ir.Node) -> str:
    """The qualified name with the overload; also operators of ONNX have a domain, `onnx::Relu`."""
    return overloaded_name(node) if node.domain else f"onnx::{overloaded_name(node)}"
