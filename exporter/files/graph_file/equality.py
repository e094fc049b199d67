"""Defines when two captured models are equal; saving and loading must preserve this equality.

Two graphs are equal if their nodes, in order, have the same operators, overloads, names, arguments, metadata
and sub-blocks over corresponding values, their values have the same names, types, sizes and metadata, their
initializers have the same bytes, and their interfaces are the same. Two numbers are the same if they have the
same type and bit pattern.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

import onnx_ir as ir

from ...captured_graph.capture import Capture
from .initializer_contents import digest
from .structures import write_interface
from .values import shape_denotations

Correspondence = dict[ir.Value, ir.Value]


def difference(first: Capture, second: Capture) -> str | None:
    """A description of the first difference of two captured models; None if they are equal."""
    return next(_differences(first, second), None)


def _differences(first: Capture, second: Capture) -> Iterator[str]:
    for field in ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string"):
        yield from _differing_values(
            f"the model's {field}", getattr(first.source, field), getattr(second.source, field)
        )
    yield from _differing_values(
        "the model's metadata", first.source.metadata_props, second.source.metadata_props
    )
    imports = first.source.graph.opset_imports, second.source.graph.opset_imports
    yield from _differing_values("the opset imports", *map(dict, imports))
    interfaces = [write_interface(item.interface, item.output_names, None, None) for item in (first, second)]
    yield from _differing_values("the interface", *interfaces)
    yield from _graphs("the graph", first.source.graph, second.source.graph, {})


def _differing_values(subject: str, first: object, second: object) -> Iterator[str]:
    if _exact(first) != _exact(second):
        yield f"{subject}: {_shorten(first)} against {_shorten(second)}"


def _shorten(item: object) -> str:
    # A difference may be in a graph of megabytes.
    text = repr(item)
    return text if len(text) <= 400 else f"{text[:400]}…"


def _exact(item: object) -> object:
    """Convert constants to a form whose equality compares types and bits."""
    if isinstance(item, float):
        # Bits tell 0.0 from -0.0, and make a NaN equal to itself.
        return "float", struct.pack("<d", item)
    if isinstance(item, (list, tuple)):
        return "list", [_exact(member) for member in item]
    if isinstance(item, Mapping):
        return "mapping", {key: _exact(value) for key, value in item.items()}
    return type(item).__name__, item


def _graphs(subject: str, first: ir.Graph, second: ir.Graph, correspondence: Correspondence) -> Iterator[str]:
    yield from _differing_values(f"the name of {subject}", first.name, second.name)
    yield from _differing_values(f"the text of {subject}", first.doc_string, second.doc_string)
    yield from _differing_values(f"the metadata of {subject}", first.metadata_props, second.metadata_props)
    yield from _differing_values(f"the number of inputs of {subject}", len(first.inputs), len(second.inputs))
    for first_value, second_value in zip(first.inputs, second.inputs, strict=False):
        correspondence[first_value] = second_value
        yield from _values(f"an input of {subject}", first_value, second_value)
    names = [list(graph.initializers) for graph in (first, second)]
    yield from _differing_values(f"the initializers of {subject}", *names)
    for name in names[0]:
        first_value, second_value = first.initializers[name], second.initializers[name]
        if correspondence.setdefault(first_value, second_value) is not second_value:
            yield f"initializer '{name}' of {subject} stands for another value"
        yield from _values(f"an initializer of {subject}", first_value, second_value)
        yield from _tensors(name, first_value.const_value, second_value.const_value)
    # Pair all defined values first, because a use may come before its definition.
    for first_node, second_node in zip(first, second, strict=False):
        correspondence.update(zip(first_node.outputs, second_node.outputs, strict=False))
    for index, (first_node, second_node) in enumerate(zip_longest(first, second)):
        if first_node is None or second_node is None:
            yield f"the number of nodes of {subject}: {len(first)} against {len(second)}"
            return
        yield from _nodes(f"node {index} of {subject}", first_node, second_node, correspondence)
    yield from _uses(f"the outputs of {subject}", first.outputs, second.outputs, correspondence)


def _tensors(name: str, first: ir.TensorProtocol | None, second: ir.TensorProtocol | None) -> Iterator[str]:
    # Copies of a capture share their weights: do not hash them.
    if first is second:
        return
    if first is None or second is None:
        yield f"initializer '{name}' has no contents on one side"
        return
    yield from _differing_values(f"the type of initializer '{name}'", first.dtype, second.dtype)
    yield from _differing_values(f"the sizes of initializer '{name}'", list(first.shape), list(second.shape))
    if digest(first) != digest(second):
        yield f"the contents of initializer '{name}'"


def _values(subject: str, first: ir.Value, second: ir.Value) -> Iterator[str]:
    subject = f"{subject} ('{first.name}')"
    yield from _differing_values(f"the name of {subject}", first.name, second.name)
    yield from _differing_values(f"the type of {subject}", _type(first.type), _type(second.type))
    yield from _differing_values(f"the sizes of {subject}", _sizes(first.shape), _sizes(second.shape))
    yield from _differing_values(f"the metadata of {subject}", first.metadata_props, second.metadata_props)
    yield from _differing_values(f"the text of {subject}", first.doc_string, second.doc_string)


def _type(value_type: ir.TypeProtocol | ir.DataType | None) -> object:
    if value_type is None or isinstance(value_type, ir.DataType):
        return value_type
    is_tensor = isinstance(value_type, (ir.TensorType, ir.SparseTensorType))
    inner = value_type.dtype if is_tensor else _type(value_type.elem_type)
    return type(value_type).__name__, inner, value_type.denotation


def _sizes(shape: ir.Shape | None) -> object:
    if shape is None:
        return None
    sizes = [dim if isinstance(dim, int) else ("symbolic", dim.value) for dim in shape]
    return sizes, shape_denotations(shape)


def _uses(
    subject: str,
    first: Sequence[ir.Value | None],
    second: Sequence[ir.Value | None],
    correspondence: Correspondence,
) -> Iterator[str]:
    yield from _differing_values(f"the number of {subject}", len(first), len(second))
    for index, (first_value, second_value) in enumerate(zip(first, second, strict=False)):
        expected = None if first_value is None else correspondence.get(first_value)
        if expected is not second_value or (first_value is not None and expected is None):
            names = first_value and first_value.name, second_value and second_value.name
            yield f"number {index} of {subject}: '{names[0]}' against '{names[1]}'"


def _nodes(subject: str, first: ir.Node, second: ir.Node, correspondence: Correspondence) -> Iterator[str]:
    subject = f"{subject} ('{first.name}')"
    for field in ("name", "domain", "op_type", "overload", "version", "doc_string"):
        yield from _differing_values(
            f"the {field} of {subject}", getattr(first, field), getattr(second, field)
        )
    yield from _differing_values(f"the metadata of {subject}", first.metadata_props, second.metadata_props)
    yield from _uses(f"the inputs of {subject}", first.inputs, second.inputs, correspondence)
    yield from _differing_values(
        f"the number of outputs of {subject}", len(first.outputs), len(second.outputs)
    )
    for first_output, second_output in zip(first.outputs, second.outputs, strict=False):
        yield from _values(f"an output of {subject}", first_output, second_output)
    yield from _differing_values(
        f"the attributes of {subject}", list(first.attributes), list(second.attributes)
    )
    for name, attribute in first.attributes.items():
        if name in second.attributes:
            yield from _attributes(
                f"attribute '{name}' of {subject}", attribute, second.attributes[name], correspondence
            )


def _attributes(
    subject: str, first: ir.Attr, second: ir.Attr, correspondence: Correspondence
) -> Iterator[str]:
    yield from _differing_values(f"the type of {subject}", first.type, second.type)
    yield from _differing_values(f"the text of {subject}", first.doc_string, second.doc_string)
    if first.type != second.type:
        return
    if first.type not in (*_GRAPHS, *_TENSORS):
        yield from _differing_values(subject, _plain(first.value), _plain(second.value))
        return
    single = first.type in (_GRAPHS[0], _TENSORS[0])
    members_by_side = [[item.value] if single else list(item.value) for item in (first, second)]
    member_name = "graphs" if first.type in _GRAPHS else "tensors"
    yield from _differing_values(
        f"the number of {member_name} of {subject}", len(members_by_side[0]), len(members_by_side[1])
    )
    for first_member, second_member in zip(*members_by_side, strict=False):
        if first.type in _GRAPHS:
            yield from _graphs(subject, first_member, second_member, correspondence)
        else:
            yield from _tensors(subject, first_member, second_member)


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_TENSORS = (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS)


def _plain(value: object) -> object:
    if isinstance(value, ir.TypeAndShape):
        return _type(value.type), _sizes(value.shape)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
