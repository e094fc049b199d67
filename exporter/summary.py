"""What a model file holds, as plain data for tables and JSON. Works without torch."""

from __future__ import annotations

import collections
import math
import os
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from ..registration import ModelFileError


def read_model(path: str | os.PathLike) -> onnx.ModelProto:
    """Read a model file without its external data.

    Raises:
        ModelFileError: the file cannot be read, or is not an ONNX model.
    """
    model = onnx.ModelProto()
    try:
        with open(path, "rb") as file:
            model.ParseFromString(file.read())
    except OSError as error:
        raise ModelFileError(f"'{path}' cannot be read: {error.strerror or error}") from error
    except DecodeError:
        raise ModelFileError(f"'{path}' is not an ONNX file") from None
    if not model.ir_version or not model.HasField("graph"):
        raise ModelFileError(f"'{path}' is not an ONNX file")
    return model


def describe_file(path: str | os.PathLike) -> dict[str, Any]:
    """What a model file declares and holds: opsets, inputs, outputs, operators, weights.

    Raises:
        ModelFileError: see `read_model`.
    """
    model = read_model(path)
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
    return {"name": value.name, "type": onnx.TensorProto.DataType.Name(tensor.elem_type), "shape": shape}


def _dimension(dimension: Any) -> int | str | None:
    field = dimension.WhichOneof("value")
    return None if field is None else getattr(dimension, field)


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    return math.ceil(math.prod(tensor.dims) * ir.DataType(tensor.data_type).bitwidth / 8)
