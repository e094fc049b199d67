"""The forms in which the keys of an attention are transposed.

Transpose [0, 1, 3, 2], or another order that also splits the heads
Reshape [b, n, s, d] to [b * n, s, d] -> Transpose [0, 2, 1] -> Reshape to [b, n, d, s]
"""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from ..node_pass import maker_of, same_dimension
from .patterns import made_by


class Keys(NamedTuple):
    """Keys before they are transposed.

    Attributes:
        data: a value with the numbers of the keys.
        perm: the order of its dimensions in which it has the layout of the queries.
        transpose: the node that transposes the keys.
    """

    data: ir.Value
    perm: tuple[int, ...]
    transpose: ir.Node


def transposed_keys(transposed: ir.Value) -> Keys | None:
    """The keys that a value has in transposed form; None if it is not known to have them."""
    node = maker_of(transposed, "Transpose")
    perm = node.attributes.get("perm") if node is not None else None
    data = node.inputs[0] if node is not None else None
    if node is None or perm is None or data is None:
        return _transposed_matrices(transposed)
    *first, second_to_last, last = perm.as_ints()
    return Keys(data, (*first, last, second_to_last), node) if len(first) in (1, 2) else None


def _transposed_matrices(transposed: ir.Value) -> Keys | None:
    """The keys that Reshapes around a Transpose of matrices transpose."""
    split = maker_of(transposed, "Reshape")
    transpose = made_by(split.inputs[0], "Transpose") if split is not None else None
    joined = made_by(transpose.inputs[0], "Reshape") if transpose is not None else None
    data = joined.inputs[0] if joined is not None else None
    if transpose is None or joined is None or data is None:
        return None
    perm, between = transpose.attributes.get("perm"), joined.outputs[0].shape
    if perm is None or list(perm.as_ints()) != [0, 2, 1] or between is None or len(between) != 3:
        return None
    before, after = data.shape, transposed.shape
    if before is None or after is None or len(before) != 4 or len(after) != 4:
        return None
    pairs = [*zip(before[-2:], between[-2:], strict=True)]
    pairs += zip([*before[:2], before[3], before[2]], after, strict=True)
    if not all(same_dimension(*pair) for pair in pairs):
        return None
    return Keys(data, (0, 1, 2, 3), transpose)
