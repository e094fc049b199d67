"""Prepares an ONNX model for conversion: inlines functions, infers types and shapes."""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from .....registration import GraphError
from .....registration.arguments import every_node, graphs_of
from .....registration.opsets import MAXIMUM_OPSET
from .....registration.schemas import STATED_DEFAULTS, operator_schema
from ....files.reading import Bounds
from ....files.reading.carried import carried_by, clear_foreign_types, serialize
from ....files.reading.subgraphs import subgraphs, with_subgraphs
from ...inference import InferenceError, infer_shapes
from ..size import limits_of
from .data_dependent_sizes import forget_data_dependent_sizes
from .inference_substitutes import replace_unknown_operators
from .inlining import inline_functions

# Tensors with more bytes are not needed by shape inference.
_LARGE = 4096
_SIZES = 64
"""Integers in a constant that may be sizes, axes or a shape."""
_WEIGHT = 65
"""The fewest elements of a constant that is a weight."""
_NO_CONTENTS = ir.Tensor(np.empty(0, dtype=np.uint8))


def source_of(model: ir.Model, bounds: Bounds) -> ir.Model:
    """Return a copy of a model, prepared by `prepare_source`; the copy shares the weights."""
    source = copy_of(model)
    prepare_source(source, bounds)
    return source


def prepare_source(source: ir.Model, bounds: Bounds) -> None:
    """Prepare a model for conversion, in place.

    Functions are inlined if their opsets are the model's. Weights in Constant nodes become initializers.
    onnx's inference supplies types and shapes that the file does not declare.

    Raises:
        GraphError: the model's opset is unknown, or the model exceeds the bounds after inlining.
    """
    version = opset_of(source)
    if version is not None and not 1 <= version <= onnx.defs.onnx_opset_version():
        raise GraphError(
            f"the model is at opset {version}, but the installed onnx knows operators up to opset "
            f"{onnx.defs.onnx_opset_version()}; opsetta writes up to {MAXIMUM_OPSET}"
        )
    if source.functions and _may_inline(source):
        inline_functions(source)
        limits_of(source, bounds)
    lift_weights(source)
    forget_data_dependent_sizes(source.graph)
    _state_defaults(source)
    _infer(source, bounds)


def lift_weights(model: ir.Model) -> None:
    """Turn Constant nodes that hold weights into initializers of their graph, in place.

    Some programs write all weights so. Constants of fewer elements, such as shapes and axes, stay nodes.
    """
    for graph in graphs_of(model.graph):
        # A constant without a name has no reader, and cannot be an initializer.
        graph.remove(
            [node for node in graph if node.op_type == "Constant" and not node.outputs[0].name], safe=True
        )
    common.LiftConstantsToInitializersPass(size_limit=_WEIGHT)(model)


def _state_defaults(model: ir.Model) -> None:
    """Write the attributes without which onnx infers other shapes, for readers of the written file."""
    for node in every_node(model.graph):
        if node.op_type not in STATED_DEFAULTS or node.domain not in ("", "ai.onnx"):
            continue
        schema = operator_schema(node.op_type, opset_of(model) or 0)
        formals = (
            [] if schema is None else [schema.attributes[name] for name in STATED_DEFAULTS[node.op_type]]
        )
        for formal in formals:
            node.attributes.setdefault(formal.name, ir.Attr(formal.name, formal.type, formal.default))


def check_interface(model: ir.Model) -> None:
    """Refuse a model that computes nothing, or that no runtime can load.

    Raises:
        GraphError: the model has neither outputs nor nodes without outputs (such as a custom Print), or an
            input has no type.
    """
    if not model.graph.outputs and all(node.outputs for node in model.graph):
        raise GraphError("the model has no outputs")
    types = carried_by(model).types
    for value in model.graph.inputs:
        if value.type is None and value.name not in types:
            raise GraphError(f"the model declares no type for its input '{value.name}'")


def copy_of(model: ir.Model) -> ir.Model:
    """Copy a model; the copy shares the weights."""
    try:
        return model.clone()
    except RuntimeError:
        # The IR library does not clone sub-graphs that have initializers.
        return ir.from_proto(ir.to_proto(model))


def opset_of(model: ir.Model) -> int | None:
    """Return the ONNX opset that a model imports; None if it imports none."""
    imports = model.graph.opset_imports
    return imports.get("", imports.get("ai.onnx"))


def _may_inline(model: ir.Model) -> bool:
    imports = model.graph.opset_imports
    nested = any(
        attribute.type == ir.AttributeType.GRAPH
        for function in model.functions.values()
        for node in function
        for attribute in node.attributes.values()
    )
    # onnx-ir loses values of a function that its sub-graphs read.
    return not nested and all(
        imports.get(domain, version) == version
        for function in model.functions.values()
        for domain, version in function.opset_imports.items()
    )


