"""An ONNX model made ready for conversion: functions inlined, types and shapes inferred."""

from __future__ import annotations

import contextlib
import io

import onnx
import onnx.shape_inference
import onnx_ir as ir
from onnx_ir.passes import common

from ...registration import GraphError
from ...registration.opsets import MAXIMUM_OPSET
from ..reading.carried import clear_foreign_types

# Bytes of an initializer that shape inference has no use for.
_LARGE = 4096


def source_of(model: ir.Model) -> ir.Model:
    """A copy of a model as conversion reads it. The weights are shared with the model.

    Functions of the model stand inlined where their opsets are the model's own; the type and shape of
    every value are what onnx's inference tells, where the file does not say them.

    Raises:
        GraphError: the model imports no opset that is known.
    """
    source = copy_of(model)
    version = opset_of(source)
    if version is not None and not 1 <= version <= onnx.defs.onnx_opset_version():
        raise GraphError(
            f"the model is at opset {version}, and operators are known up to opset "
            f"{onnx.defs.onnx_opset_version()}; opsetta writes up to {MAXIMUM_OPSET}"
        )
    if source.functions and _may_inline(source):
        with contextlib.redirect_stdout(io.StringIO()):
            common.InlinePass()(source)
    _infer(source)
    return source


def copy_of(model: ir.Model) -> ir.Model:
    """A copy of a model, with the same weights."""
    try:
        return model.clone()
    except RuntimeError:
        # The IR library does not clone sub-graphs that have initializers.
        return ir.from_proto(ir.to_proto(model))


def opset_of(model: ir.Model) -> int | None:
    """The opset of ONNX's own operators that a model imports; None where it imports none."""
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
    # The IR library loses what a sub-graph reads of the function around it.
    return not nested and all(
        imports.get(domain, version) == version
        for function in model.functions.values()
        for domain, version in function.opset_imports.items()
    )


def _infer(model: ir.Model) -> None:
    """Give values the types and shapes that onnx infers; a model that it cannot read stays as it is."""
    proto = _without_weights(model)
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return
    clear_foreign_types(inferred.graph)
    _merge(model.graph, ir.from_proto(inferred).graph)


def _without_weights(model: ir.Model) -> onnx.ModelProto:
    """The model's message with inputs in the place of its large initializers."""
    copy = copy_of(model)
    graph = copy.graph
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None and tensor.nbytes > _LARGE:
            value.shape, value.type = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
            del graph.initializers[name]
            value.const_value = None
            if not value.is_graph_input():
                graph.inputs.append(value)
    return ir.to_proto(copy)


def _merge(graph: ir.Graph, inferred: ir.Graph) -> None:
    found = {value.name: value for node in inferred for value in node.outputs}
    for node, other in zip(graph, inferred, strict=True):
        for value in node.outputs:
            known = found.get(value.name)
            if known is None or not value.name:
                continue
            if value.type is None:
                value.type = known.type
            if known.shape is not None:
                value.shape = known.shape
        for name, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                block = other.attributes[name].as_graph()
                for value, known in zip(attribute.as_graph().inputs, block.inputs, strict=True):
                    value.type = value.type or known.type
                    value.shape = value.shape or known.shape
                _merge(attribute.as_graph(), block)
