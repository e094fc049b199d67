"""Values that are parts of other values' memory: pieces of an operand, and the operands of a Concat.

The parts of a tensor along an axis are contiguous if all dimensions before the axis have the size 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping

import onnx_ir as ir
from onnx_ir.convenience import get_const_tensor

from ..onnx_graph.inplace import memory_sharing


@dataclasses.dataclass(frozen=True)
class PartRules:
    """What decides whether values are parts of others.

    Attributes:
        bytes_of: the bytes of a value; None if they are not a number.
        alignment: what the offset of each part is a multiple of, in bytes.
        protected: values whose memory no node may overwrite.
        next_values: outputs by the inputs that take them in the next run; another joined value must not be in
            the memory of such an input, which the caller writes.
        copying: nodes whose results or operands have memory of their own.
    """

    bytes_of: Callable[[ir.Value], int | None]
    alignment: int
    protected: Collection[ir.Value] = ()
    next_values: Mapping[ir.Value, ir.Value] = dataclasses.field(default_factory=dict)
    copying: Collection[ir.Node] = ()

    def pieces(self, node: ir.Node) -> list[int] | None:
        """The byte offsets of the outputs in input 0, if they are contiguous pieces of it."""
        if node in self.copying or node.domain not in memory_sharing.STANDARD_DOMAINS:
            return None
        counts = _piece_elements(node)
        source = node.inputs[0] if node.inputs else None
        if counts is None or source is None or not has_whole_bytes(source) or not self.bytes_of(source):
            return None
        assert source.dtype is not None
        return self._check_alignment([count * source.dtype.bitwidth // 8 for count in counts])

    def joints(self, node: ir.Node) -> list[int] | None:
        """The byte offsets of the inputs in output 0, if it is their bytes in order."""
        if node in self.copying or node.domain not in memory_sharing.STANDARD_DOMAINS:
            return None
        if node.op_type != "Concat" or len(node.inputs) < 2:
            return None
        shape = sizes_of(node.outputs[0])
        axis = node.attributes.get_int("axis", 0)
        if shape is None or not shape or math.prod(shape[: axis % len(shape)]) != 1:
            return None
        offsets = [0]
        for value in node.inputs:
            size = None if value is None else self.bytes_of(value)
            if not size:
                return None
            offsets.append(offsets[-1] + size)
        return self._check_alignment(offsets[:-1])

    def _check_alignment(self, offsets: list[int]) -> list[int] | None:
        return None if any(offset % self.alignment for offset in offsets) else offsets


def sizes_of(value: ir.Value | None) -> list[int] | None:
    """The sizes of a value; None if one is not a number."""
    if value is None or value.shape is None:
        return None
    sizes = [dim for dim in value.shape if isinstance(dim, int)]
    return sizes if len(sizes) == len(value.shape) else None


def has_whole_bytes(value: ir.Value) -> bool:
    """Whether each element of a value is a number of one or more bytes."""
    dtype = value.dtype
    return (
        dtype is not None and dtype not in (ir.DataType.UNDEFINED, ir.DataType.STRING) and dtype.bitwidth >= 8
    )


def constant_integers(value: ir.Value | None) -> list[int] | None:
    """The integers of a constant, flat; None if the value is not one."""
    tensor = None if value is None else get_const_tensor(value)
    if tensor is None or tensor.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return None
    integers: list[int] = tensor.numpy().reshape(-1).tolist()
    return integers


def _piece_elements(node: ir.Node) -> list[int] | None:
    """The first element of each output in input 0, if the outputs are contiguous pieces of it."""
    shape = sizes_of(node.inputs[0]) if node.inputs else None
    if shape is None or any(not value.name for value in node.outputs):
        return None
    if node.op_type == "Slice":
        cut = _slice_of(node, shape)
    elif node.op_type == "Gather":
        cut = _gather_index(node, shape)
    elif node.op_type == "Split":
        cut = _split_of(node, shape)
    else:
        return None
    if cut is None:
        return None
    axis, begins = cut
    if math.prod(shape[:axis]) != 1:
        return None
    return [begin * math.prod(shape[axis + 1 :]) for begin in begins]


def _slice_of(node: ir.Node, shape: list[int]) -> tuple[int, list[int]] | None:
    """The only axis that a Slice shortens, and where it begins there."""
    starts: list[int]
    ends: list[int]
    if "starts" in node.attributes:
        starts, ends = ([*node.attributes.get_ints(name, [])] for name in ("starts", "ends"))
        axes, steps = [*node.attributes.get_ints("axes", range(len(starts)))], [1] * len(starts)
    else:
        operands = [constant_integers(value) for value in node.inputs[1:]]
        if len(operands) < 2 or operands[0] is None or operands[1] is None:
            return None
        starts, ends = operands[0], operands[1]
        present = [value is not None for value in node.inputs[3:]]
        if any(flag and operands[2 + number] is None for number, flag in enumerate(present)):
            return None
        axes = operands[2] if len(operands) > 2 and operands[2] is not None else list(range(len(starts)))
        steps = operands[3] if len(operands) > 3 and operands[3] is not None else [1] * len(starts)
    shortened = []
    for begin, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = shape[axis % len(shape)]
        first, last = (min(max(edge + size if edge < 0 else edge, 0), size) for edge in (begin, end))
        if step != 1 or last <= first:
            return None
        if (first, last) != (0, size):
            shortened.append((axis % len(shape), [first]))
    if not shortened:
        return 0, [0]
    return shortened[0] if len(shortened) == 1 else None


def _gather_index(node: ir.Node, shape: list[int]) -> tuple[int, list[int]] | None:
    """The axis and the index of a Gather of one index."""
    indices = constant_integers(node.inputs[1])
    axis = node.attributes.get_int("axis", 0) % max(1, len(shape))
    if indices is None or len(indices) != 1 or not -shape[axis] <= indices[0] < shape[axis]:
        return None
    return axis, [indices[0] % shape[axis]]


def _split_of(node: ir.Node, shape: list[int]) -> tuple[int, list[int]] | None:
    """The axis of a Split, and the positions on it where its outputs begin."""
    axis = node.attributes.get_int("axis", 0) % max(1, len(shape))
    begins = [0]
    for value in node.outputs:
        sizes = sizes_of(value)
        if sizes is None:
            return None
        begins.append(begins[-1] + sizes[axis])
    return axis, begins[:-1]


def reserved_parts(
    nodes: Collection[ir.Node], rules: PartRules, origin_of: Callable[[ir.Value], ir.Value | None]
) -> Mapping[ir.Value, tuple[ir.Value, int]]:
    """For each value that a Concat joins, the value that has its memory, and the offset in bytes there.

    Args:
        origin_of: the value that brings new memory for a value; None if that memory has a fixed place.
    """
    homes: dict[ir.Value, tuple[ir.Value, int]] = {}
    # The last Concat has most operands: those of earlier ones are often its first.
    for node in reversed([*nodes]):
        offsets = rules.joints(node)
        if offsets is None:
            continue
        origins = [None if value is None else origin_of(value) for value in node.inputs]
        if any(origin is None or origin in homes for origin in origins) or len(set(origins)) < len(origins):
            continue
        owner, base = homes.get(node.outputs[0], (node.outputs[0], 0))
        homes.update(
            (origin, (owner, base + offset))
            for origin, offset in zip(origins, offsets, strict=True)
            if origin is not None
        )
    return homes
