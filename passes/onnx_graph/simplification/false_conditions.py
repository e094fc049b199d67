"""ONNX pass: writes `Less(x, c)` as False where no element of x can be below the number c.

Attention without a score that is minus infinity has no row without a key, and needs no zeros for one.

1. A bound follows from constants, through selections, changes of shape, and operators whose results are never
   negative. NaN is not below any number.
2. The shape of the result is known, and a maximum is not one of no elements.
3. A causal mask compares each position with itself too, so no row of scores is without the first of the two
   numbers of its Where. `RemoveUniformValues` uses this for masks of any length.
4. Constants that are inputs too, or stay in another file, have no bound.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ....registration.dtypes import FLOATS
from ..constants.initializers import Initializers
from ..node_pass import ConstantPass, producer_of, replace_by_value
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
        self._bounds = LowerBounds(self.initializers)
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a comparison, if it never holds."""
        result = node.outputs[0]
        if result.shape is None or not result.shape.is_static() or result.is_graph_output():
            return False
        shape = result.shape.numpy()
        # The constant would make the file larger.
        if math.prod(shape) > _MAXIMUM_ELEMENTS or not self._bounds.is_never_less(node):
            return False
        replace_by_value(node, self.initializers.make(np.zeros(shape, dtype=bool), result.name or "never"))
        return True


class LowerBounds:
    """Numbers that no element of a value is below."""

    def __init__(self, initializers: Initializers):
        self._initializers = initializers
        self._bounds: dict[ir.Value, float | None] = {}

    def is_never_less(self, node: ir.Node) -> bool:
        """Whether no element of the first operand of a Less is below its second operand, a number."""
        x, limit = node.inputs
        number = self._constant_bound(limit) if limit is not None and _is_number(limit) else None
        bound = None if x is None or number is None else self._bound(x, 0)
        return number is not None and bound is not None and bound >= number

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
        kept_scores = _kept_scores(node, self._initializers) if node.op_type == "ReduceMax" else None
        if kept_scores is not None:
            return self._bound(kept_scores, depth + 1)
        if node.op_type.startswith("Reduce") and _may_be_empty(node.inputs[0]):
            return None
        data = {"Where": node.inputs[1:], "Concat": node.inputs}.get(node.op_type, node.inputs[:1])
        # A selection cannot produce a number below all of its operands.
        bounds = [None if operand is None else self._bound(operand, depth + 1) for operand in data]
        known_bounds = [bound for bound in bounds if bound is not None]
        return min(known_bounds) if known_bounds and len(known_bounds) == len(bounds) else None

    def _constant_bound(self, value: ir.Value) -> float | None:
        tensor = value.const_value
        if tensor is None or not self._initializers.is_constant(value) or tensor.dtype not in FLOATS:
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


def _kept_scores(node: ir.Node, initializers: Initializers) -> ir.Value | None:
    """What the Where in front of a ReduceMax selects on the diagonal of a causal mask; see rule 3."""
    where = producer_of(node.inputs[0], "Where")
    condition = where.inputs[0] if where is not None else None
    comparison = _before_expand(condition)
    if where is None or comparison is None or comparison.op_type not in ("LessOrEqual", "GreaterOrEqual"):
        return None
    axes = initializers.integers(node, "axes", 1)
    result, mask = where.outputs[0].shape, comparison.outputs[0].shape
    if axes is None or len(axes) != 1 or result is None or mask is None or len(result) != len(mask):
        return None
    columns, rows = (_position_axis(operand) for operand in comparison.inputs)
    if columns is None or rows is None or columns[0] is not rows[0] or columns[1] == rows[1]:
        return None
    return where.inputs[1] if axes[0] % len(mask) in (columns[1], rows[1]) else None


def _before_expand(value: ir.Value | None) -> ir.Node | None:
    """The node that computes a value, or the operand of the same rank that an Expand repeats."""
    node = value.producer() if value is not None else None
    if node is None or node.domain or node.op_type != "Expand":
        return None if node is None or node.domain else node
    source = node.inputs[0]
    shapes = [item.shape for item in (value, source) if item is not None and item.shape is not None]
    return source.producer() if source is not None and len({len(shape) for shape in shapes}) == 1 else None


def _position_axis(value: ir.Value | None) -> tuple[ir.Value, int] | None:
    """A vector, and the axis along which a value has its elements; the other axes have size 1."""
    node = _before_expand(value)
    shape = None if node is None else node.outputs[0].shape
    axes = [axis for axis, size in enumerate(shape or ()) if size != 1]
    while node is not None and node.op_type in ("Reshape", "Unsqueeze") and len(axes) == 1:
        source = node.inputs[0]
        if source is not None and source.shape is not None and len(source.shape) == 1:
            return source, axes[0]
        node = producer_of(source, "Reshape", "Unsqueeze")
    return None
