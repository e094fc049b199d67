"""The nodes of a model in the form that the runtime in C takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import onnx_ir as ir
from onnx_ir.convenience import get_const_tensor

from ....registration.schemas import operator_schema

STRIDED = "StridedCopy"
"""The operator of the runtime that reads elements at fixed steps."""


@dataclasses.dataclass(frozen=True)
class DeviceNode:
    """A node of the runtime: an ONNX node, or a form of it that the runtime takes."""

    name: str
    domain: str
    op_type: str
    inputs: Sequence[ir.Value | None]
    outputs: Sequence[ir.Value]
    attributes: Mapping[str, ir.Attr]


def device_node(node: ir.Node, opset: int) -> DeviceNode:
    """The form of a node: without attributes that equal ONNX's defaults, and with paddings as numbers.

    Transpose, Expand, Slice, DepthToSpace and SpaceToDepth become copies at fixed steps.
    """
    if node.domain not in ("", "ai.onnx"):
        return DeviceNode(
            node.name or "", node.domain, node.op_type, node.inputs, node.outputs, node.attributes
        )
    strided = _strided_form(node)
    if strided is not None:
        return strided
    schema = operator_schema(node.op_type, opset)
    attributes = {
        name: attribute
        for name, attribute in node.attributes.items()
        if schema is None
        or attribute.is_ref()
        or name not in schema.attributes
        or not schema.attributes[name].is_default(attribute.value)
    }
    padding = attributes.pop("auto_pad", None)
    if padding is not None and padding.as_string() != "VALID":
        pads = _pads(node, padding.as_string())
        # Without sizes the table refuses the attribute.
        attributes |= {"auto_pad": padding} if pads is None else {"pads": ir.AttrInt64s("pads", pads)}
    elif padding is not None:
        attributes.pop("pads", None)
    inputs = list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    return DeviceNode(node.name or "", "", node.op_type, inputs, node.outputs, attributes)


def _sizes(value: ir.Value | None) -> list[int] | None:
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return [size for size in value.shape if isinstance(size, int)]


def _pads(node: ir.Node, padding: str) -> list[int] | None:
    """The paddings of `SAME_UPPER` and `SAME_LOWER`, which divide what is needed between both ends."""
    inputs, outputs = _sizes(node.inputs[0]), _sizes(node.outputs[0])
    weight = _sizes(node.inputs[1]) if len(node.inputs) > 1 else None
    if inputs is None or outputs is None or padding not in ("SAME_UPPER", "SAME_LOWER"):
        return None
    kernel = node.attributes.get_ints("kernel_shape") or (weight or [])[2:]
    default = [1] * len(kernel)
    strides, dilations = (
        node.attributes.get_ints(name, default) or default for name in ("strides", "dilations")
    )
    if node.op_type == "ConvTranspose":
        # There the result is the padded side.
        inputs, outputs = outputs, inputs
    begins, ends = [], []
    for index, (size, result) in enumerate(zip(inputs[2:], outputs[2:], strict=True)):
        extent = (result - 1) * strides[index] + dilations[index] * (kernel[index] - 1) + 1
        total = max(0, extent - size)
        first = total // 2 if padding == "SAME_UPPER" else total - total // 2
        begins.append(first)
        ends.append(total - first)
    return begins + ends


def _strided_form(node: ir.Node) -> DeviceNode | None:
    """The form of an operator that reads elements at fixed steps; None for others, and without sizes."""
    build = STRIDED_FORMS.get(node.op_type)
    source, result = node.inputs[0] if node.inputs else None, node.outputs[0] if node.outputs else None
    before, after = _sizes(source), _sizes(result)
    if build is None or before is None or after is None:
        return None
    strides = [math.prod(before[axis + 1 :]) for axis in range(len(before))]
    copy = build(node, before, after, strides)
    if copy is None:
        return None
    start, shape, steps = copy
    attributes = {
        "start": ir.AttrInt64("start", start),
        "shape": ir.AttrInt64s("shape", shape),
        "steps": ir.AttrInt64s("steps", steps),
    }
    return DeviceNode(node.name or "", "", STRIDED, [source], node.outputs, attributes)


_Copy = tuple[int, list[int], list[int]]
"""The first element, and sizes and steps of each axis of the result."""


def _transpose(node: ir.Node, before: list[int], after: list[int], strides: list[int]) -> _Copy:
    order = node.attributes.get_ints("perm") or list(reversed(range(len(before))))
    return 0, after, [strides[axis] for axis in order]


def _expand(node: ir.Node, before: list[int], after: list[int], strides: list[int]) -> _Copy:
    missing = len(after) - len(before)
    return (
        0,
        after,
        [0] * missing + [0 if size == 1 else step for size, step in zip(before, strides, strict=True)],
    )


def _slice(node: ir.Node, before: list[int], after: list[int], strides: list[int]) -> _Copy | None:
    constants = [None if value is None else get_const_tensor(value) for value in node.inputs[1:]]
    if any(
        value is not None and tensor is None for value, tensor in zip(node.inputs[1:], constants, strict=True)
    ):
        return None
    starts, _, axes, steps = (
        None if tensor is None else tensor.numpy().tolist() for tensor in (*constants, None, None)[:4]
    )
    if starts is None:
        return None
    first, result = 0, list(strides)
    for index, start in enumerate(starts):
        axis, step = (axes[index] if axes else index) % len(before), steps[index] if steps else 1
        size = before[axis]
        start += size if start < 0 else 0
        first += min(max(start, 0), size - 1 if step < 0 else size) * strides[axis]
        result[axis] = strides[axis] * step
    return first if math.prod(after) else 0, after, result


def _depth_to_space(node: ir.Node, before: list[int], after: list[int], strides: list[int]) -> _Copy:
    block, channels = node.attributes.get_int("blocksize", 1) or 1, after[1]
    batch, depth, row, column = strides
    # The channel has the position in the block before or after the channel of the result.
    is_inner = node.attributes.get_string("mode", "DCR") == "CRD"
    channel = depth * block * block if is_inner else depth
    inner = depth if is_inner else depth * channels
    shape = [before[0], channels, before[2], block, before[3], block]
    return 0, shape, [batch, channel, row, inner * block, column, inner]


def _space_to_depth(node: ir.Node, before: list[int], after: list[int], strides: list[int]) -> _Copy:
    block = node.attributes.get_int("blocksize", 1) or 1
    batch, depth, row, column = strides
    sizes, steps = [block, block, before[1]], [row, column, depth]
    if node.attributes.get_string("mode", "DCR") == "CRD":
        sizes, steps = [before[1], block, block], [depth, row, column]
    return 0, [before[0], *sizes, *after[2:]], [batch, *steps, row * block, column * block]


STRIDED_FORMS = {
    "Transpose": _transpose,
    "Expand": _expand,
    "Slice": _slice,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
"""How each operator becomes a copy at fixed steps."""
