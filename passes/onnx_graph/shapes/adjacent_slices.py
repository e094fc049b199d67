"""ONNX pass: writes Slices that together take all of a tensor as one Split.

    Slice(x, 0, 4), Slice(x, 4, 8)      becomes      Split(x, [4, 4])

1. Bounds are constants, steps are 1, and each Slice takes one axis, whose size is known.
2. The parts lie next to each other, from the start of the axis to its end.
3. The tensor has floats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ....registration.dtypes import FLOATS
from ....registration.origins import inherit
from ..node_pass import ConstantPass, new_split
from ..pass_order import Run


class _AxisPart(NamedTuple):
    """The part of an axis that a Slice takes."""

    axis: int
    start: int
    end: int
    node: ir.Node


class SplitSlices(ConstantPass):
    """Replaces the Slices of a tensor by a Split."""

    runs = (Run("full", after={"FuseRotaryEmbedding": "A rotary embedding takes both halves by Slices."}),)
    op_types = ("Slice",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a Slice, and the others of its tensor, if they take all of an axis."""
        source, first = node.inputs[0], self._part(node)
        if source is None or first is None or node.graph is None or len(source.uses()) < 2:
            return False
        if source.dtype not in FLOATS:
            # Forms of masks and positions for devices know Slices.
            return False
        readers = [reader for reader, index in source.uses() if not index and reader.graph is node.graph]
        candidates = [
            part for part in map(self._part, readers) if part is not None and part.axis == first.axis
        ]
        parts = sorted(candidates, key=lambda part: part.start)
        size = source.shape[first.axis] if source.shape is not None else None
        bounds = [0, *(part.end for part in parts)]
        if len(parts) < 2 or bounds[-1] != size or bounds[:-1] != [part.start for part in parts]:
            return False
        self._split(node, source, [part.node for part in parts], first.axis, np.diff(bounds))
        return True

    def _part(self, node: ir.Node) -> _AxisPart | None:
        source = node.inputs[0]
        if node.op_type != "Slice" or node.domain or source is None or source.shape is None:
            return None
        starts, ends = (self.initializers.integers(node, name, i) for name, i in (("starts", 1), ("ends", 2)))
        axes = self.initializers.integers(node, "axes", 3)
        steps = self.initializers.small_array(node.inputs[4]) if len(node.inputs) > 4 else np.ones(1)
        if not starts or not ends or not axes or steps is None or (steps != 1).any() or len(axes) > 1:
            return None
        axis = axes[0] % len(source.shape)
        size = source.shape[axis]
        if not isinstance(size, int):
            return None
        start, end, _ = slice(starts[0], ends[0]).indices(size)
        return _AxisPart(axis, start, end, node) if start < end else None

    def _split(
        self, first: ir.Node, source: ir.Value, slices: list[ir.Node], axis: int, sizes: np.ndarray
    ) -> None:
        split = new_split(first, self.initializers, source, axis, sizes.tolist(), "Split", self.opset)
        graph = first.graph
        assert graph is not None
        graph.insert_before(first, split)
        inherit(split, *slices)
        for node, result in zip(slices, split.outputs, strict=True):
            old = node.outputs[0]
            result.name, result.type, result.shape = old.name, old.type, old.shape
            old.replace_all_uses_with(result, replace_graph_outputs=True)
            graph.remove(node, safe=True)