def infer_missing_types(model: ir.Model, bounds: Bounds) -> None:
    """Set the types and shapes that onnx infers, if a result of the graph has none."""
    results = (value for node in model.graph for value in node.outputs if value.name)
    if any(value.type is None or value.shape is None for value in results):
        _infer(model, bounds)


def _infer(model: ir.Model, bounds: Bounds) -> None:
    """Set the types and shapes that onnx infers; do nothing if onnx cannot read the model."""
    try:
        inferred = infer_shapes(
            replace_unknown_operators(copy_constants_inside(message_without_weights(model))),
            data_prop=True,
            bounds=bounds,
        )
    except (InferenceError, RuntimeError, ValueError):
        return
    clear_foreign_types(inferred.graph)
    dims = sum(
        len(info.type.tensor_type.shape.dim)
        for graph in with_subgraphs(inferred.graph)
        for info in graph.value_info
    )
    if dims <= bounds.dimensions:
        _merge(model.graph, inferred.graph)


def _without_contents(tensor: ir.TensorProtocol) -> ir.LazyTensor:
    """Make a tensor with the same element type and shape that is serialized without contents."""
    shape = ir.Shape(tensor.shape.numpy())
    return ir.LazyTensor(lambda: _NO_CONTENTS, dtype=tensor.dtype, shape=shape, name=tensor.name)


def _is_large(tensor: ir.TensorProtocol | None) -> TypeGuard[ir.TensorProtocol]:
    return tensor is not None and (tensor.dtype == ir.DataType.STRING or tensor.nbytes > _LARGE)


def message_without_weights(model: ir.Model) -> onnx.ModelProto:
    """Serialize a model without the contents of its large tensors, in nodes and in graphs."""
    weights = [
        (value, tensor)
        for graph in graphs_of(model.graph)
        for value in graph.initializers.values()
        if _is_large(tensor := value.const_value)
    ]
    bodies = (model.graph, *(function.graph for function in model.functions.values()))
    constants = [
        (node, attribute)
        for body in bodies
        for node in every_node(body)
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref() and _is_large(attribute.value)
    ]
    try:
        for value, tensor in weights:
            value.const_value = _without_contents(tensor)
        for node, attribute in constants:
            node.attributes[attribute.name] = ir.AttrTensor(
                attribute.name, _without_contents(attribute.value)
            )
        return serialize(model)
    finally:
        for value, tensor in weights:
            value.const_value = tensor
        for node, attribute in constants:
            node.attributes[attribute.name] = attribute


def copy_constants_inside(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy the small integer constants that sub-graphs read from the main graph into them, in place.

    onnx's inference does not find the contents of outer constants.
    """
    outer = {
        tensor.name: tensor
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.INT64 and math.prod(tensor.dims) <= _SIZES
    }
    for value in model.graph.input:
        outer.pop(value.name, None)
    for node in model.graph.node:
        for graph in with_subgraphs(*subgraphs(node)):
            read_names = {name for inner in graph.node for name in inner.input if name in outer}
            local_names = {name for inner in graph.node for name in inner.output}
            read_names -= local_names | {item.name for item in (*graph.input, *graph.initializer)}
            graph.initializer.extend(outer[name] for name in sorted(read_names))
    return model


def _merge(graph: ir.Graph, inferred: onnx.GraphProto) -> None:
    types = {info.name: info.type for info in (*inferred.value_info, *inferred.output)}
    for node, inferred_node in zip(graph, inferred.node, strict=True):
        for value in node.outputs:
            inferred_type = types.get(value.name)
            if inferred_type is None or not value.name:
                continue
            if value.type is None:
                value.type = ir.serde.deserialize_type_proto_for_type(inferred_type)
            shape = _shape(inferred_type)
            if shape is not None:
                value.shape = shape
        if not any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values()):
            continue
        blocks = {attribute.name: attribute.g for attribute in inferred_node.attribute}
        for name, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                block = blocks[name]
                for value, info in zip(attribute.as_graph().inputs, block.input, strict=True):
                    value.type = value.type or ir.serde.deserialize_type_proto_for_type(info.type)
                    value.shape = value.shape or _shape(info.type)
                _merge(attribute.as_graph(), block)


def _shape(value_type: onnx.TypeProto) -> ir.Shape | None:
    return ir.serde.deserialize_type_proto_for_shape(value_type)


def load_contents(model: ir.Model) -> ir.Model:
    """Load external tensors of nodes and sub-graphs into memory, in place.

    External data of the main graph is left to the writer of the model, because it may be large.
    """
    for graph in graphs_of(model.graph)[1:]:
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = _load_tensor(value.const_value)
    for node in [*every_node(model.graph), *(n for f in model.functions.values() for n in every_node(f))]:
        for attribute in list(node.attributes.values()):
            if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                node.attributes[attribute.name] = ir.AttrTensor(attribute.name, _load_tensor(attribute.value))
    return model


def _load_tensor(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)
