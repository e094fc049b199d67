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
from typing import NamedTuple

import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_size
from ..node_pass import ConstantPass, producer_of
from .attention_masks import AttentionMasks, AttentionSite, Mask
from .attention_scores import Scores, read_scores
from .mask_numbers import lowest_number
from .patterns import exclusive_producer, insert_node, is_last_axis, number, reduced_axes, replace
from .transposed_keys import Keys, split_heads


class FuseAttention(ConstantPass):
    """Replaces the composition by Attention, if the model's opset has it."""

    op_types = ("MatMul",)
    writes = "Attention"

    def begin(self, model: ir.Model) -> bool:
        """Forget the masks of another model."""
        self._masks = AttentionMasks(self.initializers)
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in the product of the weights and the values."""
        weights = _weights(node)
        if weights is None or weights.softmax.graph is not node.graph:
            return False
        scores, value = read_scores(weights.scores), node.inputs[1]
        if scores is not None and scores.join is not None and value is not None:
            value = split_heads(value)
        if scores is None or value is None or not _fits(scores, value):
            return False
        site, mask = AttentionSite(node, scores.query, value, scores.shape), None
        last, inputs = node, [scores.query, None, value]
        if scores.terms:
            replacement = _row_replacement(node, scores)
            mask = self._masks.combine(scores.terms, site)
            # Rule 2: rows without any score must get zeros in both forms.
            is_same = weights.replaces_nan or replacement is not None
            if mask is None or not (is_same or mask.leaves_scores or not mask.numbers.infinite):
                return False
            mask_value = None if mask.is_causal else self._masks.build_mask(mask, site)
            if mask_value is None and not mask.is_causal:
                return False
            inputs += [] if mask_value is None else [mask_value]
            last = replacement or node
        inputs[1] = self._transpose_keys(scores.keys)
        self._replace(last, scores, inputs, _attributes(scores, mask, weights.is_wide))
        return True

    def _replace(
        self, last: ir.Node, scores: Scores, inputs: list[ir.Value | None], attributes: list[ir.Attr]
    ) -> None:
        """Replace the nodes that end in `last` by Attention."""
        if scores.join is None:
            replace(last, "Attention", inputs, attributes, self.opset)
            return
        result = insert_node(last, self.initializers, "Attention", inputs, scores.query.shape, attributes)
        # The result has the shape of the queries, and is joined as they are.
        join = scores.join
        replace(last, "Reshape", [result, join.inputs[1]], [*join.attributes.values()], self.opset)

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


class _Weights(NamedTuple):
    """The weights of an attention.

    Attributes:
        softmax: the Softmax over the last dimension that computes them.
        scores: the value that it is computed from.
        replaces_nan: whether NaN becomes zero.
        is_wide: whether the Softmax has FLOAT numbers, to which the scores are cast from half precision.
    """

    softmax: ir.Node
    scores: ir.Value | None
    replaces_nan: bool
    is_wide: bool


def _weights(node: ir.Node) -> _Weights | None:
    """The weights that a product multiplies with the values; None if they are not known to be such."""
    weights, cast = node.inputs[0], exclusive_producer(node.inputs[0], "Cast")
    if cast is not None:
        weights = cast.inputs[0]
    choice = exclusive_producer(weights, "Where")
    if choice is not None:
        test = exclusive_producer(choice.inputs[0], "IsNaN", "Greater")
        weights, filler = (
            choice.inputs[:0:-1] if test is None or test.op_type == "IsNaN" else choice.inputs[1:]
        )
        if test is None or test.inputs[0] is not weights or number(filler) != 0:
            return None
        if test.op_type == "Greater" and not (number(test.inputs[1]) or 0) < 0:
            return None
    softmax = exclusive_producer(weights, "Softmax", readers=1 if choice is None else 2)
    scores = softmax.inputs[0] if softmax is not None else None
    axis = softmax.attributes.get_int("axis", -1) if softmax is not None else -1
    if softmax is None or scores is None or not is_last_axis([axis], softmax.outputs[0]):
        return None
    # Without a Cast the Softmax has the type of the values.
    if cast is None:
        return _Weights(softmax, scores, choice is not None, False)
    widened, narrow = exclusive_producer(scores, "Cast"), cast.outputs[0].dtype
    if widened is None or scores.dtype != ir.DataType.FLOAT or narrow != ir.DataType.FLOAT16:
        return None
    before = widened.inputs[0]
    is_same = before is not None and before.dtype == narrow
    return _Weights(softmax, before, choice is not None, True) if is_same else None


def _row_replacement(node: ir.Node, scores: Scores) -> ir.Node | None:
    """The `Where` that gives zeros for rows that a mask of 0 and -inf fills."""
    result, terms = node.outputs[0], scores.terms
    if len(terms) != 1 or terms[0].keeps is not None or scores.join is not None:
        return None
    if len(result.uses()) != 1 or result.is_graph_output():
        return None
    mask = terms[0].value
    ((choice, input_index),) = result.uses()
    if choice.op_type != "Where" or choice.domain or input_index != 2 or choice.graph is not node.graph:
        return None
    less = producer_of(choice.inputs[0], "Less")
    highest = producer_of(less.inputs[0], "ReduceMax") if less is not None else None
    filled = producer_of(mask, "Where")
    if less is None or highest is None or filled is None or highest.inputs[0] is not mask:
        return None
    bound, zero = number(less.inputs[1]), number(choice.inputs[1])
    if bound is None or not -math.inf < bound <= 0 or zero != 0:
        return None
    is_infinite = {number(value) for value in filled.inputs[1:]} == {0.0, -math.inf}
    return choice if is_infinite and is_last_axis(reduced_axes(highest), mask) else None


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
