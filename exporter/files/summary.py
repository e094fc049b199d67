"""What a model file holds, as plain data for tables and JSON. Works without torch."""

from __future__ import annotations

import collections
import dataclasses
import math
import os
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

from ..source.dimensions import read as restrictions
from .reading import check_text, read_model

_BITS = {
    int(kind): kind.bitwidth
    for kind in ir.DataType
    if kind not in (ir.DataType.UNDEFINED, ir.DataType.STRING)
}


def describe_file(path: str | os.PathLike) -> dict[str, Any]:
    """What a model file declares and holds: opsets, inputs, outputs, operators, weights.

    Raises:
        ModelFileError: see `read_model`; or names in the file are not text.
    """
    model = read_model(path)
    check_text(model)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer}
    nodes = [node for inner in graphs(graph) for node in inner.node]
    nodes += [node for function in model.functions for node in function.node]
    counts = collections.Counter(
        f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        for node in nodes
    )
    tensors = [tensor for inner in graphs(graph) for tensor in inner.initializer]
    return {
        "file": os.fspath(path),
        "bytes": os.path.getsize(path),
        "ir_version": model.ir_version,
        "producer": " ".join(filter(None, [model.producer_name, model.producer_version])),
        "opset_imports": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "inputs": [_value(value) for value in graph.input if value.name not in stored],
        "outputs": [_value(value) for value in graph.output],
        "dimensions": [dataclasses.asdict(restriction) for restriction in restrictions(metadata)],
        "nodes": len(nodes),
        "operators": dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        "initializers": {"count": len(tensors), "bytes": sum(map(_tensor_bytes, tensors))},
        "external_data": sorted(
            {entry.value for t in tensors for entry in t.external_data if entry.key == "location"}
        ),
    }


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and its sub-graphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graphs(inner)


def _value(value: onnx.ValueInfoProto) -> dict[str, Any]:
    kind = value.type.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return {"name": value.name, "type": (kind or "unknown").removesuffix("_type"), "shape": None}
    tensor = getattr(value.type, kind)
    shape = [_dimension(d) for d in tensor.shape.dim] if tensor.HasField("shape") else None
    return {"name": value.name, "type": _element_type(tensor.elem_type), "shape": shape}


def _element_type(number: int) -> str:
    known = number in onnx.TensorProto.DataType.values()
    return onnx.TensorProto.DataType.Name(number) if known else f"unknown ({number})"


def _dimension(dimension: Any) -> int | str | None:
    field = dimension.WhichOneof("value")
    return None if field is None else getattr(dimension, field)


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    """The bytes of a tensor as its shape states them; none where it states none that there can be."""
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    if tensor.data_type not in _BITS or min(tensor.dims, default=0) < 0:
        return 0
    return -(-math.prod(tensor.dims) * _BITS[tensor.data_type] // 8)
