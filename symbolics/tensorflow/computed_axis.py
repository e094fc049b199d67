"""An axis that the model computes, for operators whose axis must be constant in ONNX."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...registration import DataType, GraphContext, Value
from ..compositions.size_arithmetic import known_rank
from ._common import number, set_shape


@dataclasses.dataclass(frozen=True)
class ComputedAxis:
    """A computed axis of tensors of one rank, which are viewed as `[before, size of the axis, behind]`.

    Attributes:
        position: the axis, from the front.
        rank: that of the tensors.
    """

    g: GraphContext
    position: Value
    rank: int

    @classmethod
    def of(cls, g: GraphContext, axis: Value, value: Value) -> ComputedAxis:
        """The axis of a tensor whose rank must be known; a negative one counts from the end."""
        rank = known_rank(g, value)
        position = g.call("sym::mod", a=g.call("sym::add", a=number(g, axis), b=rank), b=rank)
        return cls(g, g.constant(position), rank)

    def view(self, value: Value) -> Value:
        """The tensor with three dimensions; the axis is the second one."""
        g = self.g
        shape, numbers = g.op("Shape", value), self._numbers(self.rank)
        outer, inner = (
            g.op("ReduceProd", g.op("Where", g.op(comparison, numbers, self.position), shape, 1), keepdims=0)
            for comparison in ("Less", "Greater")
        )
        size = g.op("Gather", shape, self.position, axis=0)
        return g.call("aten::reshape", self=value, shape=[outer, size, inner])

    def restore(self, view: Value, value: Value) -> Value:
        """The dimensions of `value` for a result whose axis may have another size."""
        g, size = self.g, self.g.constant(self.g.size(view, 1))
        is_axis = g.op("Equal", self._numbers(self.rank), self.position)
        return self._reshape(view, g.op("Where", is_axis, size, g.op("Shape", value)), self.rank)

    def restore_without_axis(self, view: Value, value: Value) -> Value:
        """The other dimensions of `value` for a result `[before, behind]`."""
        return self.restore_with_dims(view, value, self.g.constant([], DataType.INT64), 0)

    def restore_with_dims(self, view: Value, value: Value, dims: Value, count: int) -> Value:
        """Dimensions in place of the axis, for a result `[before, *dims, behind]`.

        Args:
            dims: a vector of sizes.
            count: their number.
        """
        g = self.g
        numbers = self._numbers(self.rank - 1 + count)
        # The sizes of the tensor come before those of `dims` in the vector that is gathered from.
        inserted = g.op("Add", g.op("Sub", numbers, self.position), self.rank)
        after = g.op("Sub", numbers, count - 1)
        is_inserted = g.op("Less", numbers, g.op("Add", self.position, count))
        source = g.op("Where", is_inserted, inserted, after)
        source = g.op("Where", g.op("Less", numbers, self.position), numbers, source)
        sizes = g.op("Concat", g.op("Shape", value), dims, axis=0)
        return self._reshape(view, g.op("Gather", sizes, source, axis=0), self.rank - 1 + count)

    def _numbers(self, count: int) -> Value:
        return self.g.constant(np.arange(count), DataType.INT64)

    def _reshape(self, view: Value, shape: Value, rank: int) -> Value:
        return set_shape(self.g.call("aten::reshape", self=view, shape=shape), [None] * rank)
