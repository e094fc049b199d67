"""The scores of an attention that is written out: queries, keys, a scale and masks.

Scores of the shape [batch, heads, length, keys] may come from matrices of the shape [batch * heads, length,
keys], and return to it before the Softmax, as in older models of Hugging Face.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from .....registration.size_algebra.dimensions import Dims, same_size
from ...node_pass import exclusive_producer, producer_of
from ...pattern_matcher import number
from .attention_masks import Term
from .transposed_keys import Keys, joins_heads, split_heads, split_keys, transposed_keys

_MAXIMUM_TERMS = 4
"""Masks that may follow one another."""


class Scores(NamedTuple):
    """The parts that scores are computed from.

    Attributes:
        query: the queries.
        keys: the keys.
        scale: the factor of the scores.
        terms: the masks, in the order in which they are applied.
        join: the Reshape that joins batch and heads of the queries, if the products are those of matrices.
    """

    query: ir.Value
    keys: Keys
    scale: float
    terms: Sequence[Term] = ()
    join: ir.Node | None = None

    @property
    def shape(self) -> Dims:
        """The shape of the scores."""
        assert self.query.shape is not None
        return (*self.query.shape[:-1], self.keys.shape[-2])


def read_scores(value: ir.Value | None) -> Scores | None:
    """The parts of a Softmax's input; None if it is not recognised as the scores of an attention."""
    joined = exclusive_producer(value, "Reshape")
    split = joined.inputs[0] if joined is not None else None
    if value is not None and split is not None and joins_heads(value, split):
        return _read_masks(split, _MAXIMUM_TERMS, is_joined=True)
    return _read_masks(value, _MAXIMUM_TERMS, is_joined=False)


def _read_masks(value: ir.Value | None, maximum: int, is_joined: bool) -> Scores | None:
    """The scores behind at most so many masks."""
    scores = _split_product(value) if is_joined else _product(value)
    if scores is not None or maximum == 0:
        return scores
    total = exclusive_producer(value, "Add")
    for index in (0, 1) if total is not None else ():
        mask = total.inputs[1 - index]  # type: ignore[union-attr]
        scores = _read_masks(total.inputs[index], maximum - 1, is_joined)  # type: ignore[union-attr]
        if scores is not None and mask is not None:
            return scores._replace(terms=[*scores.terms, Term(mask)])
    choice = exclusive_producer(value, "Where")
    for keeps, index in ((True, 1), (False, 2)) if choice is not None else ():
        condition, filler = choice.inputs[0], number(choice.inputs[3 - index])  # type: ignore[union-attr]
        if condition is not None and filler is not None:
            scores = _read_masks(choice.inputs[index], maximum - 1, is_joined)  # type: ignore[union-attr]
            if scores is not None:
                return scores._replace(terms=[*scores.terms, Term(condition, keeps, filler)])
    return None


def _product(value: ir.Value | None) -> Scores | None:
    """The product of queries and keys that equals a value, perhaps times numbers."""
    value, scale = _split_scale(value)
    product = exclusive_producer(value, "MatMul")
    if product is None:
        return None
    (query, a), (key, b) = (_split_scale(operand) for operand in product.inputs)
    # Queries, keys and scores may each be scaled, as some models do against overflow.
    scale *= a * b
    keys = transposed_keys(key) if key is not None else None
    if query is None or keys is None or not 0 < scale < math.inf:
        return None
    return Scores(query, keys, scale)


def _split_product(value: ir.Value | None) -> Scores | None:
    """The product of matrices whose first dimension is split into batch and heads."""
    reshape = exclusive_producer(value, "Reshape")
    matrices = reshape.inputs[0] if reshape is not None else None
    scores = _product(matrices) if value is not None and matrices is not None else None
    if value is None or scores is None or matrices is None or not joins_heads(matrices, value):
        return None
    query, keys = split_heads(scores.query), split_keys(scores.keys)
    if query is None or keys is None or query.shape is None or value.shape is None:
        return None
    if not all(same_size(*pair) for pair in zip(query.shape[:2], value.shape[:2], strict=True)):
        return None
    return scores._replace(query=query, keys=keys, join=producer_of(scores.query, "Reshape"))


def _split_scale(value: ir.Value | None) -> tuple[ir.Value | None, float]:
    """A value without the number that it is multiplied with or divided by, and that factor."""
    node = exclusive_producer(value, "Mul", "Div")
    if node is None:
        return value, 1.0
    # Only a divisor can be a scale of the dividend.
    for index in (1, 0) if node.op_type == "Mul" else (1,):
        factor, operand = number(node.inputs[index]), node.inputs[1 - index]
        if factor and operand is not None:
            return operand, factor if node.op_type == "Mul" else 1 / factor
    return value, 1.0
