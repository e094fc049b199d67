"""Permutations of dimensions: dimension i of a Transpose's result is dimension `perm[i]` of its input."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

Permutation = tuple[int, ...]
Sizes = tuple[int | ir.SymbolicDim, ...]
"""The dimensions of a shape, as a plain tuple: an `ir.Shape` takes several times as long to create."""


def is_identity(perm: Permutation) -> bool:
    """Whether a permutation moves no dimension."""
    return perm == tuple(range(len(perm)))


def inverse(perm: Permutation) -> Permutation:
    """The permutation that undoes another one."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def compose(first: Permutation, second: Permutation) -> Permutation:
    """The permutation of a single Transpose that equals two consecutive ones."""
    return tuple(first[axis] for axis in second)


def remove_axes(perm: Permutation, axes: Collection[int]) -> Permutation:
    """The permutation of the remaining dimensions, if some dimensions of the result are removed."""
    removed = sorted(perm[axis] for axis in axes)
    remaining = [source for axis, source in enumerate(perm) if axis not in axes]
    return tuple(source - sum(removed_axis < source for removed_axis in removed) for source in remaining)


def insert_axes(perm: Permutation, axes: Collection[int]) -> Permutation:
    """The permutation with dimensions inserted at the same positions in the input and the result."""
    rank = len(perm) + len(axes)
    positions = [axis for axis in range(rank) if axis not in axes]
    result = list(range(rank))
    for axis, source in enumerate(perm):
        result[positions[axis]] = positions[source]
    return tuple(result)


def permutation_of(node: ir.Node) -> Permutation | None:
    """The permutation of a Transpose node; None if it is unknown."""
    perm = node.attributes.get("perm")
    if perm is not None:
        return tuple(perm.as_ints())
    data = node.inputs[0] if node.inputs else None
    shape = data.shape if data is not None else None
    # Without `perm`, Transpose reverses the dimensions.
    return None if shape is None else tuple(range(len(shape)))[::-1]


def keeps_element_order(sizes: Sizes | None, perm: Permutation) -> bool:
    """Whether a Reshape can replace a Transpose: only dimensions of size 1 move.

    With a second unknown size, -1 would be undefined if that size is 0.
    """
    if sizes is None or len(sizes) != len(perm) or 0 in sizes:
        return False
    remaining = [axis for axis in perm if sizes[axis] != 1]
    if remaining != sorted(remaining):
        return False
    target = target_shape(sizes, perm)
    return -1 not in target or (0 not in target and target.count(-1) == 1)


def target_shape(sizes: Sizes, perm: Permutation) -> list[int]:
    """The second input of that Reshape: 0 for an unknown size that stays in its place, -1 for another."""
    moved = [sizes[axis] for axis in perm]
    return [
        size if isinstance(size, int) else 0 if axis == position else -1
        for position, (axis, size) in enumerate(zip(perm, moved, strict=True))
    ]


def permute_shape(sizes: ir.Shape | Sizes | None, perm: Permutation) -> ir.Shape | None:
    """The shape of a Transpose's result."""
    return None if sizes is None or len(sizes) != len(perm) else ir.Shape([sizes[axis] for axis in perm])


def full_rank(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """A shape with dimensions of size 1 in front, up to a rank."""
    return (*[1] * (rank - len(shape)), *shape)
