"""Emits operators that move elements: as copies at fixed steps, or as copies that indices select."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from .....registration import PlanError
from .device_nodes import (
    DeviceNode,
    Nodes,
    OnnxNode,
    Operand,
    Scratch,
    Strided,
    binary,
    broadcast_steps,
    constant_like,
    copy,
    copy_part,
    strided_binary,
    strides_of,
    walk_numbers,
)

_REDUCTIONS = ("none", "add", "mul", "max", "min")


def _copy(node: OnnxNode) -> Nodes:
    count = [math.prod(node.shape(node.output))]
    return copy(node.source(), node.output, count, [1])


def _transpose(node: OnnxNode) -> Nodes:
    before, after = node.shape(node.source()), node.shape(node.output)
    order = node.integers("perm", list(reversed(range(len(before)))))
    strides = strides_of(before)
    return copy(node.source(), node.output, after, [strides[axis] for axis in order])


def _expand(node: OnnxNode) -> Nodes:
    after = node.shape(node.output)
    return copy(node.source(), node.output, after, broadcast_steps(node.shape(node.source()), after))


def _known_result(node: OnnxNode) -> Nodes:
    """Emit ConstantOfShape, Shape or Size, whose results are constants because all sizes are known."""
    after = node.shape(node.output)
    if node.op_type == "ConstantOfShape":
        value = node.attribute("value")
        number = value.numpy().reshape(-1)[0] if isinstance(value, ir.TensorProtocol) else 0.0
        return copy(constant_like(node.output, number), node.output, after, [0] * len(after))
    sizes = node.shape(node.source())
    if node.op_type == "Size":
        sizes = [math.prod(sizes)]
    else:
        sizes = sizes[node.integer("start") : node.integer("end", len(sizes))]
    return copy(np.array(sizes, np.int64), node.output, [len(sizes)], [1])


def _slice(node: OnnxNode) -> Nodes:
    before, after = node.shape(node.source()), node.shape(node.output)
    strides = strides_of(before)
    starts, axes, steps = (node.constant(index) for index in (1, 3, 4))
    assert starts is not None
    first, result = 0, list(strides)
    for index, start in enumerate(starts.tolist()):
        axis = int(axes[index]) % len(before) if axes is not None else index
        step, size = int(steps[index]) if steps is not None else 1, before[axis]
        start += size if start < 0 else 0
        first += min(max(start, 0), size - 1 if step < 0 else size) * strides[axis]
        result[axis] = strides[axis] * step
    return copy(node.source(), node.output, after, result, first)


def _depth_to_space(node: OnnxNode) -> Nodes:
    before, channels = node.shape(node.source()), node.shape(node.output)[1]
    block = node.integer("blocksize", 1)
    batch, depth, row, column = strides_of(before)
    # In a channel's number, the position in the block comes before (DCR) or after (CRD) the result's channel.
    is_inner = node.text("mode") == "CRD"
    channel = depth * block * block if is_inner else depth
    inner = depth if is_inner else depth * channels
    shape = [before[0], channels, before[2], block, before[3], block]
    return copy(node.source(), node.output, shape, [batch, channel, row, inner * block, column, inner])


def _space_to_depth(node: OnnxNode) -> Nodes:
    before, after = node.shape(node.source()), node.shape(node.output)
    block = node.integer("blocksize", 1)
    batch, depth, row, column = strides_of(before)
    sizes, steps = [block, block, before[1]], [row, column, depth]
    if node.attribute("mode") is not None and node.text("mode") == "CRD":
        sizes, steps = [before[1], block, block], [depth, row, column]
    shape = [before[0], *sizes, *after[2:]]
    return copy(node.source(), node.output, shape, [batch, *steps, row * block, column * block])


def _tile(node: OnnxNode) -> Nodes:
    before, after = node.shape(node.source()), node.shape(node.output)
    shape, steps = [], []
    for size, result, step in zip(before, after, strides_of(before), strict=True):
        shape += [result // size if size else 0, size]
        steps += [0, step]
    return copy(node.source(), node.output, shape, steps)


def _concat(node: OnnxNode) -> Nodes:
    is_split = node.op_type == "Split"
    whole = node.source() if is_split else node.output
    parts = node.outputs if is_split else node.inputs()
    strides = strides_of(node.shape(whole))
    axis, first = node.axis(len(strides)), 0
    for part in parts:
        shape = node.shape(part)
        inside, outside = (first, strides), (0, strides_of(shape))
        if not is_split:
            yield from copy_part(part, whole, shape, inside, outside)
        elif part.name:
            yield from copy_part(whole, part, shape, outside, inside)
        first += shape[axis] * strides[axis]


def _pad(node: OnnxNode) -> Nodes:
    before, after = node.shape(node.source()), node.shape(node.output)
    pads, axes = node.constant(1), node.constant(3)
    assert pads is not None
    begins, selected = [0] * len(before), range(len(before)) if axes is None else axes.tolist()
    for axis, begin in zip(selected, pads.tolist(), strict=False):
        begins[axis] = begin
    mode = node.text("mode")
    if mode == "constant":
        value = node.input(2)
        fill = constant_like(node.output, 0) if value is None else value
        yield from copy(fill, node.output, after, [0] * len(after))
        # The part that is inside both tensors, because paddings may be negative.
        firsts = [max(0, begin) for begin in begins]
        ends = [min(size, begin + length) for size, begin, length in zip(after, begins, before, strict=True)]
        shape = [max(0, end - first) for first, end in zip(firsts, ends, strict=True)]
        to, source = strides_of(after), strides_of(before)
        target = sum(first * step for first, step in zip(firsts, to, strict=True))
        origin = sum(
            (first - begin) * step for first, begin, step in zip(firsts, begins, source, strict=True)
        )
        yield from copy_part(node.source(), node.output, shape, (target, to), (origin, source))
        return
    indices = []
    for size, result, begin in zip(before, after, begins, strict=True):
        if result and not size:
            raise PlanError(f"Pad repeats elements of '{node.source().name}', which has none")
        index = np.arange(result) - begin
        if mode == "edge":
            index = index.clip(0, size - 1)
        elif mode == "wrap":
            index %= max(size, 1)
        else:
            index %= max(2 * size - 2, 1)
            index = np.where(index < size, index, 2 * size - 2 - index)
        indices.append(index)
    yield from resample(node, [(index[:, None], None) for index in indices])


def resample(node: OnnxNode, axes: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> Nodes:
    """Emit a result whose elements are weighted sums of source elements along each axis.

    Args:
        axes: for each axis, the source indices [size of the result, count], and their weights; None for
            weights selects single elements.
    """
    before, after = node.shape(node.source()), node.shape(node.output)
    if not math.prod(after):
        return
    tables: list[tuple[int, np.ndarray, np.ndarray | None]] = []
    for size, (index, weight) in zip(before, axes, strict=True):
        is_same = index.shape[1] == 1 and np.array_equal(index[:, 0], np.arange(size))
        if is_same and tables and tables[-1][2] is None and len(tables[-1][1]) == tables[-1][0]:
            merged = size * tables[-1][0]
            tables[-1] = merged, np.arange(merged)[:, None], None
        else:
            tables.append((size, index, None if is_same else weight))
    numbers = [len(tables)]
    for size, index, _ in tables:
        numbers += [size, *index.shape]
    indices = np.concatenate([index.reshape(-1) for _, index, _ in tables]).astype(np.int64)
    weights = None
    if any(weight is not None for _, _, weight in tables):
        weights = np.concatenate(
            [(np.ones(index.shape) if weight is None else weight).reshape(-1) for _, index, weight in tables]
        ).astype(np.float32)
    inputs: list[Operand] = [node.source(), indices, *([] if weights is None else [weights])]
    yield DeviceNode("Resample", inputs, [node.output], numbers)


def _gather(node: OnnxNode) -> Nodes:
    data, indices = node.shape(node.source()), node.shape(node.input(1))
    axis, strides = node.axis(len(data)), strides_of(data)
    block = strides[axis]
    shape = [*data[:axis], *indices]
    base = strides[:axis] + [0] * len(indices)
    return _selection(node, shape, block, [(data[axis], block)], base, [0] * axis + strides_of(indices))


def _gather_elements(node: OnnxNode) -> Nodes:
    data, indices = node.shape(node.source()), node.shape(node.input(1))
    axis, strides = node.axis(len(data)), strides_of(data)
    base = [0 if index == axis else step for index, step in enumerate(strides)]
    return _selection(node, indices, 1, [(data[axis], strides[axis])], base, strides_of(indices))


def _gather_nd(node: OnnxNode) -> Nodes:
    data, indices = node.shape(node.source()), node.shape(node.input(1))
    shared, (*shape, width) = node.integer("batch_dims"), indices
    strides = strides_of(data)
    selected = slice(shared, shared + width)
    block = math.prod(data[shared + width :])
    base = [*strides[:shared], *[0] * (len(shape) - shared)]
    axes = list(zip(data[selected], strides[selected], strict=True))
    return _selection(node, shape, block, axes, base, strides_of(shape, width))


def _selection(
    node: OnnxNode,
    shape: Sequence[int],
    block: int,
    axes: Sequence[tuple[int, int]],
    base: Sequence[int],
    index: Sequence[int],
) -> Nodes:
    """Gather blocks of the data that indices select, or scatter updates to such blocks of a copy.

    Args:
        shape: the number of blocks along each axis.
        block: the number of elements of a block.
        axes: the size and the step of each data axis that an index selects from.
        base: the step between blocks in the data along each axis of `shape`, without the index.
        index: the step between indices along each axis of `shape`.
    """
    data, indices = node.source(), node.input(1)
    inputs: list[ir.Value | None] = [data, indices]
    reduction = "none"
    if node.op_type.startswith("Scatter"):
        reduction = node.text("reduction") if node.attribute("reduction") is not None else "none"
        inputs = [indices, node.input(2)]
        if reduction != "none" and data.dtype in (ir.DataType.BOOL, ir.DataType.DOUBLE):
            raise PlanError(f"{node.op_type} with reduction {reduction} has no kernel for {data.dtype}")
        if not node.shares_memory(data, node.output):
            yield from _copy(node)
    if math.prod(shape) * block:
        numbers = [_REDUCTIONS.index(reduction), block, len(axes), *(item for axis in axes for item in axis)]
        numbers += walk_numbers(shape, (0, strides_of(shape, block)), (0, base), (0, index))
        op_type = "Scatter" if node.op_type.startswith("Scatter") else "Gather"
        yield DeviceNode(op_type, inputs, [node.output], numbers)


def _where(node: OnnxNode) -> Nodes:
    shape = node.shape(node.output)
    operands = [(0, broadcast_steps(node.shape(value), shape)) for value in node.inputs()]
    if math.prod(shape):
        numbers = walk_numbers(shape, (0, strides_of(shape)), *operands)
        yield DeviceNode("Where", node.inputs(), [node.output], numbers)


def _triangle(node: OnnxNode) -> Nodes:
    """Emit Trilu by a mask; its element depends only on column - row, so it is stored as one row."""
    shape, diagonal = node.shape(node.output), node.constant(1)
    rows, columns = shape[-2:]
    distances = np.arange(1 - rows, columns) - (0 if diagonal is None else int(diagonal.reshape(())))
    mask = distances >= 0 if node.integer("upper", 1) else distances <= 0
    strides, batch_steps = strides_of(shape), [0] * (len(shape) - 2)
    if math.prod(shape):
        operands = (0, strides), (rows - 1, [*batch_steps, -1, 1]), (0, strides), (0, [0] * len(shape))
        inputs: list[Operand] = [mask, node.source(), constant_like(node.output, 0)]
        yield DeviceNode("Where", inputs, [node.output], walk_numbers(shape, *operands))


def _one_hot(node: OnnxNode) -> Nodes:
    """Emit OneHot: compare the indices with the class numbers; negative indices count from the end."""
    shape, strides = node.shape(node.output), strides_of(node.shape(node.source()))
    axis = node.axis(len(shape), default=-1)
    whole, scalar = strides_of(shape), [0] * len(shape)
    index = Strided(node.source(), [*strides[:axis], 0, *strides[axis:]])
    classes = np.arange(shape[axis]).astype(constant_like(node.source(), 0).dtype)
    masks = [Strided(Scratch(ir.DataType.BOOL, shape), whole) for _ in range(2)]
    for mask, numbers in zip(masks, (classes, classes - classes.dtype.type(shape[axis])), strict=True):
        steps = [int(position == axis) for position in range(len(shape))]
        yield from strided_binary("Equal", shape, index, Strided(numbers, steps), mask)
    yield from strided_binary("Or", shape, masks[0], masks[1], masks[0])
    if math.prod(shape):
        walk = walk_numbers(shape, (0, whole), (0, whole), (1, scalar), (0, scalar))
        yield DeviceNode("Where", [masks[0].operand, *[node.input(2)] * 2], [node.output], walk)


def _range(node: OnnxNode) -> Nodes:
    count = node.shape(node.output)
    numbers = np.arange(count[0]).astype(constant_like(node.output, 0).dtype)
    yield from binary(node, "Mul", numbers, node.input(2), node.output)
    yield from binary(node, "Add", node.output, node.source(), node.output)


FORMS: Mapping[str, Callable[[OnnxNode], Nodes]] = {
    **dict.fromkeys("Dropout Flatten Identity Reshape Squeeze Unsqueeze".split(), _copy),
    **dict.fromkeys(("Concat", "Split"), _concat),
    **dict.fromkeys(("GatherElements", "ScatterElements"), _gather_elements),
    **dict.fromkeys(("GatherND", "ScatterND"), _gather_nd),
    **dict.fromkeys(("ConstantOfShape", "Shape", "Size"), _known_result),
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Gather": _gather,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _triangle,
    "Where": _where,
}
"""By ONNX operator, the function that emits nodes of the runtime for it."""
