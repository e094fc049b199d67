"""The meaning of the dimensions of a weight, by the operator that reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ..freezing.scope import Node


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The dimensions of a weight, and their order in ONNX.

    Attributes:
        operator: the operator that reads it.
        dimensions: the dimensions, as TensorFlow has them.
        order: the dimensions in ONNX's order, by their positions; None where the order is the same.
        merges: whether ONNX has the first two dimensions of that order as one, and a dimension of 1 after it.
    """

    operator: str
    dimensions: tuple[str, ...]
    order: tuple[int, ...] | None = None
    merges: bool = False

    def in_onnx(self) -> tuple[str, ...]:
        """The dimensions in ONNX's order."""
        names = [self.dimensions[i] for i in self.order or range(len(self.dimensions))]
        return (f"{names[0]} * {names[1]}", "1", *names[2:]) if self.merges else tuple(names)

    def onnx_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape in ONNX's order; -1 is an unknown size."""
        sizes = [shape[i] for i in self.order or range(len(shape))]
        if not self.merges:
            return tuple(sizes)
        merged = -1 if -1 in sizes[:2] else sizes[0] * sizes[1]
        return (merged, 1, *sizes[2:])

    def to_onnx(self, array: np.ndarray) -> np.ndarray:
        """A weight in ONNX's order, a view where possible."""
        moved = array if self.order is None else array.transpose(self.order)
        return moved.reshape(self.onnx_shape(array.shape)) if self.merges else moved


def _filter(spatial: str, *, transposed: bool = False) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The dimensions of a convolution's filter: spatial dimensions first, and in ONNX last."""
    count = len(spatial)
    channels = ("out", "in") if transposed else ("in", "out")
    return (*spatial, *channels), (count + 1, count, *range(count))


_FILTERS: Mapping[tuple[str, int], tuple[tuple[str, ...], tuple[int, ...]]] = {
    **{(op, 1): _filter("hw") for op in ("Conv2D", "_FusedConv2D", "QuantizedConv2D")},
    ("Conv3D", 1): _filter("dhw"),
    ("Conv2DBackpropInput", 1): _filter("hw", transposed=True),
    **{(op, 1): _filter("dhw", transposed=True) for op in ("Conv3DBackpropInput", "Conv3DBackpropInputV2")},
}
_CHANNELS = {
    **{
        (op, i): ("channels",)
        for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
        for i in range(1, 5)
    },
    **{(op, 1): ("out",) for op in ("BiasAdd", "BiasAddV1")},
}
_DEPTHWISE = ("h", "w", "in", "mult"), (2, 3, 0, 1)
_ROWS = frozenset({("Gather", 0), ("GatherV2", 0), ("ResourceGather", 0)})
_PRODUCTS = {
    "MatMul": ("transpose_a", "transpose_b"),
    "_FusedMatMul": ("transpose_a", "transpose_b"),
    "SparseMatMul": ("transpose_a", "transpose_b"),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), ("adj_x", "adj_y")),
}
_CELLS: Mapping[tuple[str, int], tuple[str, ...]] = {
    ("LSTMBlockCell", 3): ("in + hidden", "4 * hidden"),
    ("BlockLSTM", 4): ("in + hidden", "4 * hidden"),
    ("BlockLSTMV2", 4): ("in + hidden", "4 * hidden"),
    ("GRUBlockCell", 2): ("in + hidden", "2 * hidden"),
    ("GRUBlockCell", 3): ("in + hidden", "hidden"),
}


def layout_of(node: Node, index: int, rank: int, expanded: tuple[int, ...] = ()) -> Layout | None:
    """The layout of an operator's input; None if the operator does not define one.

    Args:
        node: the operator.
        index: the position of the input.
        rank: the dimensions of the weight.
        expanded: the dimensions of the input that are added to the weight, each of size 1.
    """
    place = node.op, index
    found: Layout | None = None
    if place in _FILTERS:
        found = _without_dimensions(Layout(node.op, *_FILTERS[place]), expanded)
    elif place == ("DepthwiseConv2dNative", 1) and not expanded:
        found = Layout(node.op, *_DEPTHWISE, merges=True)
    elif place in _CHANNELS or place in _CELLS:
        found = Layout(node.op, _CHANNELS.get(place) or _CELLS[place])
    elif place in _ROWS and rank == 2:
        found = Layout(node.op, ("index", "features"))
    elif node.op in _PRODUCTS and index < 2 <= rank:
        transposed = node.attribute(_PRODUCTS[node.op][index]).b
        names = ("in", "out") if bool(index) != transposed else ("out", "in")
        found = Layout(node.op, (*("batch",) * (rank - 2), *names))
    elif node.op == "Einsum":
        found = _of_equation(node, index)
    return found if found is not None and len(found.dimensions) == rank else None


def _without_dimensions(layout: Layout, expanded: tuple[int, ...]) -> Layout:
    """Remove the dimensions that are added to a weight before it is read."""
    kept = [i for i in range(len(layout.dimensions)) if i not in expanded]
    order = tuple(kept.index(i) for i in layout.order or () if i in kept)
    # One remaining dimension of "h, w" is that of a one-dimensional convolution.
    names = tuple("w" if layout.dimensions[i] in "hw" and expanded else layout.dimensions[i] for i in kept)
    return Layout(layout.operator, names, order)


def _of_equation(node: Node, index: int) -> Layout | None:
    """The letters of an input in the equation of Einsum."""
    terms = node.attribute("equation").s.decode(errors="replace").split("->")[0].split(",")
    if index >= len(terms) or not terms[index].strip().isalpha():
        return None
    return Layout(node.op, tuple(terms[index].strip()))
