"""Tensors over memory-mapped files: a loaded model keeps its weights if a file is replaced."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...stored_tensors import tensor_over
from ..names import quoted
from .files import ExternalFiles, Folder


def map_external_data(model: ir.Model, folder: Folder) -> None:
    """Map all external data of a model into memory, so that replacing a file does not change it.

    Args:
        folder: the model's folder.

    Raises:
        ModelFileError: a file is not in the model's folder, cannot be read, or is too short.
    """
    files = ExternalFiles(folder, lambda subject, shown: None)

    def mapped(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if not isinstance(tensor, ir.ExternalTensor):
            return tensor
        shown = f"tensor {quoted(tensor.name)}"
        found: ir.TensorProtocol
        if tensor.nbytes:
            location, offset = str(tensor.location), tensor.offset or 0
            found = files.tensor(location, offset, tensor.dtype, tensor.shape.numpy(), tensor.name, shown)
        else:
            found = tensor_over(np.empty(0, np.uint8), tensor.name, tensor.dtype, tensor.shape.numpy())
        found.doc_string = tensor.doc_string
        found.metadata_props.update(tensor.metadata_props)
        return found

    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = mapped(value.const_value)
    holders = [function.attributes for function in model.functions.values()]
    bodies: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for body in bodies:
        holders += [node.attributes for node in body.all_nodes()]
    for attributes in holders:
        for name, attribute in list(attributes.items()):
            if attribute.value is None:
                continue
            if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                attributes[name] = ir.AttrTensor(name, mapped(attribute.value), attribute.doc_string)
            elif attribute.type == ir.AttributeType.TENSORS:
                held = [mapped(tensor) for tensor in attribute.value]
                if any(one is not other for one, other in zip(held, attribute.value, strict=True)):
                    attributes[name] = ir.AttrTensors(name, held, attribute.doc_string)
