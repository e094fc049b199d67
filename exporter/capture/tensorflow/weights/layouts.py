"""The meaning of the dimensions of a weight, by the operator that reads it."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ..node_messages import MessageNode


@dataclasses.dataclass(frozen=True, slots=True)
class WeightLayout:
    """The dimensions of a weight, and their order in ONNX.

    Attributes:
        operator: the operator that reads it.
        dimensions: the names of the dimensions, in TensorFlow's order.
        order: the indices of the dimensions in ONNX's order; None if the order is the same.
        merges_channels: whether ONNX merges the first two dimensions of that order into one, followed by a
            dimension of size 1: a depthwise convolution is a Conv with groups.
    """

    operator: str
    dimensions: tuple[str, ...]
    order: tuple[int, ...] | None = None
    merges_channels: bool = False

    def in_onnx(self) -> tuple[str, ...]:
        """The dimensions in ONNX's order."""
        names = [self.dimensions[i] for i in self.order or range(len(self.dimensions))]
        return (f"{names[0]} * {names[1]}", "1", *names[2:]) if self.merges_channels else tuple(names)

    def onnx_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape in ONNX's order; -1 is an unknown size."""
        sizes = [shape[i] for i in self.order or range(len(shape))]
        if not self.merges_channels:
            return tuple(sizes)
        merged = -1 if -1 in sizes[:2] else sizes[0] * sizes[1]
        return (merged, 1, *sizes[2:])

    def to_onnx(self, array: np.ndarray) -> np.ndarray:
        """A weight in ONNX's order, a view where possible."""
        transposed = array if self.order is None else array.transpose(self.order)
        return transposed.reshape(self.onnx_shape(array.shape)) if self.merges_channels else transposed


def _filter(spatial: str, *, transposed: bool = False) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The dimensions of a convolution's filter, spatial dimensions first, and their order in ONNX."""
    count = len(spatial)
    channels = ("out", "in") if transposed else ("in", "out")
    return (*spatial, *channels), (count + 1, count, *range(count))


_FILTERS: Mapping[tuple[str, int], tuple[tuple[str, ...], tuple[int, ...]]] = {
    **{(op, 1): _filter("hw") for op in ("Conv2D", "_FusedConv2D", "QuantizedConv2D")},
    ("Conv3D", 1): _filter("dhw"),
    ("Conv2DBackpropInput", 1): _filter("hw", transposed=True),
    **{(op, 1): _filter("dhw", transposed=True) for op in ("Conv3DBackpropInput", "Conv3DBackpropInputV2")},
}
_CHANNEL_INPUTS = {
    **{
        (op, i): ("channels",)
        for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
        for i in range(1, 5)
    },
    **{(op, 1): ("out",) for op in ("BiasAdd", "BiasAddV1")},
}
_DEPTHWISE = ("h", "w", "in", "mult"), (2, 3, 0, 1)
_ROW_INPUTS = frozenset({("Gather", 0), ("GatherV2", 0), ("ResourceGather", 0)})
_PRODUCTS = {
    "MatMul": ("transpose_a", "transpose_b"),
    "_FusedMatMul": ("transpose_a", "transpose_b"),
    "SparseMatMul": ("transpose_a", "transpose_b"),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), ("adj_x", "adj_y")),
}
_CELL_INPUTS: Mapping[tuple[str, int], tuple[str, ...]] = {
    ("LSTMBlockCell", 3): ("in + hidden", "4 * hidden"),
    ("BlockLSTM", 4): ("in + hidden", "4 * hidden"),
    ("BlockLSTMV2", 4): ("in + hidden", "4 * hidden"),
    ("GRUBlockCell", 2): ("in + hidden", "2 * hidden"),
    ("GRUBlockCell", 3): ("in + hidden", "hidden"),
}


def layout_of(
    node: MessageNode, index: int, rank: int, expanded: tuple[int, ...] = ()
) -> WeightLayout | None:
    """The layout of an operator's input; None if the operator does not define one.

    `expanded` has the dimensions of size 1 that ExpandDims adds to the weight before the operator reads it.
    """
    input_key = node.op, index
    layout: WeightLayout | None = None
    if input_key in _FILTERS:
        layout = _without_dimensions(WeightLayout(node.op, *_FILTERS[input_key]), expanded)
    elif input_key == ("DepthwiseConv2dNative", 1) and not expanded:
        layout = WeightLayout(node.op, *_DEPTHWISE, merges_channels=True)
    elif input_key in _CHANNEL_INPUTS or input_key in _CELL_INPUTS:
        layout = WeightLayout(node.op, _CHANNEL_INPUTS.get(input_key) or _CELL_INPUTS[input_key])
    elif input_key in _ROW_INPUTS and rank == 2:
        layout = WeightLayout(node.op, ("index", "features"))
    elif node.op in _PRODUCTS and index < 2 <= rank:
        transposed = node.attribute(_PRODUCTS[node.op][index]).b
        names = ("in", "out") if bool(index) != transposed else ("out", "in")
        layout = WeightLayout(node.op, (*("batch",) * (rank - 2), *names))
    elif node.op == "Einsum":
        terms = node.attribute("equation").s.decode(errors="replace").split("->")[0].split(",")
        # Terms with an ellipsis do not name every dimension.
        if index < len(terms) and terms[index].strip().isalpha():
            layout = WeightLayout(node.op, tuple(terms[index].strip()))
    return layout if layout is not None and len(layout.dimensions) == rank else None


def _without_dimensions(layout: WeightLayout, expanded: tuple[int, ...]) -> WeightLayout:
    """Remove the dimensions that ExpandDims adds to a weight before the operator reads it."""
    remaining = [i for i in range(len(layout.dimensions)) if i not in expanded]
    order = tuple(remaining.index(i) for i in layout.order or () if i in remaining)
    # If "h" or "w" is removed, the other one is the only spatial dimension: Conv1D is written as Conv2D.
    names = tuple(
        "w" if layout.dimensions[i] in "hw" and expanded else layout.dimensions[i] for i in remaining
    )
    return WeightLayout(layout.operator, names, order)
