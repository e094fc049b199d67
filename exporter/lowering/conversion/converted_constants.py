"""Converts constants: initializers, Constant nodes, and inputs that old IR versions add for initializers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from ....registration import GraphContext
from ....registration.arguments import blocks, every_node
from ....registration.inference.folding import MAXIMUM_ELEMENTS
from ....registration.opsets import ir_version
from ..driver import FREE_INITIALIZERS, constant_node, may_be_constant_node

_FOLDED_TYPES = frozenset(
    {
        DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BOOL,
        DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64,
        DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64,
    }
)  # fmt: skip


def initializer(value: Value, name: str) -> Value:
    """Copy an initializer under a name; the data is shared."""
    tensor = value.const_value
    assert tensor is not None
    if name != value.name:
        # A value renames its tensor: make a new tensor, so that the source's keeps its name.
        tensor = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
    shape = value.shape if value.shape is not None else ir.Shape(tensor.shape.numpy())
    tensor_type = value.type if value.type is not None else ir.TensorType(tensor.dtype)
    return ir.Value(name=name, type=tensor_type, shape=shape, const_value=tensor)


def declare(
    source: ir.Model, graph: ir.Graph, values: MutableMapping[Value, Value]
) -> dict[Value, ir.TensorProtocol]:
    """Add the inputs and initializers of the source to the new graph.

    An input with a default is not a constant, because a caller may pass another value. In IR versions that
    require an input for every initializer, it is a constant.

    Returns:
        The defaults of the inputs that are not constants; the caller restores them at the end.
    """
    replaceable = source.ir_version >= FREE_INITIALIZERS
    hidden: dict[Value, ir.TensorProtocol] = {}
    for value in source.graph.inputs:
        if value.is_initializer() and not replaceable:
            continue
        copy = ir.Value(
            name=value.name, type=value.type, shape=value.shape, metadata_props=dict(value.metadata_props)
        )
        copy.doc_string = value.doc_string
        graph.inputs.append(copy)
        values[value] = copy
    for value in source.graph.initializers.values():
        copy = initializer(value, str(value.name))
        if value in values:
            hidden[values[value]] = copy.const_value  # type: ignore[assignment]
            values[value].const_value = copy.const_value
            graph.initializers.add(values[value])
            continue
        copy.metadata_props.update(value.metadata_props)
        graph.initializers.add(copy)
        values[value] = copy
    for value in hidden:
        value.const_value = None
    return hidden


def constant_of(g: GraphContext, op_type: str, attributes: Mapping[str, ir.Attr]) -> Value | None:
    """Return the value of a Constant node as a constant of the graph; None for any other node."""
    if op_type != "Constant" or len(attributes) != 1:
        return None
    [(name, attribute)] = attributes.items()
    content = attribute.value
    if name == "value":
        stored = attribute.as_tensor()
        if stored.dtype in _FOLDED_TYPES and stored.size <= MAXIMUM_ELEMENTS:
            return g.constant(stored.numpy())
        result = g.op("Constant", value=stored)
        result.const_value, result.shape = stored, ir.Shape(stored.shape.numpy())
        return result
    if name in ("value_int", "value_ints"):
        return g.constant(np.array(content, dtype=np.int64))
    if name in ("value_float", "value_floats"):
        return g.constant(np.array(content, dtype=np.float32))
    if name in ("value_string", "value_strings"):
        strings = [content] if name == "value_string" else content
        raw = [item.encode() if isinstance(item, str) else item for item in strings]
        tensor = ir.StringTensor(raw, shape=ir.Shape([] if name == "value_string" else [len(raw)]))
        result = g.op("Constant", value=tensor)
        result.const_value, result.shape = tensor, tensor.shape
        return result
    return None


def owner(graph: ir.Graph, main: ir.Graph, opset: int) -> ir.Graph:
    """Return the graph that holds a sub-graph's initializers.

    It is the main graph for old IR versions, in which initializers must be inputs: a branch has no inputs.
    """
    return graph if ir_version(opset) >= FREE_INITIALIZERS else main


def localize(node: ir.Node, g: GraphContext, moved: Collection[Value]) -> None:
    """Copy outer constants into the sub-graphs of a custom operator, whose runtime may not see outer ones.

    Args:
        moved: initializers of sub-graphs that the main graph holds; see `owner`.

    Raises:
        UnsupportedError: the opset has no constants in sub-graphs of an element type or for a number.
    """
    for graph in blocks(node):
        copies: dict[Value, Value] = {}
        for inner in every_node(graph):
            for position, value in enumerate(inner.inputs):
                if value is None or not (g.is_foldable(value) or value in moved):
                    continue
                if value not in copies:
                    copies[value] = _local(graph, value, g)
                inner.replace_input_with(position, copies[value])


def _local(graph: ir.Graph, value: Value, g: GraphContext) -> Value:
    """Copy a constant into a sub-graph: as an initializer, or as nodes if initializers must be inputs."""
    content = value.const_value.numpy()  # type: ignore[union-attr]
    name = f"{value.name}_local"
    if ir_version(g.opset) >= FREE_INITIALIZERS:
        copy = ir.Value(name=name, type=value.type, shape=value.shape, const_value=ir.Tensor(content))
        graph.initializers.add(copy)
        return copy
    if may_be_constant_node(value, g.opset):
        nodes = [constant_node(name, ir.Tensor(content))]
    else:
        wide = content.astype(np.float64) if content.dtype.kind in "biu" else None
        if wide is None or not np.array_equal(wide.astype(content.dtype), content):
            raise g.refuse(
                "a sub-graph cannot have initializers, and Constant does not support "
                f"{DataType.from_numpy(content.dtype).name}",
                first_opset=9,
            )
        nodes = [constant_node(f"{name}_double", ir.Tensor(wide))]
        to = ir.AttrInt64("to", int(DataType.from_numpy(content.dtype)))
        nodes.append(ir.Node("", "Cast", nodes[0].outputs, [to], name=f"{name}/Cast", num_outputs=1))
    copy = nodes[-1].outputs[0]
    copy.name, copy.type, copy.shape = name, value.type, value.shape
    first = graph[0] if len(graph) else None
    for node in nodes:
        graph.insert_before(first, node) if first is not None else graph.append(node)
    return copy
