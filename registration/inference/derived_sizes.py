"""Sizes that are derived from others: products with a number, and the lesser of a number and a size.

Two derived sizes are equal if they are written in the same way, as torch.onnx writes them: `64*batch`.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from . import shape_inference
from .shape_inference import Dim, Dims

UNKNOWN = ir.SymbolicDim(None)


class _Product(ir.SymbolicDim):
    """A size times a number over 1."""

    def __init__(self, count: int, size: ir.SymbolicDim):
        super().__init__(f"{count}*{size.value}")
        self.count, self.size = count, size


class _Least(ir.SymbolicDim):
    """The lesser of a number over 1 and a size."""

    def __init__(self, limit: int, size: ir.SymbolicDim):
        super().__init__(f"Min({limit}, {size.value})")
        self.size = size


def product(a: Dim, b: Dim) -> Dim:
    """The product of two sizes."""
    (count, size), (other_count, factor) = _factors(a), _factors(b)
    if size is not None and factor is not None:
        return UNKNOWN
    return _multiple(count * other_count, size or factor)


def quotient(a: Dim, b: Dim) -> Dim:
    """The quotient of two sizes; unknown if it may not be a whole number."""
    (count, size), (divisor, factor) = _factors(a), _factors(b)
    if divisor < 1 or count % divisor or (factor is not None and (factor != size or size == UNKNOWN)):
        return UNKNOWN
    return _multiple(count // divisor, size if factor is None else None)


def least(limit: int, size: ir.SymbolicDim) -> Dim:
    """The lesser of a number and a size that has a name."""
    return _Least(limit, size) if limit > 1 else UNKNOWN


def broadcast(shapes: Sequence[Dims]) -> list[Dim]:
    """The sizes to which shapes are broadcast.

    Min(n, s) is broadcast with s only where they are equal or one of them is 1. n is over 1, so that the
    result is s.
    """
    sizes = [*shape_inference.broadcast(shapes)]
    for axis in range(-len(sizes), 0):
        dims = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        limited_sizes = {dim.size for dim in dims if isinstance(dim, _Least)} & dims
        if len(dims) == 2 and limited_sizes:
            sizes[axis] = limited_sizes.pop()
    return sizes


def _factors(size: Dim) -> tuple[int, ir.SymbolicDim | None]:
    """The number and the named size whose product a size is."""
    if isinstance(size, int):
        return size, None
    return (size.count, size.size) if isinstance(size, _Product) else (1, size)


def _multiple(count: int, size: ir.SymbolicDim | None) -> Dim:
    if size is None or count == 1:
        return count if size is None else size
    return UNKNOWN if size.value is None or count < 1 else _Product(count, size)
