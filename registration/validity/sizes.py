"""Rules for the sizes of inputs that ONNX's documentation states but onnx does not check.

onnx's inference checks that operands broadcast and that matrices fit. It does not check the operands of most
operators that have many, such as Attention. Sizes that are not known are not checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import onnx_ir as ir

from ..inference.constant_integers import integers
from ..schemas import OperatorSchema
from .operands import Demand, Dims, Operands

Rule = Callable[[Operands], Iterator[Demand]]


def size_problem(node: ir.Node, schema: OperatorSchema) -> str | None:
    """What is wrong with the sizes of a node's inputs; None if nothing is known to be."""
    operands = Operands(node, schema)
    for demand in RULES[node.op_type](operands):
        if demand is None or isinstance(demand, str):
            if demand is not None:
                return demand
            continue
        name, axis, expected = demand
        size = operands.size(name, axis)
        if size is not None and expected is not None and size != expected:
            return f"its input '{name}' has the size {size} at axis {axis}, not {expected}"
    return None


def _product(*factors: int | None) -> int | None:
    known_factors = [factor for factor in factors if factor is not None]
    return math.prod(known_factors) if len(known_factors) == len(factors) else None


def _quotient(size: int | None, divisor: int | None) -> int | None:
    return None if size is None or not divisor else size // divisor


def _multiple(subject: str, size: int | None, divisor: int | None) -> Demand:
    if size is None or divisor is None or (divisor > 0 and size % divisor == 0):
        return None
    return f"its {subject} is {size}, which is no multiple of {divisor}"


def _normalization(operands: Operands) -> Iterator[Demand]:
    """Scale, bias and statistics of the channels, for each of which there is one number."""
    sizes = operands.sizes("X" if "X" in operands.schema.input_index else "input")
    # Before opset 9, `spatial=0` has statistics for each element instead of each channel.
    if sizes is None or len(sizes) < 2 or operands.number("spatial", 1) == 0:
        return
    for formal in operands.schema.inputs[1:]:
        yield formal.name, 0, sizes[1]


def _group_normalization(operands: Operands) -> Iterator[Demand]:
    channels, groups = operands.size("X", 1), operands.number("num_groups")
    yield _multiple("number of channels", channels, groups)
    has_channel_scales = operands.schema.since_version >= _SCALES_OF_CHANNELS
    for name in ("scale", "bias"):
        yield name, 0, channels if has_channel_scales else groups


_SCALES_OF_CHANNELS = 21
"""The version of GroupNormalization from which there is a scale for each channel; before, for each group."""


def _last_axes(operands: Operands) -> Iterator[Demand]:
    """LayerNormalization and RMSNormalization: the scale and the bias broadcast to the normalized axes."""
    data = operands.sizes("X")
    for name in ("Scale", "scale", "B"):
        sizes = operands.sizes(name)
        if data is None or sizes is None:
            continue
        if len(sizes) > len(data):
            yield f"its input '{name}' has rank {len(sizes)}, more than its input 'X'"
            continue
        for axis in range(-len(sizes), 0):
            if sizes[axis] != 1:
                yield name, axis, data[axis]


def _convolution(data: str, weight: str, bias: str) -> Rule:
    def demands(operands: Operands) -> Iterator[Demand]:
        group, filters = operands.number("group", 1), operands.size(weight, 0)
        yield _multiple("number of channels", operands.size(data, 1), group)
        yield _multiple("number of filters", filters, group)
        yield weight, 1, _quotient(operands.size(data, 1), group)
        yield bias, 0, filters
        yield from _kernel(operands, weight)

    return demands


def _kernel(operands: Operands, weight: str) -> Iterator[Demand]:
    for position, size in enumerate(operands.number("kernel_shape", ())):
        yield weight, position + 2, size


def _transposed_convolution(operands: Operands) -> Iterator[Demand]:
    group, channels = operands.number("group", 1), operands.size("X", 1)
    yield _multiple("number of channels", channels, group)
    # A transposed convolution's weight has the input channels first: [C, M / group, ...].
    yield "W", 0, channels
    # The bias is for the output channels, M.
    yield "B", 0, _product(operands.size("W", 1), group)
    yield from _kernel(operands, "W")


