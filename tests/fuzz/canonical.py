"""One form of a model's message for everything that means the same, to see whether something was lost."""

from __future__ import annotations

from typing import Any

import onnx

_NUMBERS = ("offset", "length")


def canonical(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which nothing is left that may be said in two ways.

    Left out are defaults that are set, trailing absent outputs, and what is stated of a value twice or of
    what nothing makes; metadata, opset imports, stated types and annotations are in order of their keys.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _entries(copy)
    _imports(copy)
    _move_statements(copy)
    _graph(copy.graph)
    for function in copy.functions:
        _entries(function)
        function.domain = _domain(function.domain)
        _imports(function)
        function.attribute_proto.sort(key=lambda attribute: attribute.name)
        function.attribute.sort()
        _nodes(function.node)
        made = {*function.input, *(name for node in function.node for name in node.output)}
        _keep(function.value_info, lambda info, made=made: info.name in made)
    copy.functions.sort(key=lambda f: (f.domain, f.name, f.overload))
    _drop_defaults(copy)
    return copy


def _move_statements(model: onnx.ModelProto) -> None:
    """Put what the main graph states of values in functions, before IR version 10, into the functions."""
    functions = {f"{_domain(f.domain)}::{f.name}": f for f in model.functions if not f.overload}
    for info in model.graph.value_info if model.ir_version < 10 else ():
        title, _, name = info.name.rpartition("/")
        if title in functions and name not in {other.name for other in functions[title].value_info}:
            functions[title].value_info.append(info)
            functions[title].value_info[-1].name = name


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _imports(message: Any) -> None:
    found = {_domain(entry.domain): entry.version for entry in message.opset_import}
    del message.opset_import[:]
    for domain in sorted(found):
        message.opset_import.add(domain=domain, version=found[domain])


def _entries(message: Any) -> None:
    found = {entry.key: entry.value for entry in message.metadata_props}
    del message.metadata_props[:]
    for key in sorted(found):
        message.metadata_props.add(key=key, value=found[key])


def _keep(infos: Any, keep: Any) -> None:
    kept = {info.name: info for info in infos if keep(info)}
    del infos[:]
    for name in sorted(kept):
        _entries(kept[name])
        # A statement that says nothing is none.
        if kept[name].type.WhichOneof("value") or kept[name].metadata_props or kept[name].doc_string:
            infos.append(kept[name])


def _graph(graph: onnx.GraphProto) -> None:
    _entries(graph)
    interface = {info.name for info in (*graph.input, *graph.output)}
    for info in (*graph.input, *graph.output):
        _entries(info)
    made = {tensor.name for tensor in graph.initializer}
    made |= {name for node in graph.node for name in node.output}
    for tensor in graph.initializer:
        _tensor(tensor)
        # The intermediate representation states the types of initializers.
        if tensor.name not in {info.name for info in graph.value_info}:
            info = graph.value_info.add(name=tensor.name)
            info.type.tensor_type.elem_type = tensor.data_type
            info.type.tensor_type.shape.SetInParent()
            for size in tensor.dims:
                info.type.tensor_type.shape.dim.add(dim_value=size)
    _keep(graph.value_info, lambda info: info.name in made and info.name not in interface)
    annotations = {a.tensor_name: a for a in graph.quantization_annotation}
    del graph.quantization_annotation[:]
    for name in sorted(annotations):
        if name in made or name in interface:
            entries = {e.key: e.value for e in annotations[name].quant_parameter_tensor_names}
            del annotations[name].quant_parameter_tensor_names[:]
            for key in sorted(entries):
                annotations[name].quant_parameter_tensor_names.add(key=key, value=entries[key])
            if entries:
                graph.quantization_annotation.append(annotations[name])
    _nodes(graph.node)


def _nodes(nodes: Any) -> None:
    for node in nodes:
        _entries(node)
        node.domain = _domain(node.domain)
        while node.output and not node.output[-1]:
            node.output.pop()
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _graph(graph)
            for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
                _tensor(tensor)
        node.attribute.sort(key=lambda attribute: attribute.name)
    # Sorting is by what nodes make; those that make nothing keep their order at the end.
    nodes.sort(key=lambda node: list(node.output) or ["\U0010ffff"])


def _tensor(tensor: onnx.TensorProto) -> None:
    _entries(tensor)
    entries = {e.key: e.value for e in tensor.external_data if e.key in ("location", *_NUMBERS)}
    del tensor.external_data[:]
    for key in sorted(entries):
        value = str(int(entries[key])) if key in _NUMBERS else entries[key]
        tensor.external_data.add(key=key, value=value)


def _drop_defaults(message: Any) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                _drop_defaults(inner)
            # Of messages, only a shape says something by being there.
            if not field.is_repeated and not value.ListFields() and field.name not in ("shape", "g", "graph"):
                message.ClearField(field.name)
        # Written out, for 0.0 and -0.0 are equal.
        elif (
            not field.is_repeated
            and field.containing_oneof is None
            and repr(value) == repr(field.default_value)
        ):
            message.ClearField(field.name)
