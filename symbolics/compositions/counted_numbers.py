"""Which numbers an index may have, and whether counts of classes add up to the number of elements.

Routers of mixture-of-experts layers select experts by TopK, and count the rows of each.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...registration.inference.constant_integers import argument
from ...registration.size_algebra.dimensions import same_size

_SELECTIONS = frozenset("Cast Flatten Gather Identity Reshape Slice Squeeze Transpose Unsqueeze".split())
_MAXIMUM_STEPS = 16


def before_casts(value: ir.Value) -> ir.Node | None:
    """The ONNX node whose result, perhaps cast, is a value."""
    node = value.producer()
    while node is not None and node.op_type == "Cast" and not node.domain and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node if node is not None and not node.domain else None


def counted_numbers(counts: ir.Value, rows: ir.Shape | None, classes: int) -> ir.Value | None:
    """The column of numbers whose counts are given, if these add up to the number of rows.

    Each number is then 0, 1, … or `classes` - 1, and there is one for each row.

    Args:
        counts: the sum of comparisons of each element with each class, as `aten::histc` writes it.
        rows: a shape whose first size is the number of rows.
    """
    total = before_casts(counts)
    equal = before_casts(total.inputs[0]) if total is not None and total.inputs[0] is not None else None
    if total is None or total.op_type != "ReduceSum" or argument(total, "axes", 1) != [0]:
        return None
    if equal is None or equal.op_type != "Equal":
        return None
    column, numbers = equal.inputs
    if column is None or numbers is None or numbers.const_value is None or column.shape is None or not rows:
        return None
    is_each_class = np.array_equal(numbers.const_value.numpy(), np.arange(classes))
    is_column = len(column.shape) == 2 and column.shape[1] == 1 and same_size(column.shape[0], rows[0])
    limit = _index_limit(column)
    return column if is_each_class and is_column and limit is not None and limit <= classes else None


def _index_limit(value: ir.Value | None) -> int | None:
    """A number above each element of a value that selects positions along an axis; None if it is unknown."""
    for _ in range(_MAXIMUM_STEPS):
        node = value.producer() if value is not None else None
        if value is None or node is None or node.domain or not node.inputs:
            return None
        source = node.inputs[0]
        if node.op_type == "ArgMax" or (node.op_type == "TopK" and value is node.outputs[1]):
            axis = node.attributes.get_int("axis", -1 if node.op_type == "TopK" else 0)
            size = None if source is None or source.shape is None else source.shape[axis]
            return size if isinstance(size, int) else None
        # The values that a TopK sorts are elements of its operand.
        if node.op_type not in _SELECTIONS and node.op_type != "TopK":
            return None
        value = source
    return None