def _deformable_convolution(operands: Operands) -> Iterator[Demand]:
    yield from _convolution("X", "W", "B")(operands)
    weights = operands.sizes("W")
    if weights is None:
        return
    # Each point of the kernel has an offset along each spatial axis, and one factor of the mask.
    points = _product(operands.number("offset_group", 1), *weights[2:])
    yield "offset", 0, operands.size("X", 0)
    yield "offset", 1, _product(len(weights) - 2, points)
    yield "mask", 0, operands.size("X", 0)
    yield "mask", 1, points
    for axis in range(2, len(weights)):
        yield "mask", axis, operands.size("offset", axis)


def _matrix_product(operands: Operands) -> Iterator[Demand]:
    """Matrices that fit, and for Gemm a third that broadcasts to their product."""
    rows = operands.size("A", -1 if operands.number("transA") else -2)
    inner = operands.size("A", -2 if operands.number("transA") else -1)
    columns = operands.size("B", -2 if operands.number("transB") else -1)
    # A vector has its only axis summed, which is then the last one.
    rank = len(operands.sizes("B") or (0, 0))
    yield "B", rank - 1 if operands.number("transB") else rank - 2, inner
    for axis, size in ((-1, columns), (-2, rows)):
        # C broadcasts in one direction only: its size is 1 or that of the product.
        if operands.size("C", axis) != 1:
            yield "C", axis, size


def _recurrent(gates: int) -> Rule:
    def demands(operands: Operands) -> Iterator[Demand]:
        directions = 2 if operands.number("direction", "forward") == "bidirectional" else 1
        # `layout` exists from opset 14 on; before, the first axis is that of the sequence.
        by_batch = operands.number("layout", 0) == 1
        batch = operands.size("X", 0 if by_batch else 1)
        hidden = operands.number("hidden_size") or operands.size("R", 2)
        yield from (("W", 0, directions), ("R", 0, directions), ("B", 0, directions), ("P", 0, directions))
        yield "W", 1, _product(gates, hidden)
        yield "W", 2, operands.size("X", 2)
        yield "R", 1, _product(gates, hidden)
        yield "R", 2, hidden
        # The bias of the inputs and that of the recurrence, one after the other.
        yield "B", 1, _product(2 * gates, hidden)
        # Peepholes for the input, output and forget gates; none for the cell.
        yield "P", 1, _product(3, hidden)
        yield "sequence_lens", 0, batch
        for name in ("initial_h", "initial_c"):
            yield name, 1 if by_batch else 0, directions
            yield name, 0 if by_batch else 1, batch
            yield name, 2, hidden

    return demands


def _attention(operands: Operands) -> Iterator[Demand]:
    query_heads, heads = operands.number("q_num_heads"), operands.number("kv_num_heads")
    ranks = {name: operands.sizes(name) for name in "QKV"}
    is_packed = any(sizes is not None and len(sizes) == 3 for sizes in ranks.values())
    if is_packed:
        if not query_heads or not heads:
            yield "its inputs of rank 3 need the attributes q_num_heads and kv_num_heads"
            return
        for name, count in (("Q", query_heads), ("K", heads), ("V", heads)):
            yield _multiple(f"size of '{name}'", operands.size(name, 2), count)
        # Past keys are [batch, heads, length, size] whatever the rank of the new ones.
        size = operands.first(("past_key", 3)) or _quotient(operands.size("Q", 2), query_heads)
        value_size = operands.first(("past_value", 3)) or _quotient(operands.size("V", 2), heads)
        yield "Q", 2, _product(size, query_heads)
        yield "K", 2, _product(size, heads)
        yield "V", 2, _product(value_size, heads)
        sequence = 1
    else:
        has_rank_4 = any(sizes is not None for sizes in ranks.values())
        if has_rank_4 and operands.schema.since_version >= _HEADS_OF_RANK_3 and (query_heads or heads):
            yield "its attributes q_num_heads and kv_num_heads are for inputs of rank 3"
        query_heads = operands.size("Q", 1)
        heads = operands.first(("K", 1), ("V", 1), ("past_key", 1), ("past_value", 1))
        size, value_size, sequence = operands.first(("Q", 3), ("K", 3)), operands.size("V", 3), 2
        yield "K", 3, size
        yield "V", 1, heads
    yield _multiple("number of heads of queries", query_heads, heads)
    batch, length = operands.size("Q", 0), operands.size("K", sequence)
    yield from (("K", 0, batch), ("V", 0, batch), ("V", sequence, length), ("nonpad_kv_seqlen", 0, batch))
    for name, last in (("past_key", size), ("past_value", value_size)):
        yield from ((name, 0, batch), (name, 1, heads), (name, 3, last))
    yield "past_value", 2, operands.size("past_key", 2)
    yield from _mask(operands, (batch, query_heads, operands.size("Q", sequence)), length)


