"""Recognises models in which onnx's shape inference may compute a negative size and then slice it.

onnx's inference of `Slice` ends the process for a negative size, and for a negative step through a size of 0.
A size may be negative if it is a negative constant or a difference, or if a window is larger than the image.
Most models with a `Slice` have none of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx
from onnx import numpy_helper

from ..files.reading.subgraphs import with_subgraphs

_WINDOWS = frozenset(
    "AveragePool Col2Im Conv ConvInteger ConvTranspose DeformConv LpPool MaxPool MaxUnpool "
    "QLinearConv".split()
)
_PROPAGATED = frozenset("Add Cast Concat Div Gather Identity Mul Reshape Slice Squeeze Unsqueeze".split())
"""Operators whose results inference computes from numbers; they are negative if an operand is."""
_OF_FIRST = ("Gather", "Reshape", "Slice", "Squeeze", "Unsqueeze")
"""Operators whose further operands are positions, axes and shapes, so that only the first one counts."""
_SIZED: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "DFT": (1,),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MelWeightMatrix": (0, 1),
    "OneHot": (1,),
    "Pad": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (4,),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Upsample": (1,),
}
"""By operator, the positions of operands whose numbers become sizes of the result; of Slice, the steps."""
_AXES = frozenset("axes axis ends k perm starts value value_int value_ints".split())
"""Attributes that may be negative without making a size negative."""
_FEW = 64


def may_slice_negative_sizes(model: onnx.ModelProto) -> bool:
    """Whether inference of a model with `Slice` may meet a negative size, or step backwards."""
    graphs = list(with_subgraphs(model.graph))
    if not any(node.op_type == "Slice" for graph in graphs for node in graph.node):
        return False
    negative: set[str] = set()
    for graph in graphs:
        negative.update(tensor.name for tensor in graph.initializer if _is_negative(tensor))
        for node in graph.node:
            if node.domain not in ("", "ai.onnx"):
                continue
            # A window larger than its image makes a negative size without any negative number.
            if node.op_type in _WINDOWS or _makes_negative_size(node, negative):
                return True
            if _is_negative_result(node, negative):
                negative.update(node.output)
    return False


def _makes_negative_size(node: onnx.NodeProto, negative: set[str]) -> bool:
    if any(a.name not in _AXES and min((a.i, *a.ints[:_FEW]), default=0) < 0 for a in node.attribute):
        return True
    positions = _SIZED.get(node.op_type, ())
    return any(node.input[position] in negative for position in positions if position < len(node.input))


def _is_negative_result(node: onnx.NodeProto, negative: set[str]) -> bool:
    if node.op_type == "Constant":
        return any(
            _is_negative(attribute.t)
            if attribute.HasField("t")
            else min((attribute.i, *attribute.ints[:_FEW])) < 0
            for attribute in node.attribute
        )
    # The operands may be unknown, so any difference counts as negative.
    if node.op_type in ("Sub", "Neg"):
        return True
    operands: Iterable[str] = node.input[:1] if node.op_type in _OF_FIRST else node.input
    return node.op_type in _PROPAGATED and not negative.isdisjoint(operands)


def _is_negative(tensor: onnx.TensorProto) -> bool:
    # Large constants and floats cannot be sizes.
    is_few = math.prod(tensor.dims) <= _FEW and (tensor.raw_data or tensor.int64_data or tensor.int32_data)
    if not is_few or tensor.data_type not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
        return False
    return bool((numpy_helper.to_array(tensor) < 0).any())
