"""Folds operators on small constants, for sources without shapes.

TensorFlow and Caffe2 compute axes, permutations and sizes with operators that other sources need for tensors
only, such as ListDiff and Unique. Integers have no rounding, so numpy gives what a runtime gives. Floats are
folded in vectors that are as short as axes, as the constant folding of the finished graph does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import folding
from .constant_integers import MAXIMUM_RANK
from .folding import MAXIMUM_ELEMENTS, Array, Attributes

_INTEGER_DTYPE_KINDS = "biu"


def _non_zero(attributes: Attributes, data: Array) -> list[Array]:
    # numpy has no positions of a scalar; ONNX counts it as a vector of one element.
    return [np.asarray(np.nonzero(np.atleast_1d(data)), dtype=np.int64)]


def _compress(attributes: Attributes, data: Array, condition: Array) -> list[Array]:
    return [np.compress(condition, data, axis=attributes.get("axis"))]


def _scatter_elements(
    attributes: Attributes, data: Array, indices: Array, updates: Array
) -> list[Array] | None:
    # Sizes and axes are vectors, for which numpy's assignment is a scatter.
    if attributes.get("reduction", "none") != "none" or data.ndim != 1:
        return None
    result = data.copy()
    result[indices] = updates
    return [result]


def _scatter_nd(attributes: Attributes, data: Array, indices: Array, updates: Array) -> list[Array] | None:
    if attributes.get("reduction", "none") != "none":
        return None
    result = data.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return [result]


def _split(attributes: Attributes, data: Array, *lengths: Array) -> list[Array] | None:
    sizes = lengths[0].tolist() if lengths else attributes.get("split")
    axis = attributes.get("axis", 0)
    if sizes is None or sum(sizes) != data.shape[axis]:
        return None
    return np.split(data, np.cumsum(sizes)[:-1], axis=axis)


def _top(attributes: Attributes, data: Array, *count: Array) -> list[Array] | None:
    """TopK of a vector; a stable sort keeps equal elements in order, as ONNX demands."""
    # Negation orders downwards, which would wrap around for unsigned integers.
    if data.ndim != 1 or data.dtype.kind != "i":
        return None
    number = int(count[0].item()) if count else attributes["k"]
    order = np.argsort(-data if attributes.get("largest", 1) else data, kind="stable")[:number]
    return [data[order], order.astype(np.int64)] if len(order) == number else None


def _unique(attributes: Attributes, data: Array) -> list[Array] | None:
    if "axis" in attributes and data.ndim != 1:
        return None
    values, first, inverse, counts = np.unique(
        data.reshape(-1), return_index=True, return_inverse=True, return_counts=True
    )
    if not attributes.get("sorted", 1):
        # Without `sorted`, elements come in the order of their first occurrence; numpy sorts them.
        order = np.argsort(first)
        values, first, counts = values[order], first[order], counts[order]
        # The inverse of the permutation gives the new position of each old one.
        inverse = np.argsort(order)[inverse]
    return [values, *(item.astype(np.int64) for item in (first, inverse, counts))]


_EVALUATORS: dict[str, Callable[..., list[Array] | None]] = {
    "Compress": _compress,
    "NonZero": _non_zero,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Split": _split,
    "TopK": _top,
    "Unique": _unique,
}


def evaluate(
    op_type: str, inputs: Sequence[Array | None], attributes: Attributes, outputs: int
) -> list[Array] | None:
    """Compute the first outputs of an operator on constants; None if it is not folded.

    Operators that fail are not folded: the node may be in a branch that never runs.
    """
    if any(array is None or array.size > MAXIMUM_ELEMENTS for array in inputs):
        return None
    exact = all(array is not None and array.dtype.kind in _INTEGER_DTYPE_KINDS for array in inputs)
    evaluator = _EVALUATORS.get(op_type)
    if evaluator is None:
        limit = MAXIMUM_ELEMENTS if exact else MAXIMUM_RANK
        result = None
        if outputs == 1:
            result = folding.evaluate(op_type, inputs, attributes, condition=True, limit=limit)
        return None if result is None else [result]
    if not exact:
        return None
    try:
        results: Any = evaluator(attributes, *inputs)
    # Invalid constants of a file stay in the graph, where a runtime refuses them if they are reached.
    except (ValueError, IndexError, TypeError):
        return None
    return None if results is None or len(results) < outputs else results[:outputs]