_HEADS_OF_RANK_3 = 25
"""The version of Attention from which inference refuses numbers of heads for inputs of rank 4."""


def _mask(operands: Operands, outer: Dims, length: int | None) -> Iterator[Demand]:
    """The mask of Attention broadcasts; its last axis may be shorter than all keys."""
    sizes = operands.sizes("attn_mask") or ()
    for axis, size in zip(range(-2, -len(sizes) - 1, -1), reversed(outer), strict=False):
        if sizes[axis] != 1:
            yield "attn_mask", axis, size
    past = operands.size("past_key", 2) if operands.value("past_key") is not None else 0
    if sizes and sizes[-1] is not None and None not in (past, length) and sizes[-1] > past + length:  # type: ignore[operator]
        yield f"its input 'attn_mask' is for {sizes[-1]} keys, and there are {past + length}"  # type: ignore[operator]


def _rotary_embedding(operands: Operands) -> Iterator[Demand]:
    sizes, heads = operands.sizes("X"), operands.number("num_heads", 0)
    batch = length = size = None
    if sizes is not None and len(sizes) == 4:
        batch, length, size = sizes[0], sizes[2], sizes[3]
    elif sizes is not None and len(sizes) == 3:
        if not heads:
            yield "its input of rank 3 needs the attribute num_heads"
        yield _multiple("size of 'X'", sizes[2], heads)
        batch, length, size = sizes[0], sizes[1], _quotient(sizes[2], heads)
    rotated = operands.number("rotary_embedding_dim", 0) or size
    # Numbers are rotated in pairs, and 0 means all of the head.
    if rotated is not None and (rotated % 2 or (size is not None and not 0 < rotated <= size)):
        yield f"it rotates {rotated} numbers, which must be an even part of the {size or 'numbers'} of a head"
    has_positions = operands.value("position_ids") is not None
    for name in ("cos_cache", "sin_cache"):
        rank = operands.sizes(name)
        if rank is not None and len(rank) != (2 if has_positions else 3):
            yield f"its input '{name}' has rank {len(rank)}, not {2 if has_positions else 3}"
        yield name, -1, _quotient(rotated, 2)
        if not has_positions:
            yield name, 1, length
            # Caches without positions may be shared by the whole batch.
            if operands.size(name, 0) != 1:
                yield name, 0, batch
    yield "sin_cache", 0, operands.size("cos_cache", 0)
    yield from (("position_ids", 0, batch), ("position_ids", 1, length))


def _affine_grid(operands: Operands) -> Iterator[Demand]:
    sizes = integers(operands.value("size"))
    count = operands.size("size", 0) if sizes is None else len(sizes)
    if count not in (None, 4, 5):
        yield f"its size has {count} numbers, not 4 or 5"
        return
    if sizes is not None:
        yield from _positive("size", sizes)
        yield "theta", 0, sizes[0]
    if count is not None:
        yield from (("theta", 1, count - 2), ("theta", 2, count - 1))


def _positive(name: str, numbers: Sequence[int] | None, least: int = 1) -> Iterator[Demand]:
    if numbers is not None and any(number < least for number in numbers):
        yield f"its {name} {list(numbers)} has a number below {least}"


def _grid_sample(operands: Operands) -> Iterator[Demand]:
    sizes = operands.sizes("X")
    yield "grid", 0, operands.size("X", 0)
    yield "grid", -1, None if sizes is None else len(sizes) - 2


