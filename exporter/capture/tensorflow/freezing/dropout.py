"""Finds dropout without effect: its mask keeps every element whatever the random numbers are."""

from collections.abc import Sequence
from typing import NamedTuple

from ..node_messages import MessageNode, ResultName
from .ranges import IDENTITIES, RANDOM
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
    """A mask with one value in all elements; `shape_dtype` is the element type of its shape operand."""

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
        # A mask of another shape would broadcast the value, so it cannot be left out.
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
    with_dimensions = _inputs_with_dimensions(analysis, node)
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
    pairs: Sequence[Sequence[ResultName]] = ()
    if node.op == "Mul" and len(node.inputs) == 2:
        pairs = node.inputs, node.inputs[::-1]
    elif node.op in ("Select", "SelectV2") and len(node.inputs) == 3:
        pairs = (node.inputs[:2],)
    return next(((mask, value) for mask, value in pairs if _is_one(analysis, mask, scalar=False)), None)


def _is_one(analysis: ScopeAnalysis, result: ResultName, *, scalar: bool) -> bool:
    """Whether a scalar, or every element of another tensor, is 1."""
    element_range = analysis.range_of(result)
    return element_range is not None and element_range.point == 1 and element_range.is_scalar == scalar


def _inputs_with_dimensions(analysis: ScopeAnalysis, node: MessageNode) -> tuple[ResultName, ...]:
    """The inputs of a node that are not known to be scalars."""
    ranges = [analysis.range_of(result) for result in node.inputs]
    pairs = zip(node.inputs, ranges, strict=True)
    return tuple(result for result, elements in pairs if elements is None or not elements.is_scalar)


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
            with_dimensions = _inputs_with_dimensions(analysis, node)
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
    # 1 / x is not x, but 1 * x is.
    pairs = (node.inputs, node.inputs[::-1])[: 2 if node.op == "Mul" else 1]
    return next((value for value, factor in pairs if _is_one(analysis, factor, scalar=True)), None)
