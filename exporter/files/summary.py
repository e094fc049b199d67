"""Describes the contents of a model file as plain data for tables and JSON, without torch."""

from __future__ import annotations

import collections
import dataclasses
import math
import os
from typing import Any

import onnx
import onnx_ir as ir

from ...registration import DIMENSIONS, SPECIALIZATIONS
from ...registration.inference.tensor_sizes import packed_bytes
from ..captured_graph.dimensions import read_restrictions as restrictions
from ..captured_graph.specializations import read_specializations as specializations
from .garbage_collection import rare_collections
from .reading import bounds_of, read_model
from .reading.checks.content import text_of
from .reading.subgraphs import all_graphs, with_subgraphs

_SIZED_TYPES = frozenset(ir.DataType) - {ir.DataType.UNDEFINED, ir.DataType.STRING}
_ELEMENT_TYPES = {number: name for name, number in onnx.TensorProto.DataType.items()}


@rare_collections()
def describe_file(path: str | os.PathLike[str], *, trusted: bool = False) -> dict[str, Any]:
    """Describe a model file: opsets, inputs, outputs, operators, weights.

    Args:
        trusted: see `opsetta.load`.

    Raises:
        ModelFileError: see `read_model`; or names in the file are not valid text.
    """
    model = read_model(path, bounds_of(trusted))
    read = (DIMENSIONS, SPECIALIZATIONS)
    metadata = {e.key: text_of(e.value, "the metadata") for e in model.metadata_props if e.key in read}
    graph = model.graph
    # Before IR version 4 every initializer is also an input, though nobody feeds it.
    fed = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    nodes = (node for inner in all_graphs(model) for node in inner.node)
    counts = collections.Counter(map(_operator, nodes))
    count = size = 0
    locations = set()
    for tensor in (tensor for inner in with_subgraphs(graph) for tensor in inner.initializer):
        count += 1
        size += _tensor_bytes(tensor)
        for entry in tensor.external_data:
            if entry.key == "location":
                locations.add(text_of(entry.value, "the location of external data"))
    producer = [text_of(word, "the producer") for word in (model.producer_name, model.producer_version)]
    return {
        "file": os.fspath(path),
        "bytes": os.path.getsize(path),
        "ir_version": model.ir_version,
        "producer": " ".join(filter(None, producer)),
        "opset_imports": {
            text_of(entry.domain, "an opset import") or "ai.onnx": entry.version
            for entry in model.opset_import
        },
        "inputs": [_value(value) for value in graph.input if value.name in fed],
        "outputs": [_value(value) for value in graph.output],
        "dimensions": [dataclasses.asdict(restriction) for restriction in restrictions(metadata)],
        "specializations": [dataclasses.asdict(entry) for entry in specializations(metadata)],
        "nodes": counts.total(),
        "operators": dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        "initializers": {"count": count, "bytes": size},
        "external_data": sorted(locations),
    }


def _operator(node: onnx.NodeProto) -> str:
    op_type, domain = text_of(node.op_type, "a node"), text_of(node.domain, "a node")
    return op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"


def _value(value: onnx.ValueInfoProto) -> dict[str, object]:
    type_field = value.type.WhichOneof("value")
    name = text_of(value.name, "an input or output")
    if type_field not in ("tensor_type", "sparse_tensor_type"):
        return {"name": name, "type": (type_field or "unknown").removesuffix("_type"), "shape": None}
    tensor = getattr(value.type, type_field)
    shape = [_dimension(d) for d in tensor.shape.dim] if tensor.HasField("shape") else None
    return {
        "name": name,
        "type": (_ELEMENT_TYPES.get(tensor.elem_type) or f"unknown ({tensor.elem_type})"),
        "shape": shape,
    }


def _dimension(dimension: onnx.TensorShapeProto.Dimension) -> int | str | None:
    field = dimension.WhichOneof("value")
    if field == "dim_param":
        return text_of(dimension.dim_param, "a dimension")
    return dimension.dim_value if field else None


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    """Compute the bytes of a tensor from its shape; 0 if the shape is invalid."""
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    if tensor.data_type not in _SIZED_TYPES or min(tensor.dims, default=0) < 0:
        return 0
    return packed_bytes(ir.DataType(tensor.data_type), math.prod(tensor.dims))