def _col2im(operands: Operands) -> Iterator[Demand]:
    image, block = integers(operands.value("image_shape")), integers(operands.value("block_shape"))
    for name, numbers in (("image_shape", image), ("block_shape", block)):
        yield from _positive(name, numbers)
    yield "block_shape", 0, operands.size("image_shape", 0)
    spatial = operands.first(("image_shape", 0), ("block_shape", 0))
    for name, count in (("dilations", 1), ("strides", 1), ("pads", 2)):
        numbers = operands.number(name)
        if numbers is not None and spatial is not None and len(numbers) != count * spatial:
            yield f"its {name} have {len(numbers)} numbers, and its image {spatial} axes"
            return
    if block is None or len(block) != (spatial or 0):
        return
    yield _multiple(
        "number of channels and positions in a block", operands.size("input", 1), math.prod(block)
    )
    if image is None:
        return
    strides, dilations = (operands.number(name, [1] * len(block)) for name in ("strides", "dilations"))
    pads = operands.number("pads", [0] * 2 * len(block))
    if min(*strides, *dilations) < 1:
        return
    counts = [
        (image[i] + pads[i] + pads[i + len(block)] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i in range(len(block))
    ]
    if min(counts) < 1:
        yield "its blocks are larger than its image"
        return
    yield "input", 2, math.prod(counts)


def _regions(operands: Operands) -> Iterator[Demand]:
    yield "rois", 1, 4
    yield "batch_indices", 0, operands.size("rois", 0)


def _pooled_regions(operands: Operands) -> Iterator[Demand]:
    # The batch index of a region is the first of its five numbers.
    yield "rois", 1, 5


def _center_crop(operands: Operands) -> Iterator[Demand]:
    axes, sizes = operands.number("axes"), operands.sizes("input_data")
    yield "shape", 0, len(axes) if axes is not None else None if sizes is None else len(sizes)
    yield from _positive("shape", integers(operands.value("shape")), 0)


def _reversed_sequences(operands: Operands) -> Iterator[Demand]:
    batch, time = operands.number("batch_axis", 1), operands.number("time_axis", 0)
    # The operator's text allows no other axes.
    if {batch, time} != {0, 1}:
        yield f"its axes are {batch} and {time}, not 0 and 1"
    yield "sequence_lens", 0, operands.size("input", batch)


def _suppression(operands: Operands) -> Iterator[Demand]:
    yield from (("boxes", 2, 4), ("scores", 0, operands.size("boxes", 0)))
    yield "scores", 2, operands.size("boxes", 1)


def _loss(data: str, target: str) -> Rule:
    def demands(operands: Operands) -> Iterator[Demand]:
        sizes, targets = operands.sizes(data), operands.sizes(target)
        if sizes is not None and targets is not None and len(targets) != len(sizes) - 1:
            yield f"its input '{target}' has rank {len(targets)}, and its input '{data}' {len(sizes)}"
            return
        for axis, size in enumerate(sizes or ()):
            if axis != 1:
                # Axis 1 has the classes, which the target does not have.
                yield target, max(axis - 1, 0), size
        yield operands.schema.inputs[2].name, 0, operands.size(data, 1)

    return demands


def _blocks(operands: Operands) -> Iterator[Demand]:
    size = operands.number("blocksize")
    if operands.node.op_type == "DepthToSpace":
        yield _multiple("number of channels", operands.size("input", 1), _product(size, size))
        return
    for axis in (2, 3):
        yield _multiple(f"size at axis {axis}", operands.size("input", axis), size)


def _square(operands: Operands) -> Iterator[Demand]:
    yield "X", -1, operands.size("X", -2)


def _like_data(operands: Operands) -> Iterator[Demand]:
    for axis, size in enumerate(operands.sizes("X") or ()):
        yield "I", axis, size


def _gather_nd(operands: Operands) -> Iterator[Demand]:
    data, indices = operands.sizes("data"), operands.sizes("indices")
    batches = operands.number("batch_dims", 0)
    lowest = min((len(sizes) for sizes in (data, indices) if sizes is not None), default=batches + 1)
    if batches >= lowest:
        yield f"its batch_dims is {batches}, and an input has rank {lowest}"
        return
    for axis in range(batches):
        yield "indices", axis, operands.size("data", axis)
    yield from _positions(data, indices, batches)


def _positions(data: Dims | None, indices: Dims | None, batches: int) -> Iterator[Demand]:
    """The last axis of indices has a number for each of the axes that they select from."""
    count = indices[-1] if indices else None
    if count is not None and data is not None and not 1 <= count <= len(data) - batches:
        yield f"its indices have {count} numbers for {len(data) - batches} axes"


def _scatter_nd(operands: Operands) -> Iterator[Demand]:
    data, indices, updates = (operands.sizes(name) for name in ("data", "indices", "updates"))
    yield from _positions(data, indices, 0)
    if data is None or not indices or updates is None or indices[-1] is None:
        return
    # Each index selects a slice, which the axes after the indexed ones make up.
    shape = (*indices[:-1], *data[indices[-1] :])
    if len(shape) != len(updates):
        yield f"its updates have rank {len(updates)}, not {len(shape)}"
        return
    for axis, size in enumerate(shape):
        yield "updates", axis, size


def _padding(operands: Operands) -> Iterator[Demand]:
    sizes = operands.sizes("data")
    if sizes is not None and operands.value("axes") is None:
        yield "pads", 0, 2 * len(sizes)


def _repetition(operands: Operands) -> Iterator[Demand]:
    sizes = operands.sizes("input")
    # Tile 1 repeats along one axis, which an input names.
    if "tiles" not in operands.schema.input_index:
        yield "repeats", 0, None if sizes is None else len(sizes)


def _reshape(operands: Operands) -> Iterator[Demand]:
    """A constant shape has as many elements as the input, whatever sizes are not known."""
    sizes, shape = operands.sizes("data"), integers(operands.value("shape"))
    if sizes is None or shape is None:
        return
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        yield f"its shape is {shape}, with more than one number below 0, or one below -1"
        return
    copied = set() if operands.number("allowzero", 0) else {axis for axis, n in enumerate(shape) if n == 0}
    if any(axis >= len(sizes) for axis in copied):
        yield f"its shape {shape} copies a size that its input of rank {len(sizes)} does not have"
        return
    # Sizes that are copied are equal on both sides, known or not.
    before = [size for axis, size in enumerate(sizes) if axis not in copied]
    after = [size for axis, size in enumerate(shape) if axis not in copied]
    if 0 in before or 0 in after or (None in before and -1 in after):
        return
    count = math.prod(size for size in before if size is not None)
    target_count = math.prod(size for size in after if size != -1)
    # What is not known, on one of the two sides, is a whole number.
    if None in before:
        fits = target_count % count == 0
    else:
        fits = count % target_count == 0 if -1 in after else count == target_count
    if not fits:
        listed = ", ".join("?" if size is None else str(size) for size in sizes)
        yield f"its shape is {shape}, and its input [{listed}] does not have that many elements"


RULES: dict[str, Rule] = {
    "AffineGrid": _affine_grid,
    "Attention": _attention,
    "BatchNormalization": _normalization,
    "CenterCropPad": _center_crop,
    "Col2Im": _col2im,
    "Conv": _convolution("X", "W", "B"),
    "ConvInteger": _convolution("x", "w", ""),
    "ConvTranspose": _transposed_convolution,
    "DeformConv": _deformable_convolution,
    "DepthToSpace": _blocks,
    "Det": _square,
    "GRU": _recurrent(3),
    "GatherND": _gather_nd,
    "Gemm": _matrix_product,
    "GridSample": _grid_sample,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _normalization,
    "LSTM": _recurrent(4),
    "LayerNormalization": _last_axes,
    "MatMul": _matrix_product,
    "MatMulInteger": _matrix_product,
    "MaxRoiPool": _pooled_regions,
    "MaxUnpool": _like_data,
    "NegativeLogLikelihoodLoss": _loss("input", "target"),
    "NonMaxSuppression": _suppression,
    "Pad": _padding,
    "QLinearConv": _convolution("x", "w", "B"),
    "RMSNormalization": _last_axes,
    "RNN": _recurrent(1),
    "Reshape": _reshape,
    "ReverseSequence": _reversed_sequences,
    "RoiAlign": _regions,
    "RotaryEmbedding": _rotary_embedding,
    "ScatterND": _scatter_nd,
    "SoftmaxCrossEntropyLoss": _loss("scores", "labels"),
    "SpaceToDepth": _blocks,
    "Tile": _repetition,
}

READ_CONTENTS = frozenset({"AffineGrid", "CenterCropPad", "Col2Im", "Reshape"})
"""Operators of which the rules read the contents of constants besides sizes and attributes."""

COMPLETE = frozenset({"Attention", "RotaryEmbedding"})
"""Operators of which the rules say all that their bodies demand."""
