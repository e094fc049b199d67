"""Keeps the parts of a model file that onnx-ir cannot represent, and writes them back.

These are map and opaque types of the main graph's values, its sparse initializers, training information, and
the packed forms of weights that onnxruntime keeps beside them.
In memory, a value of such a type has no type, and a sparse initializer is an input.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import onnx
import onnx_ir as ir

from ....registration import ModelFileError
from ....registration.arguments import every_node
from ....registration.schemas import operator_schema
from .checks.sparse_tensors import check_sparse
from .external_data.files import ExternalFiles
from .external_data.prepacked import PackedEntries
from .names import quoted
from .subgraphs import with_subgraphs

_KEY = "carried"
_FOREIGN = ("map_type", "opaque_type")
_ELEMENTS = {"sequence_type": "elem_type", "optional_type": "elem_type", "map_type": "value_type"}
_MAXIMUM_DEPTH = 32
"""Bound on the nesting of types."""


@dataclasses.dataclass
class Carried:
    """The parts removed from a message.

    Attributes:
        types: the types of values, by name.
        sparse: the sparse initializers, in order.
        training: the training information, in order.
        opset: the ONNX opset of the training information.
        packed: packed forms of weights, which are valid for this graph and one environment only.
    """

    types: dict[str, onnx.TypeProto] = dataclasses.field(default_factory=dict)
    sparse: list[onnx.SparseTensorProto] = dataclasses.field(default_factory=list)
    training: list[onnx.TrainingInfoProto] = dataclasses.field(default_factory=list)
    opset: int | None = None
    packed: PackedEntries = dataclasses.field(default_factory=dict)

    @property
    def inputs(self) -> set[str]:
        """The names of the inputs that replace sparse initializers."""
        return {tensor.values.name for tensor in self.sparse}


def take_out(proto: onnx.ModelProto, files: ExternalFiles) -> Carried:
    """Remove from a message the parts that onnx-ir cannot represent, and return them.

    Raises:
        ModelFileError: a sparse initializer is invalid.
    """
    carried = Carried()
    graph = proto.graph
    for info in (*graph.input, *graph.output, *graph.value_info):
        if _is_foreign(info.type, quoted(info.name)):
            stated_type = carried.types.setdefault(info.name, onnx.TypeProto())
            if stated_type.WhichOneof("value") is not None and stated_type != info.type:
                raise ModelFileError(f"value {quoted(info.name)} is declared with two types")
            stated_type.CopyFrom(info.type)
            info.ClearField("type")
    declared = {info.name for info in (*graph.input, *graph.initializer)}
    for tensor in graph.sparse_initializer:
        name = tensor.values.name
        title = f"sparse initializer {quoted(name)}"
        if not name:
            raise ModelFileError("a sparse initializer has no name")
        check_sparse(tensor, files, title)
        if name in declared:
            raise ModelFileError(f"{title} has the name of an input or of another initializer")
        declared.add(name)
        info = graph.input.add(name=name)
        info.type.tensor_type.elem_type = tensor.values.data_type
        for size in tensor.dims:
            info.type.tensor_type.shape.dim.add(dim_value=size)
        carried.sparse.append(copy.deepcopy(tensor))
    del graph.sparse_initializer[:]
    carried.training.extend(copy.deepcopy(list(proto.training_info)))
    for tensor in _tensors(carried.training):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ModelFileError(
                f"training_info has the external tensor {quoted(tensor.name)}, which is not supported"
            )
    del proto.training_info[:]
    imports = {entry.domain: entry.version for entry in proto.opset_import}
    carried.opset = imports.get("", imports.get("ai.onnx"))
    return carried


def clear_foreign_types(graph: onnx.GraphProto) -> None:
    """Remove types that onnx-ir does not support from a graph and its sub-graphs."""
    for inner in with_subgraphs(graph):
        for info in (*inner.input, *inner.output, *inner.value_info):
            if _is_foreign(info.type, quoted(info.name)):
                info.ClearField("type")


def attach(model: ir.Model, carried: Carried) -> None:
    """Attach the removed parts of a message to its model."""
    if carried.types or carried.sparse or carried.training or carried.packed:
        model.meta[_KEY] = carried


def carried_by(model: ir.Model) -> Carried:
    """The parts attached to a model."""
    return model.meta.get(_KEY) or Carried()


def serialize(model: ir.Model) -> onnx.ModelProto:
    """The message of a model, without the attached parts.

    Raises:
        ModelFileError: a value has a size that the format cannot hold: a product of large declared sizes.
    """
    try:
        return ir.to_proto(model)
    except ir.serde.SerdeError:
        for node in every_node(model.graph):
            for value in node.outputs:
                if any(isinstance(size, int) and size >= 2**63 for size in value.shape or ()):
                    raise ModelFileError(
                        f"the result {quoted(value.name or '')} of {node.op_type} has the shape "
                        f"{value.shape}, but ONNX has no sizes from 2**63 on: the sizes of the model's "
                        "inputs are too large"
                    ) from None
        raise


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The message of a model, with the attached parts put back."""
    proto = serialize(model)
    carried = carried_by(model)
    graph = proto.graph
    sparse_names = carried.inputs
    remaining_inputs = [info for info in graph.input if info.name not in sparse_names]
    # Rewriting an unchanged list would copy all declarations.
    if len(remaining_inputs) < len(graph.input):
        del graph.input[:]
        graph.input.extend(remaining_inputs)
    graph.sparse_initializer.extend(carried.sparse)
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.name in carried.types:
            info.type.CopyFrom(carried.types[info.name])
    proto.training_info.extend(carried.training)
    return proto


def check_training(model: ir.Model, opset: int) -> None:
    """Refuse to write training information at an opset that changes the meaning of its operators.

    Raises:
        ModelFileError: it has an operator whose version is not the same at both opsets.
    """
    carried = carried_by(model)
    for node in (node for graph in _graphs(carried.training) for node in graph.node):
        if node.domain not in ("", "ai.onnx") or carried.opset is None:
            continue
        schemas = [operator_schema(node.op_type, version) for version in (carried.opset, opset)]
        versions = [None if schema is None else schema.since_version for schema in schemas]
        # An operator without a schema at both opsets is unknown to onnx, and stays as it is.
        if versions[0] != versions[1]:
            raise ModelFileError(
                f"the training_info of the model is written for opset {carried.opset}, and its operator "
                f"{quoted(node.op_type)} has another definition at opset {opset}: remove it from the file "
                "first"
            )


def _graphs(training: list[onnx.TrainingInfoProto]) -> Iterator[onnx.GraphProto]:
    return with_subgraphs(*(graph for info in training for graph in (info.initialization, info.algorithm)))


def _tensors(training: list[onnx.TrainingInfoProto]) -> Iterator[onnx.TensorProto]:
    for graph in _graphs(training):
        yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                yield from ([attribute.t] if attribute.HasField("t") else attribute.tensors)


def _is_foreign(value_type: onnx.TypeProto, title: str) -> bool:
    """Whether a type is a map or opaque, or contains one."""
    for _ in range(_MAXIMUM_DEPTH):
        field = value_type.WhichOneof("value")
        if field in _FOREIGN:
            return True
        if field not in _ELEMENTS:
            return False
        value_type = getattr(getattr(value_type, field), _ELEMENTS[field])
    raise ModelFileError(f"{title} is of a type nested more than {_MAXIMUM_DEPTH} deep")
