"""Finds dropout without effect: its mask keeps every element whatever the random numbers are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .ranges import IDENTITIES, RANDOM
from .scope import MessageNode, ResultName
from .scope_analysis import ScopeAnalysis

_COMPARISONS = frozenset(
    "Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot".split()
)
_ARITHMETIC = frozenset("Mul RealDiv Div Add AddV2 Sub".split())
_TYPE_ATTRIBUTES = {
    "Cast": "DstT",
    "RandomUniform": "T",
    "StatelessRandomUniform": "T",
    "StatelessRandomUniformV2": "Tshape",
}
"""The attribute with the element type of an operator's result, or of a random operator's shape input."""
_BOOL = 10


class FilledMask(NamedTuple):
    """A mask whose elements are all the same.

    Attributes:
        shape: its shape.
        value: the element.
        dtype: the element type.
        shape_dtype: the element type of the shape.
    """

    shape: ResultName
    value: float
    dtype: int
    shape_dtype: int


DropoutReplacement = FilledMask | ResultName
"""The replacement of a node: a constant mask, or the result that the node returns unchanged."""


def replace_full_dropout(
    analysis: ScopeAnalysis, order: Sequence[MessageNode]
) -> dict[str, DropoutReplacement]:
    """Return the replacements of dropout nodes that keep every element."""
    replacements: dict[str, DropoutReplacement] = {}
    masks: dict[str, MessageNode] = {}
    for node in order:
        element_range = analysis.ranges.get(node.name)
        if node.name in analysis.dead:
            continue
        if element_range is not None and not element_range.is_scalar:
            source = _random_source(analysis, node, masks)
            if source is None:
                continue
            masks[node.name] = source
            mask_constant = _constant_mask(node, element_range.point, source)
            if mask_constant is not None:
                replacements[node.name] = mask_constant
            continue
        masked_value = _kept_value(analysis, node)
        if masked_value is None:
            continue
        mask, value = masked_value
        source = masks.get(analysis.root(mask).node)
        if source is not None and _has_shape_of_value(analysis, source, value):
            replacements[node.name] = value
            # Dropout divides by the probability of keeping an element, which is 1 here.
            unscaled = _unscaled_operand(analysis, value)
            if unscaled is not None:
                replacements[value.node] = unscaled
    return replacements


def _random_source(
    analysis: ScopeAnalysis, node: MessageNode, masks: dict[str, MessageNode]
) -> MessageNode | None:
    """The random operator that a node is computed from, if the node's other inputs are scalars."""
    if node.op in RANDOM:
        return node
    with_dimensions = [
        r
        for r in node.inputs
        if (element_range := analysis.range_of(r)) is None or not element_range.is_scalar
    ]
    return masks.get(with_dimensions[0].node) if len(with_dimensions) == 1 else None


def _constant_mask(node: MessageNode, value: float | None, source: MessageNode) -> FilledMask | None:
    """The constant mask that replaces a node; None if its elements or its element type are unknown."""
    dtype = _BOOL if node.op in _COMPARISONS else node.attribute(_TYPE_ATTRIBUTES.get(node.op, "T")).type
    shape_dtype = source.attribute(_TYPE_ATTRIBUTES[source.op]).type
    if value is None or not dtype or not shape_dtype:
        return None
    return FilledMask(source.inputs[0], value, dtype, shape_dtype)


def _kept_value(analysis: ScopeAnalysis, node: MessageNode) -> tuple[ResultName, ResultName] | None:
    """The mask and the masked value of a node, if the mask keeps every element."""
    if node.op == "Mul" and len(node.inputs) == 2:
        for mask, value in (node.inputs, node.inputs[::-1]):
            mask_range = analysis.range_of(mask)
            if mask_range is not None and mask_range.point == 1 and not mask_range.is_scalar:
                return mask, value
    if node.op in ("Select", "SelectV2") and len(node.inputs) == 3:
        mask_range = analysis.range_of(node.inputs[0])
        if mask_range is not None and mask_range.point == 1 and not mask_range.is_scalar:
            return node.inputs[0], node.inputs[1]
    return None


def _has_shape_of_value(analysis: ScopeAnalysis, source: MessageNode, value: ResultName) -> bool:
    """Whether random numbers have the shape of a value, because a Shape of that value gives their shape."""
    shape = analysis.scope.nodes.get(analysis.root(source.inputs[0]).node)
    return (
        shape is not None
        and shape.op == "Shape"
        and _shape_origin(analysis, shape.inputs[0]) == _shape_origin(analysis, value)
    )


def _shape_origin(analysis: ScopeAnalysis, result: ResultName) -> ResultName:
    """The tensor from which a result is computed with scalars only, which has the same shape."""
    while (node := analysis.scope.nodes.get(result.node)) is not None and node.name not in analysis.dead:
        if node.op in IDENTITIES - {"Enter", "Exit"} or node.op == "Cast":
            with_dimensions = node.inputs[:1]
        elif node.op in _ARITHMETIC:
            with_dimensions = tuple(
                r
                for r in node.inputs
                if (element_range := analysis.range_of(r)) is None or not element_range.is_scalar
            )
        else:
            break
        if len(with_dimensions) != 1:
            break
        result = with_dimensions[0]
    return result


def _unscaled_operand(analysis: ScopeAnalysis, result: ResultName) -> ResultName | None:
    """The operand of a product or quotient whose other operand is 1; None if there is no such operand."""
    node = analysis.scope.nodes.get(result.node)
    if node is None or node.op not in ("Mul", "RealDiv") or len(node.inputs) != 2:
        return None
    for value, factor in (node.inputs, node.inputs[::-1])[: 2 if node.op == "Mul" else 1]:
        factor_range = analysis.range_of(factor)
        if factor_range is not None and factor_range.point == 1 and factor_range.is_scalar:
            return value
    return None
