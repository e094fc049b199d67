"""Attention and rotary embeddings as nodes of the runtime."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from .device_nodes import (
    DeviceNode,
    Nodes,
    OnnxNode,
    Operand,
    Scratch,
    Strided,
    broadcast_steps,
    copy,
    copy_part,
    strided_binary,
    strides_of,
    walk_numbers,
)
from .device_normalization import normalize_exponentials
from .device_products import zeros


def _layout(shape: Sequence[int], heads: int) -> tuple[int, int, int, list[int]]:
    """Return (heads, rows, width, steps along the batch, heads and rows) of a tensor.

    Args:
        shape: [batch, heads, rows, width] or [batch, rows, heads * width].
        heads: the number of heads for a shape of three sizes.
    """
    if len(shape) == 4:
        return shape[1], shape[2], shape[3], strides_of(shape)[:3]
    width = shape[2] // max(heads, 1)
    return heads, shape[1], width, [shape[1] * shape[2], width, shape[2]]


def _attention(node: OnnxNode) -> Nodes:
    """Emit attention for one head after the other, so that only one head's scores need memory."""
    query, key, value = (node.input(index) for index in range(3))
    mask, key_heads = node.input(3), node.integer("kv_num_heads", 1)
    batch = node.shape(query)[0]
    heads, queries, width, q_steps = _layout(node.shape(query), node.integer("q_num_heads", 1))
    shared_heads, keys, _, k_steps = _layout(node.shape(key), key_heads)
    _, _, value_width, v_steps = _layout(node.shape(value), key_heads)
    o_steps = _layout(node.shape(node.output), node.integer("q_num_heads", 1))[3]
    scale = np.array(node.real("scale", 1 / math.sqrt(max(width, 1))), np.float32)
    rows, scores = (Scratch(ir.DataType.FLOAT, [queries, size]) for size in (width, keys))
    is_causal = node.integer("is_causal") != 0
    mask_steps = [0] * 4
    if mask is not None:
        mask_steps = broadcast_steps(node.shape(mask), [batch, heads, queries, keys])
    yield from zeros(node)
    if not keys or not width:
        return
    for index in itertools.product(range(batch), range(heads)):
        shared = index[0], index[1] * shared_heads // heads
        q, o = (index[0] * steps[0] + index[1] * steps[1] for steps in (q_steps, o_steps))
        k, v = (shared[0] * steps[0] + shared[1] * steps[1] for steps in (k_steps, v_steps))
        own_mask = Strided(mask, mask_steps[2:], index[0] * mask_steps[0] + index[1] * mask_steps[1])
        yield from strided_binary(
            "Mul",
            rows.shape,
            Strided(query, [q_steps[2], 1], q),
            Strided(scale, [0, 0]),
            Strided(rows, [width, 1]),
        )
        is_added = mask is not None and mask.dtype == ir.DataType.FLOAT
        source = own_mask if is_added else Strided(np.zeros((), np.float32), [0, 0])
        yield from copy(source.operand, scores, scores.shape, source.steps, source.start)
        numbers = [queries, keys, width, width, 1, 1, k_steps[2], keys]
        yield DeviceNode("MatMul", [rows, key], [scores], [*numbers, *_origins(0, 0, k)])
        if mask is not None and not is_added:
            yield _select(own_mask, scores)
        if is_causal:
            # An element depends only on key - query, so one row of the mask holds all of them.
            triangle = np.arange(1 - queries, keys) <= 0
            yield _select(Strided(triangle, [-1, 1], queries - 1), scores)
        yield from normalize_exponentials(node, scores, 1, scores, mask is not None)
        numbers = [queries, value_width, keys, keys, 1, v_steps[2], 1, o_steps[2]]
        yield DeviceNode("MatMul", [scores, value], [node.output], [*numbers, *_origins(o, 0, v)])


def _origins(*starts: int) -> list[int]:
    """Return the walk over one matrix each of the result and both operands, which begin at `starts`."""
    return walk_numbers([], *((start, []) for start in starts))


def _select(mask: Strided, scores: Scratch) -> DeviceNode:
    """Make a node that sets the scores that a mask excludes to -inf."""
    score_steps = 0, strides_of(scores.shape)
    walk = walk_numbers(scores.shape, score_steps, (mask.start, mask.steps), score_steps, (0, [0, 0]))
    return DeviceNode("Where", [mask.operand, scores, np.array(-np.inf, np.float32)], [scores], walk)


def _rotary(node: OnnxNode) -> Nodes:
    """Emit RotaryEmbedding: rotate pairs of elements by angles, selected by position or one per row."""
    source, result, positions = node.source(), node.output, node.input(3)
    batch = node.shape(source)[0]
    heads, rows, width, steps = _layout(node.shape(source), node.integer("num_heads", 1))
    half = (node.integer("rotary_embedding_dim") or width) // 2
    shape, count = [batch, heads, rows, half], batch * rows
    angles: list[Operand] = [node.input(1), node.input(2)]
    if positions is not None:
        for index, table in enumerate(angles):
            size, selected = node.shape(table)[0], Scratch(ir.DataType.FLOAT, [count, half])
            walk = walk_numbers([count], (0, [half]), (0, [0]), (0, [1]))
            yield DeviceNode("Gather", [table, positions], [selected], [0, half, 1, size, half, *walk])
            angles[index] = selected
    cosine, sine = (Strided(angle, [rows * half, 0, half, 1]) for angle in angles)
    # The elements of a pair are neighbours, or have the same position in both halves of a row.
    step, distance = (2, 1) if node.integer("interleaved") else (1, half)
    first, second = (Strided(source, [*steps, step], start) for start in (0, distance))
    real, imaginary, term = (Strided(Scratch(ir.DataType.FLOAT, shape), strides_of(shape)) for _ in range(3))
    for target, op_type, factors in ((real, "Sub", (cosine, sine)), (imaginary, "Add", (sine, cosine))):
        for element, factor, product in zip((first, second), factors, (target, term), strict=True):
            yield from strided_binary("Mul", shape, element, factor, product)
        yield from strided_binary(op_type, shape, target, term, target)
    for part, start in ((real, 0), (imaginary, distance)):
        yield from copy_part(part.operand, result, shape, (start, [*steps, step]), (0, part.steps))
    if width > 2 * half and not node.shares_memory(source, result):
        unrotated = 2 * half, [*steps, 1]
        yield from copy_part(source, result, [batch, heads, rows, width - 2 * half], unrotated, unrotated)


FORMS: Mapping[str, Callable[[OnnxNode], Nodes]] = {"Attention": _attention, "RotaryEmbedding": _rotary}
"""By ONNX operator, the function that emits nodes of the runtime for it."""
