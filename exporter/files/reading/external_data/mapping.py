"""Tensors over memory-mapped files: a loaded model keeps its weights if a file is replaced."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .....registration.arguments import every_node
from ...weights.stored_tensors import tensor_over
from ..names import quoted
from .files import ExternalFiles, Folder

_TENSOR_TYPES = (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS)


def map_external_data(model: ir.Model, folder: Folder) -> None:
    """Map all external data of a model into memory, so that replacing a file does not change it.

    Args:
        folder: the model's folder.

    Raises:
        ModelFileError: a file is not in the model's folder, cannot be read, or is too short.
    """
    files = ExternalFiles(folder, lambda subject, title: None)

    def map_tensor(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if not isinstance(tensor, ir.ExternalTensor):
            return tensor
        title = f"tensor {quoted(tensor.name)}"
        file_tensor: ir.TensorProtocol
        if tensor.nbytes:
            location, offset = str(tensor.location), tensor.offset or 0
            file_tensor = files.tensor(
                location, offset, tensor.dtype, tensor.shape.numpy(), tensor.name, title
            )
        else:
            file_tensor = tensor_over(np.empty(0, np.uint8), tensor.name, tensor.dtype, tensor.shape.numpy())
        file_tensor.doc_string = tensor.doc_string
        file_tensor.metadata_props.update(tensor.metadata_props)
        return file_tensor

    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = map_tensor(value.const_value)
    attribute_tables = [function.attributes for function in model.functions.values()]
    bodies: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for body in bodies:
        attribute_tables += [node.attributes for node in every_node(body) if node.attributes.data]
    for attributes in attribute_tables:
        tensors = {
            name: attribute
            for name, attribute in attributes.data.items()
            if attribute.type in _TENSOR_TYPES and attribute.value is not None
        }
        for name, attribute in tensors.items():
            if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                attributes[name] = ir.AttrTensor(name, map_tensor(attribute.value), attribute.doc_string)
            elif attribute.type == ir.AttributeType.TENSORS:
                mapped_tensors = [map_tensor(tensor) for tensor in attribute.value]
                if any(
                    mapped_tensor is not original
                    for mapped_tensor, original in zip(mapped_tensors, attribute.value, strict=True)
                ):
                    attributes[name] = ir.AttrTensors(name, mapped_tensors, attribute.doc_string)
