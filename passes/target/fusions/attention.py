"""Target pass: fuses scaled dot-product attention, written as separate operators, into Attention.

    MatMul(q * a, Transpose(k) * b) * c -> Add(mask) -> Softmax -> MatMul(., v)

Applies from opset 23, where the operator begins (https://onnx.ai/onnx/operators/onnx__Attention.html). A
`Where(mask, ., -inf)` or `Where(mask, -inf, .)` may stand for the Add, several masks may follow one another,
and a `Where(IsNaN(p), 0, p)` may stand behind the Softmax.

1. Queries, keys and values have four dimensions, of one batch size and one number of heads, or three, which
   become an Attention with one head; `a`, `b` and `c` are numbers whose product is positive.
2. Attention gives zeros for a row that is masked by -inf completely. Written out, such a row gives NaN. So
   the mask leaves a score in each row, or has no -inf, or the file itself replaces NaN by zero, or it
   replaces the rows that a mask of 0 and -inf fills, as opsetta does below opset 23. `attention_masks` has
   what holds for the lowest number.
3. onnxruntime does not broadcast the last two dimensions of a mask, so that they are expanded.
4. A mask of all later keys becomes `is_causal`.
5. The Softmax has the element type of the rest, and no intermediate result has another reader.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import onnx_ir as ir

from ....registration.emission.shape_inference import Dims
from ..node_pass import ConstantPass, maker_of, same_dimension
from .attention_masks import AttentionMasks, Place, Term
from .mask_numbers import lowest_number
from .patterns import axes_of, is_last_axis, made_before, made_by, number, replace
from .transposed_keys import Keys, transposed_keys

_MAXIMUM_TERMS = 4
"""Masks that may follow one another."""


class _Product(NamedTuple):
    """The product of queries and transposed keys, and the factor of its elements."""

    query: ir.Value
    transposed_key: ir.Value
    scale: float


class FuseAttention(ConstantPass):
    """Replaces the composition by Attention, if the model's opset has it."""

    op_types = ("MatMul",)
    writes = "Attention"

    def begin(self, model: ir.Model) -> bool:
        """Forget the masks of another model."""
        self._masks = AttentionMasks(self.known)
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in the product of the weights and the values."""
        softmax, replaces_nan = _softmax(node)
        value = node.inputs[1]
        if softmax is None or value is None or softmax.graph is not node.graph:
            return False
        product, terms = _masked(softmax.inputs[0])
        keys = transposed_keys(product.transposed_key) if product is not None else None
        if product is None or keys is None or not _fits(product, value):
            return False
        place = Place(node, product.query, value, _scores_shape(product))
        last, inputs = node, [product.query, None, value]
        attributes: list[ir.Attr] = []
        if terms:
            mask = self._masks.read(terms, place)
            replacement = _replacement(node, terms)
            if mask is None or not (
                replaces_nan or mask.leaves_scores or not mask.numbers.infinite or replacement is not None
            ):
                return False
            last = replacement or node
            if mask.is_causal:
                attributes.append(ir.AttrInt64("is_causal", 1))
            else:
                written = self._masks.written(mask, place)
                if written is None:
                    return False
                inputs.append(written)
        inputs[1] = self._untransposed(keys)
        if len(place.scores) == 3:
            attributes += [ir.AttrInt64("q_num_heads", 1), ir.AttrInt64("kv_num_heads", 1)]
        features = product.query.shape[-1]  # type: ignore[index]
        if not isinstance(features, int) or not math.isclose(product.scale**2 * features, 1, rel_tol=1e-6):
            attributes.append(ir.AttrFloat32("scale", product.scale))
        replace(last, "Attention", inputs, attributes, self.opset)
        return True

    def _untransposed(self, keys: Keys) -> ir.Value:
        """The keys in the layout of the queries."""
        perm = list(keys.perm)
        if perm == sorted(perm):
            return keys.data
        shape = keys.data.shape
        sizes = None if shape is None else ir.Shape([shape[axis] for axis in perm])
        attributes = [ir.AttrInt64s("perm", perm)]
        return made_before(keys.transpose, self.known, "Transpose", [keys.data], sizes, attributes)


def _masked(scores: ir.Value | None) -> tuple[_Product | None, list[Term]]:
    """The product that scores are made of, and the masks, of which the first is applied first."""
    terms: list[Term] = []
    while len(terms) <= _MAXIMUM_TERMS:
        product = _product(scores)
        if product is not None:
            return product, terms[::-1]
        found = _unmasked(scores)
        if found is None:
            break
        scores, term = found
        terms.append(term)
    return None, []


def _unmasked(scores: ir.Value | None) -> tuple[ir.Value, Term] | None:
    """The scores before the last mask, and that mask."""
    total = made_by(scores, "Add")
    if total is not None:
        for place, value in enumerate(total.inputs):
            other = total.inputs[1 - place]
            if value is not None and other is not None and _is_score(value):
                return value, Term(other)
    choice = made_by(scores, "Where")
    if choice is not None:
        condition = choice.inputs[0]
        for keeps, place in ((True, 1), (False, 2)):
            value, filler = choice.inputs[place], number(choice.inputs[3 - place])
            if condition is not None and value is not None and filler is not None:
                return value, Term(condition, keeps, filler)
    return None


def _is_score(value: ir.Value) -> bool:
    """Whether a value is made of a product, under at most `_MAXIMUM_TERMS` operators."""
    current: ir.Value | None = value
    for _ in range(_MAXIMUM_TERMS + 1):
        if _product(current) is not None:
            return True
        found = _unmasked(current)
        if found is None:
            return False
        current = found[0]
    return False


def _softmax(node: ir.Node) -> tuple[ir.Node | None, bool]:
    """The Softmax over the last dimension that gives the weights, and whether its NaN become zeros."""
    weights, replaces_nan = node.inputs[0], False
    choice = made_by(weights, "Where")
    if choice is not None:
        test = made_by(choice.inputs[0], "IsNaN")
        weights = choice.inputs[2]
        if test is None or test.inputs[0] is not weights or number(choice.inputs[1]) != 0:
            return None, False
        replaces_nan = True
    softmax = made_by(weights, "Softmax", readers=2 if replaces_nan else 1)
    axis = softmax.attributes.get("axis") if softmax is not None else None
    scores = softmax.outputs[0].shape if softmax is not None else None
    is_last = axis is None or axis.as_int() == -1 or (scores is not None and axis.as_int() == len(scores) - 1)
    return (softmax if is_last else None), replaces_nan


def _replacement(node: ir.Node, terms: list[Term]) -> ir.Node | None:
    """The `Where` that gives zeros for rows that a mask of 0 and -inf fills."""
    result = node.outputs[0]
    if len(terms) != 1 or terms[0].keeps is not None:
        return None
    if len(result.uses()) != 1 or result.is_graph_output():
        return None
    mask = terms[0].value
    ((choice, place),) = result.uses()
    if choice.op_type != "Where" or choice.domain or place != 2 or choice.graph is not node.graph:
        return None
    less = maker_of(choice.inputs[0], "Less")
    highest = maker_of(less.inputs[0], "ReduceMax") if less is not None else None
    filled = maker_of(mask, "Where")
    if less is None or highest is None or filled is None or highest.inputs[0] is not mask:
        return None
    bound, zero = number(less.inputs[1]), number(choice.inputs[1])
    if bound is None or not -math.inf < bound <= 0 or zero != 0:
        return None
    is_infinite = {number(value) for value in filled.inputs[1:]} == {0.0, -math.inf}
    return choice if is_infinite and is_last_axis(axes_of(highest), mask) else None


def _product(scores: ir.Value | None) -> _Product | None:
    """The product of queries and keys that scores are, perhaps times numbers."""
    value, scale = _unscaled(scores)
    product = made_by(value, "MatMul")
    if product is None:
        return None
    (query, a), (key, b) = (_unscaled(each) for each in product.inputs)
    scale *= a * b
    if query is None or key is None or not (0 < scale < math.inf):
        return None
    return _Product(query, key, scale)


def _unscaled(value: ir.Value | None) -> tuple[ir.Value | None, float]:
    """A value without the number that it is multiplied with or divided by, and that factor."""
    node = made_by(value, "Mul", "Div")
    if node is None:
        return value, 1.0
    for place in (1, 0) if node.op_type == "Mul" else (1,):
        factor, rest = number(node.inputs[place]), node.inputs[1 - place]
        if factor and rest is not None:
            return rest, factor if node.op_type == "Mul" else 1 / factor
    return value, 1.0


def _fits(product: _Product, value: ir.Value) -> bool:
    """Whether Attention takes the three: of one type, batch size, number of heads, and keys as values."""
    query, key = product.query, product.transposed_key
    if lowest_number(query.dtype) is None or len({each.dtype for each in (query, key, value)}) > 1:
        return False
    q, k, v = query.shape, key.shape, value.shape
    if q is None or k is None or v is None or len(q) not in (3, 4) or not len(q) == len(k) == len(v):
        return False
    pairs = [*zip(q[:-2], k[:-2], strict=True), *zip(k[:-2], v[:-2], strict=True)]
    return all(same_dimension(*pair) for pair in (*pairs, (q[-1], k[-2]), (k[-1], v[-2])))


def _scores_shape(product: _Product) -> Dims:
    query, key = product.query.shape, product.transposed_key.shape
    assert query is not None
    assert key is not None
    return (*query[:-1], key[-1])
