"""The forms in which the keys of an attention are transposed, and heads are joined with the batch.

1. One Transpose, which may also move the heads before the length.
2. Reshape [b, n, s, d] to [b * n, s, d] -> Transpose [0, 2, 1] -> Reshape to [b, n, d, s].
3. The same without the second Reshape, or a Reshape after form 1, for products of matrices.
"""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from .....registration.size_algebra.dimensions import Dims, same_size
from ...node_pass import exclusive_producer, producer_of

_MATRICES = (0, 2, 1)


class Keys(NamedTuple):
    """Keys before they are transposed.

    Attributes:
        data: a value with the numbers of the keys.
        perm: the order of its dimensions in which it has the layout of the queries.
        successor: the node before which a Transpose to this order may be inserted.
        shape: the shape in this order.
    """

    data: ir.Value
    perm: tuple[int, ...]
    successor: ir.Node
    shape: Dims


def transposed_keys(transposed: ir.Value) -> Keys | None:
    """The keys whose transpose a value is; None if it is not recognised as one."""
    node = producer_of(transposed, "Transpose")
    perm = node.attributes.get_ints("perm") if node is not None else None
    data = node.inputs[0] if node is not None else None
    if node is not None and perm is not None and data is not None and data.shape is not None:
        *first, second_to_last, last = perm
        # The same Transpose without the exchange of the last two dimensions.
        order = (*first, last, second_to_last)
        shape = tuple(data.shape[axis] for axis in order)
        return Keys(data, order, node, shape) if len(first) in (1, 2) else None
    keys = _split_behind(transposed)
    data = split_heads(transposed) if keys is None else None
    # The heads may be joined with the batch after the keys were transposed.
    if data is not None and producer_of(data, "Transpose") is not None:
        keys = transposed_keys(data)
        return keys if keys is not None and len(keys.shape) == 4 else None
    return keys


def joins_heads(joined: ir.Value, split: ir.Value) -> bool:
    """Whether a Reshape from one of these shapes to the other joins or splits batch and heads alone."""
    matrices, full = joined.shape, split.shape
    if matrices is None or full is None or (len(matrices), len(full)) != (3, 4):
        return False
    return all(same_size(*pair) for pair in zip(matrices[1:], full[2:], strict=True))


def split_heads(matrices: ir.Value) -> ir.Value | None:
    """The value of four dimensions whose batch and heads a value joins."""
    reshape = producer_of(matrices, "Reshape")
    data = reshape.inputs[0] if reshape is not None else None
    return data if data is not None and joins_heads(matrices, data) else None


def split_keys(keys: Keys) -> Keys | None:
    """The keys of four dimensions whose batch and heads keys join."""
    if len(keys.shape) == 4:
        return keys
    data = split_heads(keys.data) if keys.perm == (0, 1, 2) else None
    return (
        None
        if data is None or data.shape is None
        else Keys(data, (0, 1, 2, 3), keys.successor, (*data.shape,))
    )


def _split_behind(transposed: ir.Value) -> Keys | None:
    """The keys that Reshapes around a Transpose of matrices transpose."""
    split = producer_of(transposed, "Reshape")
    transpose = exclusive_producer(split.inputs[0], "Transpose") if split is not None else None
    matrices = transpose.inputs[0] if transpose is not None else None
    perm = transpose.attributes.get_ints("perm") if transpose is not None else None
    data = split_heads(matrices) if matrices is not None else None
    if transpose is None or data is None or perm is None or tuple(perm) != _MATRICES:
        return None
    before, after = data.shape, transposed.shape
    if before is None or after is None or len(after) != 4:
        return None
    pairs = zip([*before[:2], before[3], before[2]], after, strict=True)
    if not all(same_size(*pair) for pair in pairs):
        return None
    return Keys(data, (0, 1, 2, 3), transpose, (*before,))
