"""ONNX pass: fuses scaled dot-product attention, written as separate operators, into Attention.

    MatMul(q * a, Transpose(k) * b) * c -> Add(mask) -> Softmax -> MatMul(., v)

Applies from opset 23, where the operator begins (https://onnx.ai/onnx/operators/onnx__Attention.html). A
`Where(mask, ., -inf)` or `Where(mask, -inf, .)` may replace the Add, several masks may follow one another,
and `Where(IsNaN(p), 0, p)` or `Where(p > -1, p, 0)` may follow the Softmax.

1. Queries, keys and values have four dimensions, of one batch size and one number of heads. Three dimensions
   become an Attention with one head, or with the heads that are joined with the batch before the products
   and split for the mask; `a`, `b` and `c` are numbers whose product is positive.
2. Attention outputs zeros for a row that is masked by -inf completely, the written-out form NaN. So one of
   these must hold: the mask leaves a score in each row; it has no -inf; the file itself replaces NaN by
   zero; or the file replaces fully masked rows, as opsetta does before opset 23. `attention_masks` describes
   the rules for the lowest number.
3. onnxruntime does not broadcast the last two dimensions of a mask, so that they are expanded.
4. A mask of all later keys becomes `is_causal`.
5. The Softmax has the element type of the queries, or is FLOAT between two Casts of FLOAT16, which becomes
   `softmax_precision`. No intermediate result has another reader.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from .....registration.size_algebra.dimensions import same_size
from ...node_pass import ConstantPass, insert_node, replace_match
from ...pass_order import Run
from ...pattern_matcher import Pattern, PatternMatch, constant, op, value
from ..axes import is_last_axis, reduces_last_axis
from .attention_masks import AttentionMasks, AttentionSite, Mask
from .attention_scores import Scores, read_scores
from .mask_numbers import lowest_number
from .transposed_keys import Keys, split_heads


class FuseAttention(ConstantPass):
    """Replaces the composition by Attention, if the model's opset has it."""

    runs = (Run("full", after={"RefineAndFold": "The number of heads must be known, and masks folded."}),)
    op_types = ("MatMul",)
    writes = "Attention"

    def begin(self, model: ir.Model) -> bool:
        """Forget the masks of another model."""
        self._masks = AttentionMasks(self.initializers)
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in the product of the weights and the values."""
        match = _ATTENTION.find(node)
        if match is None or match.node("softmax").graph is not node.graph:
            return False
        scores, values, is_wide = read_scores(match["scores"]), node.inputs[1], _computes_in_float(match)
        if scores is not None and scores.join is not None and values is not None:
            values = split_heads(values)
        if scores is None or values is None or is_wide is None or not _fits(scores, values):
            return False
        site, mask = AttentionSite(node, scores.query, values, scores.shape), None
        last, inputs = node, [scores.query, None, values]
        if scores.terms:
            replacement = _row_replacement(node, scores)
            mask = self._masks.combine(scores.terms, site)
            # Rule 2: rows without any score must get zeros in both forms.
            is_same = "choice" in match or replacement is not None
            if mask is None or not (is_same or mask.leaves_scores or not mask.numbers.infinite):
                return False
            mask_value = None if mask.is_causal else self._masks.build_mask(mask, site)
            if mask_value is None and not mask.is_causal:
                return False
            inputs += [] if mask_value is None else [mask_value]
            last = replacement or node
        inputs[1] = self._transpose_keys(scores.keys)
        self._replace(last, scores, inputs, _attributes(scores, mask, is_wide))
        return True

    def _replace(
        self, last: ir.Node, scores: Scores, inputs: list[ir.Value | None], attributes: list[ir.Attr]
    ) -> None:
        """Replace the nodes that end in `last` by Attention."""
        if scores.join is None:
            replace_match(last, "Attention", inputs, attributes, self.opset)
            return
        result = insert_node(last, self.initializers, "Attention", inputs, scores.query.shape, attributes)
        # The result has the shape of the queries, and is joined as they are.
        join = scores.join
        replace_match(last, "Reshape", [result, join.inputs[1]], [*join.attributes.values()], self.opset)

    def _transpose_keys(self, keys: Keys) -> ir.Value:
        """The keys in the layout of the queries."""
        perm = list(keys.perm)
        if perm == sorted(perm):
            return keys.data
        attributes = [ir.AttrInt64s("perm", perm)]
        return insert_node(
            keys.successor, self.initializers, "Transpose", [keys.data], ir.Shape(keys.shape), attributes
        )


def _attributes(scores: Scores, mask: Mask | None, is_wide: bool) -> list[ir.Attr]:
    attributes: list[ir.Attr] = []
    if is_wide:
        attributes.append(ir.AttrInt64("softmax_precision", ir.DataType.FLOAT.value))
    if mask is not None and mask.is_causal:
        attributes.append(ir.AttrInt64("is_causal", 1))
    # Three-dimensional inputs of Attention need the number of heads as attributes.
    if len(scores.shape) == 3:
        attributes += [ir.AttrInt64("q_num_heads", 1), ir.AttrInt64("kv_num_heads", 1)]
    features = scores.keys.shape[-1]
    if not isinstance(features, int) or not math.isclose(scores.scale**2 * features, 1, rel_tol=1e-6):
        attributes.append(ir.AttrFloat32("scale", scores.scale))
    return attributes


def _over_last_axis(node: ir.Node, match: PatternMatch) -> bool:
    return is_last_axis([node.attributes.get_int("axis", -1)], node.outputs[0])


def _weights(scores: Pattern) -> Pattern:
    """The Softmax of scores over the last dimension, whose NaN may become zero."""
    softmax = op("Softmax", scores, where=_over_last_axis).label("softmax")
    is_number = op("Greater", softmax, constant("bound"), where=lambda _, match: match.number("bound") < 0)
    choice = op("Where", op("IsNaN", softmax), 0, softmax) | op("Where", is_number, softmax, 0)
    return softmax | choice.label("choice")


_WIDE_WEIGHTS = _weights(op("Cast", value("scores")).label("wide"))
# Without a Cast the Softmax has the type of the values.
_ATTENTION = op("MatMul", _weights(value("scores")) | op("Cast", _WIDE_WEIGHTS).label("narrow"))


def _computes_in_float(match: PatternMatch) -> bool | None:
    """Whether half precision is cast to FLOAT for the Softmax, and back; None for other Casts."""
    if "narrow" not in match:
        return False
    dtypes = match["scores"].dtype, match["wide"].dtype, match["narrow"].dtype
    half = ir.DataType.FLOAT16
    return True if dtypes == (half, ir.DataType.FLOAT, half) else None


_MASK = op("Where", value("condition"), 0, -math.inf) | op("Where", value("condition"), -math.inf, 0)
_IS_EMPTY_ROW = op(
    "Less",
    op("ReduceMax", _MASK.label("mask"), where=lambda node, match: reduces_last_axis(node, match["mask"])),
    constant("bound"),
    where=lambda _, match: -math.inf < match.number("bound") <= 0,
)
_ROW_REPLACEMENT = op("Where", _IS_EMPTY_ROW, 0, value("result"))


def _row_replacement(node: ir.Node, scores: Scores) -> ir.Node | None:
    """The `Where` that gives zeros for rows that a mask of 0 and -inf fills."""
    result, terms = node.outputs[0], scores.terms
    if len(terms) != 1 or terms[0].keeps is not None or scores.join is not None:
        return None
    if len(result.uses()) != 1 or result.is_graph_output():
        return None
    ((choice, _),) = result.uses()
    match = _ROW_REPLACEMENT.find(choice, is_closed=False) if choice.graph is node.graph else None
    if match is None or match["result"] is not result:
        return None
    return choice if match["mask"] is terms[0].value else None


def _fits(scores: Scores, value: ir.Value) -> bool:
    """Whether Attention takes the three: of one type, batch size, number of heads, and keys as values."""
    query, keys = scores.query, scores.keys
    if (
        lowest_number(query.dtype) is None
        or len({operand.dtype for operand in (query, keys.data, value)}) > 1
    ):
        return False
    q, k, v = query.shape, keys.shape, value.shape
    if q is None or v is None or len(q) not in (3, 4) or not len(q) == len(k) == len(v):
        return False
    pairs = [*zip(q[:-2], k[:-2], strict=True), *zip(k[:-1], v[:-1], strict=True), (q[-1], k[-1])]
    if scores.join is not None:
        # The Reshape that joins the result was written for the size of the queries.
        pairs.append((q[-1], v[-1]))
    return all(same_size(*pair) for pair in pairs)
