"""Target pass: fuses scaled dot-product attention, written as separate operators, into Attention.

    MatMul(q * a, Transpose(k) * b) * c -> Add(mask) -> Softmax -> MatMul(., v)

Applies from opset 23, where the operator begins (https://onnx.ai/onnx/operators/onnx__Attention.html). A
`Where(mask, ., -inf)` or `Where(mask, -inf, .)` may stand for the Add, and a `Where(IsNaN(p), 0, p)` behind
the Softmax.

1. Queries, keys and values have four dimensions, of one batch size and one number of heads; `a`, `b` and `c`
   are numbers whose product is positive.
2. Attention gives zeros for a row that is masked completely. Written out, a mask of -inf gives NaN. A mask of
   the lowest number gives the mean of the values, for which onnxruntime's Attention gives zeros too. So the
   mask must be a constant that leaves a score in each row, or the file itself replaces NaN by zero, or it
   replaces the rows that a mask of 0 and -inf fills, as opsetta does below opset 23.
3. onnxruntime does not broadcast the last two dimensions of a mask, so that they are expanded.
4. A constant mask of all later keys becomes `is_causal`.
5. The Softmax has the element type of the rest, and no intermediate result has another reader.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ..node_pass import ConstantPass, maker_of, same_dimension
from .masks import contents, floats, leaves_scores
from .patterns import axes_of, is_last_axis, made_before, made_by, number, replace

_LOWEST = {
    ir.DataType.FLOAT: float(np.finfo(np.float32).min),
    ir.DataType.FLOAT16: float(np.finfo(np.float16).min),
}
"""The element types that onnxruntime has a kernel for, and the lowest number of each."""
_LAST_EXCHANGED = [0, 1, 3, 2]
_MAXIMUM_EXPANDED = 2**20
"""Elements of a constant mask that is repeated along its last two dimensions."""


class _Mask(NamedTuple):
    """What masks the scores.

    Attributes:
        value: a mask that is added, or one of bools.
        keeps: for bools, the value of the keys that take part.
        leaves_scores: whether constants show that each row has a score.
        is_causal: whether it masks exactly the keys behind the query.
    """

    value: ir.Value
    keeps: bool = True
    leaves_scores: bool = False
    is_causal: bool = False


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
        # All layers may read the same mask, so what is computed from it is shared within a graph.
        self._full: dict[tuple[object, ...], ir.Value] = {}
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in the product of the weights and the values."""
        softmax, replaces_nan = _softmax(node)
        scores = softmax.inputs[0] if softmax is not None else None
        value = node.inputs[1]
        if softmax is None or scores is None or value is None or softmax.graph is not node.graph:
            return False
        if scores.shape is None or len(scores.shape) != 4:
            return False
        product, mask = self._masked(scores)
        key = _key(product.transposed_key) if product is not None else None
        if product is None or key is None or not _fits(product, value):
            return False
        last = _replacement(node, mask) if mask is not None else None
        if mask is not None and not (replaces_nan or mask.leaves_scores or last is not None):
            return False
        bias = self._full_mask(mask, product, node) if mask is not None and not mask.is_causal else None
        if mask is not None and bias is None and not mask.is_causal:
            return False
        attributes = [ir.AttrInt64("is_causal", 1)] if mask is not None and mask.is_causal else []
        features = product.query.shape[3]  # type: ignore[index]
        if not isinstance(features, int) or not math.isclose(product.scale**2 * features, 1, rel_tol=1e-6):
            attributes.append(ir.AttrFloat32("scale", product.scale))
        inputs = [product.query, self._untransposed(key), value, *([] if bias is None else [bias])]
        replace(last or node, "Attention", inputs, attributes, self.opset)
        return True

    def _masked(self, scores: ir.Value) -> tuple[_Product | None, _Mask | None]:
        """The product and the mask that the scores are made of."""
        product = _product(scores)
        if product is not None:
            return product, None
        total = made_by(scores, "Add")
        if total is not None:
            for first, second in (total.inputs, total.inputs[::-1]):
                product = _product(first)
                if product is not None and second is not None:
                    return product, self._added(second, product)
        choice = made_by(scores, "Where")
        if choice is not None:
            for keeps, place in ((True, 1), (False, 2)):
                product, condition = _product(choice.inputs[place]), choice.inputs[0]
                if product is not None and condition is not None:
                    mask = self._chosen(condition, keeps, number(choice.inputs[3 - place]), product)
                    return (product, mask) if mask is not None else (None, None)
        return None, None

    def _added(self, mask: ir.Value, product: _Product) -> _Mask:
        """A mask of numbers."""
        lowest = _lowest(product)
        array = floats(self.known, mask)
        leaves = leaves_scores(array, lowest)
        is_causal = (
            leaves
            and array is not None
            and _is_causal(array == 0, product)
            and bool(((array == 0) | (array <= lowest)).all())
        )
        return _Mask(mask, True, leaves, is_causal)

    def _chosen(
        self, condition: ir.Value, keeps: bool, filler: float | None, product: _Product
    ) -> _Mask | None:
        """A mask of bools; None if masked keys have other scores than the lowest."""
        if filler is None or not filler <= _lowest(product):
            return None
        array = contents(self.known, condition)
        if array is None:
            # A score of the lowest number is no mask where all scores are.
            return _Mask(condition, keeps) if filler == -math.inf else None
        kept = array if keeps else ~array
        leaves = bool(kept.size and kept.ndim and kept.any(axis=-1).all())
        return _Mask(condition, keeps, leaves, leaves and _is_causal(kept, product))

    def _full_mask(self, mask: _Mask, product: _Product, node: ir.Node) -> ir.Value | None:
        """The mask of the scores' size in its last two dimensions; None if it does not fit."""
        value, shape, scores = mask.value, mask.value.shape, _scores_shape(product)
        if shape is None or len(shape) > len(scores):
            return None
        own = [1] * (len(scores) - len(shape)) + [*shape]
        if not all(size == 1 or same_dimension(size, full) for size, full in zip(own, scores, strict=True)):
            return None
        sizes = [*own[:2], *scores[2:]]
        is_full = len(shape) > 1 and own == sizes
        if not is_full and not all(isinstance(size, int) for size in sizes):
            return None
        place = value, mask.keeps, node.graph, None if is_full else tuple(sizes)
        if place not in self._full:
            kept = value if mask.keeps else self._inverted(value, node)
            full = kept if is_full else self._expanded(kept, [int(size) for size in sizes], node)
            if full is None:
                return None
            self._full[place] = full
        return self._full[place]

    def _inverted(self, value: ir.Value, node: ir.Node) -> ir.Value:
        """A mask of bools in which True stands for the keys that take part."""
        if self.known.is_constant(value) and value.shape is not None:
            sizes = value.shape.numpy()
            return self.known.derive([value], np.logical_not, ir.DataType.BOOL, sizes, 0, "inverted")
        return made_before(node, self.known, "Not", [value], value.shape)

    def _expanded(self, value: ir.Value, sizes: list[int], node: ir.Node) -> ir.Value | None:
        """A mask repeated to a shape; None if that is a large constant."""
        tensor = value.const_value if self.known.is_constant(value) else None
        if tensor is None:
            target = self.known.make(np.array(sizes, dtype=np.int64), "mask_shape")
            return made_before(node, self.known, "Expand", [value, target], ir.Shape(sizes))
        if math.prod(sizes) > _MAXIMUM_EXPANDED:
            return None
        return self.known.derive(
            [value], lambda a: np.broadcast_to(a, sizes), tensor.dtype, tuple(sizes), 0, "expanded"
        )

    def _untransposed(self, transpose: ir.Node) -> ir.Value:
        """The keys in the layout of the queries."""
        order, data = list(transpose.attributes["perm"].as_ints()), transpose.inputs[0]
        shape = transpose.outputs[0].shape
        assert data is not None
        assert shape is not None
        perm = [order[place] for place in _LAST_EXCHANGED]
        if perm == sorted(perm):
            return data
        sizes = ir.Shape([shape[place] for place in _LAST_EXCHANGED])
        attributes = [ir.AttrInt64s("perm", perm)]
        return made_before(transpose, self.known, "Transpose", [data], sizes, attributes)


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
    is_last = axis is None or axis.as_int() in (-1, 3)
    return (softmax if is_last else None), replaces_nan


