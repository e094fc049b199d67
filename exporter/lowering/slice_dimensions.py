"""Corrects the shape inference of Slice 10 in ONNX files.

onnx gives every unknown dimension of the output the name of the input's dimension, even if it is cut. It
keeps names that the model declares.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import numpy_helper

from ...registration.schemas import misnames_cut_sizes
from ..files.reading.subgraphs import with_subgraphs
from .declarations import with_declarations


def with_named_slices(model: onnx.ModelProto, inferred: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a copy of a model that names the cut sizes of its slices; None if inference misnames none.

    Args:
        model: the model before inference.
        inferred: the model after inference.
    """
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if not misnames_cut_sizes(version):
        return None
    pairs = zip(with_subgraphs(model.graph), with_subgraphs(inferred.graph), strict=True)
    return with_declarations(model, [list(_name_cut_sizes(*pair)) for pair in pairs])


def _name_cut_sizes(stated: onnx.GraphProto, inferred: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield declarations of the outputs of a graph's slices, with new names for sizes that may be cut."""
    stated_infos = {info.name: info for info in (*stated.value_info, *stated.output)}
    infos = {info.name: info for info in (*inferred.value_info, *inferred.output)}
    constants = {tensor.name: tensor for tensor in inferred.initializer}
    constants |= {
        node.output[0]: attribute.t
        for node in inferred.node
        for attribute in node.attribute
        if node.op_type == "Constant" and attribute.name == "value" and node.output
    }
    for node in inferred.node:
        is_slice = node.op_type == "Slice" and node.domain in ("", "ai.onnx")
        if not is_slice or not node.output or node.output[0] not in infos:
            continue
        info = onnx.ValueInfoProto()
        info.CopyFrom(infos[node.output[0]])
        dims = info.type.tensor_type.shape.dim
        stated_dims = (
            list(stated_infos[info.name].type.tensor_type.shape.dim) if info.name in stated_infos else []
        )
        names = {
            axis: f"{info.name}_dim_{axis}"
            for axis in _cut_axes(node, constants, len(dims))
            if not dims[axis].HasField("dim_value")
            and not (axis < len(stated_dims) and stated_dims[axis].dim_param)
        }
        for axis, name in names.items():
            dims[axis].dim_param = name
        if names:
            yield info


def _cut_axes(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto], rank: int) -> list[int]:
    """Return the dimensions that a slice cuts; all dimensions if its axes are unknown."""
    starts, axes = (_integers(constants.get(name)) for name in [*node.input, "", "", "", ""][1:4:2])
    if len(node.input) <= 3 or not node.input[3]:
        axes = None if starts is None else list(range(len(starts)))
    if axes is None:
        return list(range(rank))
    return [axis % rank for axis in axes if -rank <= axis < rank]


def _integers(tensor: onnx.TensorProto | None) -> list[int] | None:
    if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    if tensor.data_type not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
        return None
    result: list[int] | None = numpy_helper.to_array(tensor).reshape(-1).tolist()
    return result
