"""ONNX pass: writes `Less(x, c)` as False where no element of x can be below the number c.

Attention without a score that is minus infinity has no row without a key, and needs no zeros for one.

1. A bound follows from constants, through selections, changes of shape, and operators whose results are never
   negative. NaN is not below any number.
2. The shape of the result is known, and a maximum is not one of no elements.
3. Constants that are inputs too, or stay in another file, have no bound.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ....registration.dtypes import FLOATS
from ..node_pass import ConstantPass, replace_by_value
from ..pass_order import Run

_SELECTIONS = frozenset(
    "Concat Expand Flatten Gather Identity ReduceMax ReduceMin Reshape Slice Squeeze Tile Transpose "
    "Unsqueeze Where".split()
)
_NOT_NEGATIVE = frozenset("Abs Exp Relu Sigmoid Softmax".split())
_MAXIMUM_ELEMENTS = 2**18
"""Larger constants are not read."""
_MAXIMUM_STEPS = 64


class FindFalseConditions(ConstantPass):
    """Replaces comparisons that never hold."""

    runs = (Run("basic", after={"FoldSmallResults": "Bounds follow from constants, such as folded masks."}),)
    op_types = ("Less",)

    def begin(self, model: ir.Model) -> bool:
        """Forget the bounds of another model."""
        self._bounds: dict[ir.Value, float | None] = {}
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a comparison, if it never holds."""
        (x, limit), result = node.inputs, node.outputs[0]
        number = self._constant_bound(limit) if limit is not None and _is_number(limit) else None
        if x is None or number is None or result.shape is None or not result.shape.is_static():
            return False
        bound = self._bound(x, 0)
        if bound is None or bound < number or result.is_graph_output():
            return False
        shape = result.shape.numpy()
        # The constant would make the file larger.
        if math.prod(shape) > _MAXIMUM_ELEMENTS:
            return False
        replace_by_value(node, self.initializers.make(np.zeros(shape, dtype=bool), result.name or "never"))
        return True

    def _bound(self, value: ir.Value, depth: int) -> float | None:
        """A number that no element of a value is below."""
        if value not in self._bounds:
            self._bounds[value] = self._compute_bound(value, depth)
        return self._bounds[value]

    def _compute_bound(self, value: ir.Value, depth: int) -> float | None:
        node = value.producer()
        if node is None:
            return self._constant_bound(value)
        if node.domain or depth > _MAXIMUM_STEPS:
            return None
        if node.op_type in _NOT_NEGATIVE:
            return 0.0
        if node.op_type not in _SELECTIONS:
            return None
        if node.op_type.startswith("Reduce") and _may_be_empty(node.inputs[0]):
            return None
        data = {"Where": node.inputs[1:], "Concat": node.inputs}.get(node.op_type, node.inputs[:1])
        # A selection cannot produce a number below all of its operands.
        bounds = [None if operand is None else self._bound(operand, depth + 1) for operand in data]
        known_bounds = [bound for bound in bounds if bound is not None]
        return min(known_bounds) if known_bounds and len(known_bounds) == len(bounds) else None

    def _constant_bound(self, value: ir.Value) -> float | None:
        tensor = value.const_value
        if tensor is None or not self.initializers.is_constant(value) or tensor.dtype not in FLOATS:
            return None
        if not 0 < tensor.size <= _MAXIMUM_ELEMENTS:
            return None
        array = tensor.numpy().astype(np.float64)
        # Rule 1: comparisons with NaN are false.
        array = array[~np.isnan(array)]
        return float(array.min()) if array.size else np.inf


def _is_number(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.size == 1


def _may_be_empty(value: ir.Value | None) -> bool:
    return value is None or value.shape is None or not value.shape.is_static() or 0 in value.shape
