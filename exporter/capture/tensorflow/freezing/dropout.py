"""Finds dropout without effect: masks that keep every element, for any random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .conditions import Conditions
from .ranges import IDENTITIES, RANDOM
from .scope import Node, Reference

_COMPARISONS = frozenset(
    "Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot".split()
)
_SCALED = frozenset("Mul RealDiv Div Add AddV2 Sub".split())
_TYPES = {
    "Cast": "DstT",
    "RandomUniform": "T",
    "StatelessRandomUniform": "T",
    "StatelessRandomUniformV2": "Tshape",
}
"""The attribute with the element type of a result, or of the shape that random numbers take."""
_BOOL = 10


class Filled(NamedTuple):
    """A mask whose elements are all the same.

    Attributes:
        shape: its shape.
        value: the element.
        dtype: the element type.
        shape_dtype: the element type of the shape.
    """

    shape: Reference
    value: float
    dtype: int
    shape_dtype: int


Simplified = Filled | Reference
"""What stands for a node: a constant mask, or what it passes on."""


def without_dropout(found: Conditions, order: Sequence[Node]) -> dict[str, Simplified]:
    """Return the replacements of dropout nodes that keep every element."""
    made: dict[str, Simplified] = {}
    masks: dict[str, Node] = {}
    for node in order:
        known = found.ranges.get(node.name)
        if node.name in found.dead:
            continue
        if known is not None and not known.is_scalar:
            source = _source(found, node, masks)
            if source is None:
                continue
            masks[node.name] = source
            filled = _filled(node, known.point, source)
            if filled is not None:
                made[node.name] = filled
            continue
        kept = _full_mask(found, node)
        if kept is None:
            continue
        mask, value = kept
        source = masks.get(found.root(mask).node)
        if source is not None and _has_shape_of(found, source, value):
            made[node.name] = value
            scaled = _unscaled(found, value)
            if scaled is not None:
                made[value.node] = scaled
    return made


def _source(found: Conditions, node: Node, masks: dict[str, Node]) -> Node | None:
    """The random numbers that a node is computed from, if its other inputs have no dimensions."""
    if node.op in RANDOM:
        return node
    wide = [r for r in node.inputs if (known := found.range_of(r)) is None or not known.is_scalar]
    return masks.get(wide[0].node) if len(wide) == 1 else None


def _filled(node: Node, value: float | None, source: Node) -> Filled | None:
    """The constant mask that replaces a node; None if its elements or its element type are unknown."""
    dtype = _BOOL if node.op in _COMPARISONS else node.attribute(_TYPES.get(node.op, "T")).type
    shape_dtype = source.attribute(_TYPES[source.op]).type
    if value is None or not dtype or not shape_dtype:
        return None
    return Filled(source.inputs[0], value, dtype, shape_dtype)


def _full_mask(found: Conditions, node: Node) -> tuple[Reference, Reference] | None:
    """The mask and the value of a node that masks, if the mask keeps every element."""
    if node.op == "Mul" and len(node.inputs) == 2:
        for mask, value in (node.inputs, node.inputs[::-1]):
            known = found.range_of(mask)
            if known is not None and known.point == 1 and not known.is_scalar:
                return mask, value
    if node.op in ("Select", "SelectV2") and len(node.inputs) == 3:
        known = found.range_of(node.inputs[0])
        if known is not None and known.point == 1 and not known.is_scalar:
            return node.inputs[0], node.inputs[1]
    return None


def _has_shape_of(found: Conditions, source: Node, value: Reference) -> bool:
    """Whether random numbers have the shape of a value: it is computed from that value."""
    shape = found.scope.nodes.get(found.root(source.inputs[0]).node)
    return (
        shape is not None and shape.op == "Shape" and _shaped(found, shape.inputs[0]) == _shaped(found, value)
    )


def _shaped(found: Conditions, result: Reference) -> Reference:
    """The tensor from which a result is computed with scalars, so that it has the same shape."""
    while (node := found.scope.nodes.get(result.node)) is not None and node.name not in found.dead:
        if node.op in IDENTITIES - {"Enter", "Exit"} or node.op == "Cast":
            wide = node.inputs[:1]
        elif node.op in _SCALED:
            wide = tuple(r for r in node.inputs if (k := found.range_of(r)) is None or not k.is_scalar)
        else:
            break
        if len(wide) != 1:
            break
        result = wide[0]
    return result


def _unscaled(found: Conditions, result: Reference) -> Reference | None:
    """The other operand of a product or quotient with 1."""
    node = found.scope.nodes.get(result.node)
    if node is None or node.op not in ("Mul", "RealDiv") or len(node.inputs) != 2:
        return None
    for value, factor in (node.inputs, node.inputs[::-1])[: 2 if node.op == "Mul" else 1]:
        known = found.range_of(factor)
        if known is not None and known.point == 1 and known.is_scalar:
            return value
    return None
