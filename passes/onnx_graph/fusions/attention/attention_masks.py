"""The masks of an attention that is written out, and the single mask of the Attention that replaces it.

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

from .....registration.size_algebra.dimensions import Dim, Dims, broadcast, same_size
from ...constants.initializers import Initializers
from ...node_pass import insert_node
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

_MASKED = -1e9
"""A score that is replaced by this number or a lower one gets no weight if the row has other scores."""
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


class AttentionSite(NamedTuple):
    """The nodes and values around an attention.

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
    """All terms of a mask, and their common properties.

    Attributes:
        terms: in the order in which they are applied to the scores.
        numbers: the special numbers that the sum of the added masks and fillers may contain.
        leaves_scores: whether each row has a score.
        is_causal: whether exactly the keys after the query are masked.
    """

    terms: Sequence[Term]
    numbers: MaskNumbers
    leaves_scores: bool
    is_causal: bool


class AttentionMasks:
    """Reads masks, and builds those of Attention. Layers with the same mask share the values built for it."""

    def __init__(self, initializers: Initializers):
        self._initializers = initializers
        self._cache: dict[tuple[object, ...], ir.Value] = {}

    def combine(self, terms: Sequence[Term], site: AttentionSite) -> Mask | None:
        """The mask that the terms form; None if the keys that they mask keep some weight."""
        lowest = lowest_number(site.query.dtype)
        if lowest is None or any(term.filler > max(lowest / 2, _MASKED) for term in terms):
            return None
        # In half precision a filler such as -1e4 does not round scores away.
        if any(term.filler > lowest / 2 for term in terms) and site.query.dtype != ir.DataType.FLOAT:
            return None
        term_numbers = [self._numbers(term) for term in terms]
        is_lowest = sum(special.lowest for special in term_numbers)
        # The sum of two lowest numbers is -inf.
        numbers = MaskNumbers(
            is_lowest > 0, is_lowest > 1 or any(special.infinite for special in term_numbers)
        )
        kept_keys = [self._kept_keys(term, lowest) for term in terms]
        shape = self._shape(terms)
        arrays = [array for array in kept_keys if array is not None]
        if len(arrays) == len(terms):
            kept_by_all = _keys_kept_by_all(arrays)
            has_scores = kept_by_all is not None and leaves_scores(np.where(kept_by_all, 0.0, -np.inf))
            is_causal = (
                has_scores and kept_by_all is not None and _is_lower_triangle(kept_by_all, site.scores)
            )
            return Mask(terms, numbers, has_scores, is_causal and self._only_masks(terms, lowest))
        is_full = shape is not None and [*shape[-2:]] == [*site.scores[-2:]]
        if len(terms) == 1 and is_full:
            [term] = terms
            # A mask that is computed from lengths may keep the keys up to the query's own position.
            if (
                is_causal_mask(self._initializers, term.value, lowest / 2)
                if term.keeps is None
                else is_causal_condition(self._initializers, term.value, term.keeps)
            ):
                return Mask(terms, numbers, True, same_size(*site.scores[-2:]))
        return Mask(terms, numbers, False, False)

    def build_mask(self, mask: Mask, site: AttentionSite) -> ir.Value | None:
        """The mask that Attention reads; None if it does not fit the scores."""
        shape, rank = self._shape(mask.terms), len(site.scores)
        if shape is None or len(shape) > rank:
            return None
        mask_sizes: list[Dim] = [*([1] * (rank - len(shape))), *shape]
        if not all(
            size == 1 or same_size(size, full) for size, full in zip(mask_sizes, site.scores, strict=True)
        ):
            return None
        value = self._merge_terms(mask, site, ir.Shape(shape))
        if rank == 3:
            mask_sizes.insert(1, 1)
            if len(shape) == 3:
                axes = self._initializers.make(np.array([1], dtype=np.int64), "heads_axis")
                value = self._emit_once(site, "Unsqueeze", [value, axes], ir.Shape(mask_sizes))
        full_sizes = [*mask_sizes[:2], *site.scores[-2:]]
        is_full = len(shape) > 1 and mask_sizes == full_sizes
        return value if is_full else self._expand_mask(value, full_sizes, site)

    def _numbers(self, term: Term) -> MaskNumbers:
        if term.keeps is None:
            return numbers_of(self._initializers, term.value)
        # Other fillers become the number next to the lowest.
        return MaskNumbers(False, term.filler == -math.inf)

    def _kept_keys(self, term: Term, lowest: float) -> np.ndarray | None:
        """Which keys take part, from a constant; None if that is not known."""
        if term.keeps is not None:
            condition = contents(self._initializers, term.value)
            return condition if condition is None or term.keeps else ~condition
        array = floats(self._initializers, term.value)
        is_mask = array is not None and not np.isnan(array).any() and not (array == np.inf).any()
        return array > lowest / 2 if array is not None and is_mask else None

    def _only_masks(self, terms: Sequence[Term], lowest: float) -> bool:
        """Whether the terms leave the scores of other keys as they are."""
        arrays = [floats(self._initializers, term.value) for term in terms if term.keeps is None]
        return all(
            array is not None and bool(((array == 0) | (array <= lowest / 2)).all()) for array in arrays
        )

    def _shape(self, terms: Sequence[Term]) -> Dims | None:
        shapes = [term.value.shape for term in terms]
        dims = [tuple(shape) for shape in shapes if shape is not None]
        return broadcast(dims) if len(dims) == len(shapes) else None

    def _merge_terms(self, mask: Mask, site: AttentionSite, shape: ir.Shape) -> ir.Value:
        """One mask that combines all terms: of bools if it is a single condition, else of numbers."""
        first, dtype = mask.terms[0], site.query.dtype
        is_condition = len(mask.terms) == 1 and first.keeps is not None
        if is_condition and (mask.leaves_scores or first.filler == -math.inf):
            return first.value if first.keeps else self._invert_condition(first.value, site)
        assert dtype is not None
        float_type = dtype.numpy().type
        # onnxruntime's Attention takes the lowest number for -inf, but not the next one.
        highest = float(np.nextafter(float_type(np.finfo(float_type).min), float_type(0)))
        total: ir.Value | None = None
        for term in mask.terms:
            if term.keeps is None:
                total = (
                    term.value if total is None else self._emit_once(site, "Add", [total, term.value], shape)
                )
                continue
            filler = self._scalar(term.filler if term.filler == -math.inf else highest, dtype)
            pair = [total or self._scalar(0.0, dtype), filler]
            inputs = [term.value, *(pair if term.keeps else pair[::-1])]
            total = self._emit_once(site, "Where", inputs, shape, dtype)
        assert total is not None
        if mask.leaves_scores or not mask.numbers.lowest:
            return total
        replaced = self._scalar(highest, dtype)
        if not mask.numbers.infinite:
            return self._emit_once(site, "Max", [total, replaced], shape)
        equal = self._emit_once(
            site, "Equal", [total, self._scalar(lowest_number(dtype) or 0.0, dtype)], shape
        )
        equal.type = ir.TensorType(ir.DataType.BOOL)
        return self._emit_once(site, "Where", [equal, replaced, total], shape, dtype)

    def _scalar(self, number: float, dtype: ir.DataType | None) -> ir.Value:
        assert dtype is not None
        key = "scalar", number, dtype
        if key not in self._cache:
            self._cache[key] = self._initializers.make(np.array(number, dtype=dtype.numpy()), "mask_number")
        return self._cache[key]

    def _invert_condition(self, value: ir.Value, site: AttentionSite) -> ir.Value:
        """A mask of bools in which True means that the key takes part."""
        if not self._initializers.is_constant(value) or value.shape is None:
            return self._emit_once(site, "Not", [value], value.shape)
        key = "inverted", value
        if key not in self._cache:
            sizes = value.shape.numpy()
            self._cache[key] = self._initializers.derive(
                [value], np.logical_not, ir.DataType.BOOL, sizes, 0, "inverted"
            )
        return self._cache[key]

    def _expand_mask(
        self, value: ir.Value, full_sizes: Sequence[Dim], site: AttentionSite
    ) -> ir.Value | None:
        """A mask repeated to a shape; None if that is a large constant."""
        sizes = [size for size in full_sizes if isinstance(size, int)]
        tensor = value.const_value if self._initializers.is_constant(value) else None
        is_constant = len(sizes) == len(full_sizes) and tensor is not None
        # A large expanded mask would cost more than the fusion saves.
        if is_constant and math.prod(sizes) > _MAXIMUM_EXPANDED:
            return None
        # Constants are shared by all graphs, computed masks only within one.
        key = "expanded", value, None if is_constant else site.node.graph, tuple(map(str, full_sizes))
        if key in self._cache:
            return self._cache[key]
        if is_constant and tensor is not None:
            self._cache[key] = self._initializers.derive(
                [value], lambda a: np.broadcast_to(a, sizes), tensor.dtype, tuple(sizes), 0, "expanded"
            )
        else:
            inputs = [value, self._expand_shape(full_sizes, site)]
            self._cache[key] = insert_node(
                site.node, self._initializers, "Expand", inputs, ir.Shape(full_sizes)
            )
        return self._cache[key]

    def _expand_shape(self, full_sizes: Sequence[Dim], site: AttentionSite) -> ir.Value:
        """The shape input of an Expand along the last two dimensions; a size of 1 keeps a dimension."""
        lengths = [size for size in full_sizes[2:] if isinstance(size, int)]
        if len(lengths) == 2:
            return self._initializers.make(np.array([1, 1, *lengths], dtype=np.int64), "mask_shape")
        unit_sizes = self._initializers.make(np.ones(2, dtype=np.int64), "mask_shape")
        parts = [unit_sizes, *(self._length(value, site) for value in (site.query, site.value))]
        axis = [ir.AttrInt64("axis", 0)]
        return insert_node(site.node, self._initializers, "Concat", parts, ir.Shape([4]), axis)

    def _length(self, value: ir.Value, site: AttentionSite) -> ir.Value:
        """The length of the queries or of the values: their size along the axis of positions."""
        axis = len(site.scores) - 2
        bounds = [ir.AttrInt64("start", axis), ir.AttrInt64("end", axis + 1)]
        return insert_node(
            site.node, self._initializers, "Shape", [value], ir.Shape([1]), bounds, ir.DataType.INT64
        )

    def _emit_once(
        self,
        site: AttentionSite,
        op_type: str,
        inputs: Sequence[ir.Value],
        shape: ir.Shape | None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """The result of a node; a second call in the same graph returns the first result."""
        key = op_type, *inputs, site.node.graph
        if key not in self._cache:
            self._cache[key] = insert_node(site.node, self._initializers, op_type, inputs, shape, dtype=dtype)
        return self._cache[key]


def _keys_kept_by_all(arrays: Sequence[np.ndarray]) -> np.ndarray | None:
    """Which keys all masks keep; None if the masks do not broadcast, or are large together."""
    try:
        if math.prod(np.broadcast_shapes(*(array.shape for array in arrays))) > MAXIMUM_MASK:
            return None
        result: np.ndarray | None = np.logical_and.reduce(np.broadcast_arrays(*arrays))
        return result
    except ValueError:
        return None


def _is_lower_triangle(kept_keys: np.ndarray, scores: Dims) -> bool:
    """Whether exactly the keys up to the query's own position take part, for all heads."""
    sizes = kept_keys.shape[-2:]
    if kept_keys.ndim < 2 or any(size != 1 for size in kept_keys.shape[:-2]) or [*sizes] != [*scores[-2:]]:
        return False
    return np.array_equal(kept_keys.reshape(sizes), np.tri(*sizes, dtype=bool))
