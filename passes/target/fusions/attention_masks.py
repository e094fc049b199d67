"""The masks of an attention that is written out, and the one mask that Attention reads in their place.

Attention and the written-out form differ for rows that are masked completely:

1. A row of -inf has the weights NaN in the written-out form, and zeros in Attention.
2. A row of the lowest number has equal weights in the written-out form and in the text of Attention.
   onnxruntime's Attention takes this number for -inf, so the mask gets the next number instead.
3. In half precision these weights are equal because adding the lowest number, or the next, rounds scores
   away. onnxruntime on CPU rounds in Attention, but not in the written-out form, where it weights such a row
   by its scores, unlike PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ....registration.inference.shape_inference import Dim, Dims, broadcast
from ..constants.initializers import Initializers
from ..node_pass import same_dimension
from .causal_masks import is_causal_condition, is_causal_mask
from .mask_numbers import (
    MAXIMUM_MASK,
    MaskNumbers,
    contents,
    floats,
    leaves_scores,
    lowest_number,
    numbers_of,
)
from .patterns import made_before

_MASKED = -1e9
"""A score that is replaced by this number or a lower one has no weight beside others."""
_MAXIMUM_EXPANDED = 2**20
"""Elements of a constant mask that is repeated along its last two dimensions."""


class Term(NamedTuple):
    """One operator that masks scores.

    Attributes:
        value: numbers that are added, or the condition of a Where.
        keeps: for a condition, its value for the keys that take part; None for numbers.
        filler: for a condition, the score of the other keys.
    """

    value: ir.Value
    keeps: bool | None = None
    filler: float = -math.inf


class Place(NamedTuple):
    """Where an attention is.

    Attributes:
        node: the node before which new nodes are inserted.
        query: the queries.
        value: the values.
        scores: the shape of the scores, [batch, heads, length, keys] or [batch, length, keys].
    """

    node: ir.Node
    query: ir.Value
    value: ir.Value
    scores: Dims


class Mask(NamedTuple):
    """All terms of a mask, and what is known of them together.

    Attributes:
        terms: in the order in which they are applied to the scores.
        numbers: what the sum of the added masks and fillers may hold.
        leaves_scores: whether each row has a score.
        is_causal: whether exactly the keys behind the query are masked.
    """

    terms: Sequence[Term]
    numbers: MaskNumbers
    leaves_scores: bool
    is_causal: bool


class AttentionMasks:
    """Reads masks, and makes those of Attention. Layers that read one mask share what is made of it."""

    def __init__(self, known: Initializers):
        self._known = known
        self._made: dict[tuple[object, ...], ir.Value] = {}

    def read(self, terms: Sequence[Term], place: Place) -> Mask | None:
        """What is known of the terms; None if the keys that they mask have a weight."""
        lowest = lowest_number(place.query.dtype)
        if lowest is None or any(term.filler > max(lowest / 2, _MASKED) for term in terms):
            return None
        if any(term.filler > lowest / 2 for term in terms) and place.query.dtype != ir.DataType.FLOAT:
            return None
        kinds = [self._numbers(term) for term in terms]
        is_lowest = sum(each.lowest for each in kinds)
        # The sum of two lowest numbers is -inf.
        numbers = MaskNumbers(is_lowest > 0, is_lowest > 1 or any(each.infinite for each in kinds))
        kept = [self._kept(term, lowest) for term in terms]
        shape = self._shape(terms)
        arrays = [each for each in kept if each is not None]
        if len(arrays) == len(terms):
            together = _together(arrays)
            leaves = together is not None and leaves_scores(np.where(together, 0.0, -np.inf))
            causal = leaves and together is not None and _is_lower_triangle(together, place.scores)
            return Mask(terms, numbers, leaves, causal and self._only_masks(terms, lowest))
        is_full = shape is not None and [*shape[-2:]] == [*place.scores[-2:]]
        if len(terms) == 1 and is_full and self._is_causal(terms[0], lowest):
            return Mask(terms, numbers, True, same_dimension(*place.scores[-2:]))
        return Mask(terms, numbers, False, False)

    def written(self, mask: Mask, place: Place) -> ir.Value | None:
        """The mask that Attention reads; None if it does not fit the scores."""
        shape, rank = self._shape(mask.terms), len(place.scores)
        if shape is None or len(shape) > rank:
            return None
        own: list[Dim] = [*([1] * (rank - len(shape))), *shape]
        if not all(
            size == 1 or same_dimension(size, full) for size, full in zip(own, place.scores, strict=True)
        ):
            return None
        value = self._joined(mask, place, ir.Shape(shape))
        if rank == 3:
            own.insert(1, 1)
            if len(shape) == 3:
                axes = self._known.make(np.array([1], dtype=np.int64), "heads_axis")
                value = self._shared(place, "Unsqueeze", [value, axes], ir.Shape(own))
        wanted = [*own[:2], *place.scores[-2:]]
        is_full = len(shape) > 1 and own == wanted
        return value if is_full else self._expanded(value, wanted, place)

    def _numbers(self, term: Term) -> MaskNumbers:
        if term.keeps is None:
            return numbers_of(self._known, term.value)
        # Other fillers become the number next to the lowest.
        return MaskNumbers(False, term.filler == -math.inf)

    def _kept(self, term: Term, lowest: float) -> np.ndarray | None:
        """Which keys take part, from a constant; None if that is not known."""
        if term.keeps is not None:
            condition = contents(self._known, term.value)
            return condition if condition is None or term.keeps else ~condition
        array = floats(self._known, term.value)
        is_mask = array is not None and not np.isnan(array).any() and not (array == np.inf).any()
        return array > lowest / 2 if array is not None and is_mask else None

    def _is_causal(self, term: Term, lowest: float) -> bool:
        """Whether a mask that is computed from lengths keeps the keys up to the query's own position."""
        if term.keeps is None:
            return is_causal_mask(self._known, term.value, lowest / 2)
        return is_causal_condition(self._known, term.value, term.keeps)

    def _only_masks(self, terms: Sequence[Term], lowest: float) -> bool:
        """Whether the terms leave the scores of other keys as they are."""
        arrays = [floats(self._known, term.value) for term in terms if term.keeps is None]
        return all(
            array is not None and bool(((array == 0) | (array <= lowest / 2)).all()) for array in arrays
        )

    def _shape(self, terms: Sequence[Term]) -> Dims | None:
        shapes = [term.value.shape for term in terms]
        dims = [tuple(each) for each in shapes if each is not None]
        return broadcast(dims) if len(dims) == len(shapes) else None

    def _joined(self, mask: Mask, place: Place, shape: ir.Shape) -> ir.Value:
        """One mask in the place of all: of bools if it is one condition, else of numbers."""
        first, dtype = mask.terms[0], place.query.dtype
        is_condition = len(mask.terms) == 1 and first.keeps is not None
        if is_condition and (mask.leaves_scores or first.filler == -math.inf):
            return first.value if first.keeps else self._inverted(first.value, place)
        highest = _next_to_lowest(dtype)
        total: ir.Value | None = None
        for term in mask.terms:
            if term.keeps is None:
                total = (
                    term.value if total is None else self._shared(place, "Add", [total, term.value], shape)
                )
                continue
            filler = self._scalar(term.filler if term.filler == -math.inf else highest, dtype)
            pair = [total or self._scalar(0.0, dtype), filler]
            inputs = [term.value, *(pair if term.keeps else pair[::-1])]
            total = self._shared(place, "Where", inputs, shape, dtype)
        assert total is not None
        if mask.leaves_scores or not mask.numbers.lowest:
            return total
        replaced = self._scalar(highest, dtype)
        if not mask.numbers.infinite:
            return self._shared(place, "Max", [total, replaced], shape)
        equal = self._shared(place, "Equal", [total, self._scalar(lowest_number(dtype) or 0.0, dtype)], shape)
        equal.type = ir.TensorType(ir.DataType.BOOL)
        return self._shared(place, "Where", [equal, replaced, total], shape, dtype)

    def _scalar(self, number: float, dtype: ir.DataType | None) -> ir.Value:
        assert dtype is not None
        key = "scalar", number, dtype
        if key not in self._made:
            self._made[key] = self._known.make(np.array(number, dtype=dtype.numpy()), "mask_number")
        return self._made[key]

    def _inverted(self, value: ir.Value, place: Place) -> ir.Value:
        """A mask of bools in which True stands for the keys that take part."""
        if not self._known.is_constant(value) or value.shape is None:
            return self._shared(place, "Not", [value], value.shape)
        key = "inverted", value
        if key not in self._made:
            sizes = value.shape.numpy()
            self._made[key] = self._known.derive(
                [value], np.logical_not, ir.DataType.BOOL, sizes, 0, "inverted"
            )
        return self._made[key]

    def _expanded(self, value: ir.Value, wanted: Sequence[Dim], place: Place) -> ir.Value | None:
        """A mask repeated to a shape; None if that is a large constant."""
        sizes = [size for size in wanted if isinstance(size, int)]
        tensor = value.const_value if self._known.is_constant(value) else None
        is_constant = len(sizes) == len(wanted) and tensor is not None
        if is_constant and math.prod(sizes) > _MAXIMUM_EXPANDED:
            return None
        key = "expanded", value, None if is_constant else place.node.graph, tuple(map(str, wanted))
        if key in self._made:
            return self._made[key]
        if is_constant and tensor is not None:
            self._made[key] = self._known.derive(
                [value], lambda a: np.broadcast_to(a, sizes), tensor.dtype, tuple(sizes), 0, "expanded"
            )
        else:
            inputs = [value, self._target(wanted, place)]
            self._made[key] = made_before(place.node, self._known, "Expand", inputs, ir.Shape(wanted))
        return self._made[key]

    def _target(self, wanted: Sequence[Dim], place: Place) -> ir.Value:
        """The target of an Expand along the last two dimensions; 1 stands for what stays."""
        lengths = [size for size in wanted[2:] if isinstance(size, int)]
        if len(lengths) == 2:
            return self._known.make(np.array([1, 1, *lengths], dtype=np.int64), "mask_shape")
        ones = self._known.make(np.ones(2, dtype=np.int64), "mask_shape")
        parts = [ones, *(self._length(each, place) for each in (place.query, place.value))]
        axis = [ir.AttrInt64("axis", 0)]
        return made_before(place.node, self._known, "Concat", parts, ir.Shape([4]), axis)

    def _length(self, value: ir.Value, place: Place) -> ir.Value:
        """The length of the queries or of the values: their size along the axis of positions."""
        axis = len(place.scores) - 2
        bounds = [ir.AttrInt64("start", axis), ir.AttrInt64("end", axis + 1)]
        return made_before(
            place.node, self._known, "Shape", [value], ir.Shape([1]), bounds, ir.DataType.INT64
        )

    def _shared(
        self,
        place: Place,
        op_type: str,
        inputs: Sequence[ir.Value],
        shape: ir.Shape | None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """The result of a node; a second call in the same graph gives the first result."""
        key = op_type, *inputs, place.node.graph
        if key not in self._made:
            self._made[key] = made_before(place.node, self._known, op_type, inputs, shape, dtype=dtype)
        return self._made[key]


def _next_to_lowest(dtype: ir.DataType | None) -> float:
    """The number next to the lowest, which onnxruntime's Attention does not take for -inf."""
    assert dtype is not None
    kind = dtype.numpy().type
    return float(np.nextafter(kind(np.finfo(kind).min), kind(0)))


def _together(arrays: Sequence[np.ndarray]) -> np.ndarray | None:
    """Which keys all masks keep; None if the masks do not broadcast, or are large together."""
    try:
        if math.prod(np.broadcast_shapes(*(array.shape for array in arrays))) > MAXIMUM_MASK:
            return None
        result: np.ndarray | None = np.logical_and.reduce(np.broadcast_arrays(*arrays))
        return result
    except ValueError:
        return None


def _is_lower_triangle(kept: np.ndarray, scores: Dims) -> bool:
    """Whether exactly the keys up to the query's own position take part, for all heads."""
    sizes = kept.shape[-2:]
    if kept.ndim < 2 or any(size != 1 for size in kept.shape[:-2]) or [*sizes] != [*scores[-2:]]:
        return False
    return np.array_equal(kept.reshape(sizes), np.tri(*sizes, dtype=bool))