def _replacement(node: ir.Node, mask: _Mask) -> ir.Node | None:
    """The `Where` that gives zeros for rows that a mask of 0 and -inf fills."""
    result = node.outputs[0]
    if len(result.uses()) != 1 or result.is_graph_output():
        return None
    ((choice, place),) = result.uses()
    if choice.op_type != "Where" or choice.domain or place != 2 or choice.graph is not node.graph:
        return None
    less = maker_of(choice.inputs[0], "Less")
    highest = maker_of(less.inputs[0], "ReduceMax") if less is not None else None
    filled = maker_of(mask.value, "Where")
    if less is None or highest is None or filled is None or highest.inputs[0] is not mask.value:
        return None
    bound, zero = number(less.inputs[1]), number(choice.inputs[1])
    if bound is None or not -math.inf < bound <= 0 or zero != 0:
        return None
    is_infinite = {number(value) for value in filled.inputs[1:]} == {0.0, -math.inf}
    return choice if is_infinite and is_last_axis(axes_of(highest), mask.value) else None


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


def _key(transposed: ir.Value) -> ir.Node | None:
    """The Transpose that gives the transposed keys."""
    node = maker_of(transposed, "Transpose")
    perm = node.attributes.get("perm") if node is not None else None
    return node if perm is not None and len(perm.as_ints()) == 4 else None


def _fits(product: _Product, value: ir.Value) -> bool:
    """Whether Attention takes the three: of one type, batch size, number of heads, and keys as values."""
    query, key = product.query, product.transposed_key
    if query.dtype not in _LOWEST or len({each.dtype for each in (query, key, value)}) > 1:
        return False
    shapes = query.shape, key.shape, value.shape
    if any(shape is None or len(shape) != 4 for shape in shapes):
        return False
    q, k, v = shapes
    pairs = ((q[0], k[0]), (k[0], v[0]), (q[1], k[1]), (k[1], v[1]), (q[3], k[2]), (k[3], v[2]))  # type: ignore[index]
    return all(same_dimension(*pair) for pair in pairs)


def _scores_shape(product: _Product) -> list[int | ir.SymbolicDim]:
    query, key = product.query.shape, product.transposed_key.shape
    assert query is not None
    assert key is not None
    return [*query[:3], key[3]]


def _lowest(product: _Product) -> float:
    """Lower scores have no weight beside others."""
    dtype = product.query.dtype
    return _LOWEST[dtype] / 2 if dtype in _LOWEST else -math.inf


def _is_causal(kept: np.ndarray, product: _Product) -> bool:
    """Whether exactly the keys up to the query's own position take part, for all heads."""
    scores = _scores_shape(product)[2:]
    if kept.ndim < 2 or any(size != 1 for size in kept.shape[:-2]) or list(kept.shape[-2:]) != scores:
        return False
    return np.array_equal(kept.reshape(kept.shape[-2:]), np.tri(*kept.shape[-2:], dtype=bool))
