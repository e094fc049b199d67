"""Forgets sizes that a file declares for results whose size depends on their contents.

Exporters write the sizes that such a result had for their example: ``NonZero`` of a vector with two elements
other than 0 is declared as int64[1, 2]. onnxruntime only warns. A converted model must not rely on them.
The same goes for sizes that onnx's inference writes below opset 22 for pooling with `ceil_mode`: they count
a window that begins behind the input.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx_ir import serde

from .....registration.arguments import blocks, every_node
from .inference_substitutes import round_down_windows

_COUNTED_AXES: dict[str, dict[int, int | None]] = {
    "Compress": {0: None},
    "NonMaxSuppression": {0: 0},
    "NonZero": {0: 1},
    "Unique": {0: None, 1: 0, 3: 0},
}
"""By operator and output, the axis whose size depends on contents; None means the attribute `axis`."""


def forget_data_dependent_sizes(graph: ir.Graph) -> None:
    """Remove the sizes declared for data-dependent results, and for values computed from them.

    Ranks and names of dimensions stay; onnx's inference then supplies the sizes that follow from operators.
    """
    dependent: set[ir.Value] = set()
    _collect(graph, dependent)
    for value in dependent:
        producer = value.producer()
        # Of a counted result only one size is unknown, and removed already.
        is_counted = producer is not None and producer.op_type in _COUNTED_AXES
        if value.shape is not None and not is_counted:
            value.shape = ir.Shape([None if isinstance(size, int) else size for size in value.shape])


def _collect(graph: ir.Graph, dependent: set[ir.Value]) -> bool:
    """Add the values that depend on data-dependent sizes; return whether the graph reads or computes one."""
    contains_dependent = False
    for node in graph:
        inner_graphs = blocks(node)
        # All branches are walked, also after one that is dependent.
        dependent_branches = [inner_graph for inner_graph in inner_graphs if _collect(inner_graph, dependent)]
        if node.op_type in _COUNTED_AXES and node.domain in ("", "ai.onnx"):
            contains_dependent = True
            _forget_counted_axes(node, dependent)
        elif _miscounts_windows(node):
            contains_dependent = True
            dependent.update(node.outputs)
        elif dependent_branches or not dependent.isdisjoint(
            value for value in node.inputs if value is not None
        ):
            contains_dependent = True
            dependent.update(node.outputs)
            # A loop may carry any value of its body to the next iteration.
            for inner_graph in inner_graphs:
                dependent.update(inner_graph.inputs)
                dependent.update(output for inner in every_node(inner_graph) for output in inner.outputs)
    return contains_dependent


def _forget_counted_axes(node: ir.Node, dependent: set[ir.Value]) -> None:
    """Remove the size of the counted axis of each result; all sizes if an input has data-dependent sizes."""
    depends_on_other = not dependent.isdisjoint(filter(None, node.inputs))
    attribute = node.attributes.get("axis")
    has_axis = attribute is not None and attribute.type == ir.AttributeType.INT and not attribute.is_ref()
    stated_axis = attribute.as_int() if attribute is not None and has_axis else 0
    for index, axis in _COUNTED_AXES[node.op_type].items():
        if index >= len(node.outputs):
            continue
        value = node.outputs[index]
        dependent.add(value)
        if value.shape is None:
            continue
        sizes: list[int | ir.SymbolicDim | None] = list(value.shape)
        counted = stated_axis if axis is None else axis
        for position, size in enumerate(sizes):
            is_counted = position == counted % len(sizes)
            if isinstance(size, int) and (is_counted or depends_on_other):
                sizes[position] = None
        value.shape = ir.Shape(sizes)


def _miscounts_windows(node: ir.Node) -> bool:
    """Whether the sizes declared for a pooling with `ceil_mode` differ from the number of its windows."""
    declared, value = node.outputs[0].shape if node.outputs else None, node.inputs[0] if node.inputs else None
    if "ceil_mode" not in node.attributes or declared is None or value is None or value.type is None:
        return False
    message = serde.serialize_node(node)
    if value.shape is None or not round_down_windows(message):
        return False
    operand = serde.serialize_value(value).type
    schema = onnx.defs.get_schema(node.op_type, onnx.defs.onnx_opset_version(), "")
    try:
        types = onnx.shape_inference.infer_node_outputs(schema, message, {message.input[0]: operand})
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
        # The check of nodes against their schemas says what is wrong.
        return False
    sizes = types[message.output[0]].tensor_type.shape.dim
    return any(
        dim.HasField("dim_value") and isinstance(size, int) and size != dim.dim_value
        for size, dim in zip(declared, sizes, strict=False)
    )
