"""Computes the bytes of values: numbers if the sizes of dimensions are known, else formulas."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

import onnx_ir as ir

from ....registration import PlanError
from ....registration.size_algebra.dimensions import Dim, SizePolynomial, polynomial_of, text_of
from ...captured_graph.dimensions import evaluate

Size = int | str
"""Bytes, or a formula of dimensions in Python's notation."""
_MOST_TERMS = 64


@dataclasses.dataclass(frozen=True)
class Dimensions:
    """The symbolic dimensions of a model's inputs.

    Attributes:
        sizes: the sizes that the caller gave, by name.
        names: the names of all dimensions of inputs; other names stand for sizes that depend on data.
    """

    sizes: Mapping[str, int]
    names: frozenset[str]

    def size(self, value: ir.Value, dim: Dim) -> Dim:
        """Return the size of a dimension of a value; the dimension itself if its size is a formula.

        Raises:
            PlanError: the size is unknown before the model runs.
        """
        if isinstance(dim, int):
            return dim
        text = dim.value or ""
        size = evaluate(text, self.sizes)
        if size is None and text and self._is_formula(text):
            return dim
        if not isinstance(size, int) or size < 0:
            unbound = sorted(self.names - self.sizes.keys())
            remedy = f"; it may be known if sizes are given for {', '.join(unbound)}" if unbound else ""
            cause = "it depends on the data or is not declared"
            raise PlanError(f"a size of '{value.name}' is unknown, because {cause}{remedy}")
        return size

    def _is_formula(self, text: str) -> bool:
        # Longest first, because one name may contain another.
        for name in sorted((name for name in self.names if name in text), key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "1", text)
        return evaluate(text, {}) is not None


def bytes_of(value: ir.Value, dimensions: Dimensions) -> Size:
    """Compute the bytes of a tensor, or a formula for them.

    Raises:
        PlanError: the element type or a size is unknown, or the value is not a tensor of numbers.
    """
    value_type = value.type
    if value_type is not None and not isinstance(value_type, ir.TensorType):
        raise PlanError(f"value '{value.name}' is {value_type}: a plan supports only tensors")
    if value.dtype is None or value.dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        element_type = (
            "no known element type" if value.dtype is None else f"the element type {value.dtype.name}"
        )
        raise PlanError(f"value '{value.name}' has {element_type}: its size is unknown")
    if value.shape is None:
        raise PlanError(f"the rank of '{value.name}' is unknown: its size depends on the data")
    bits = value.dtype.bitwidth
    numbers = [dim for dim in value.shape if isinstance(dim, int)]
    if len(numbers) == len(value.shape):
        # The usual case, all sizes numbers, avoids slow formulas.
        return -(-math.prod(numbers) * bits // 8)
    count = SizePolynomial.of_number(1)
    for dim in value.shape:
        count = count * polynomial_of(dimensions.size(value, dim))
        # Each dimension that is a sum multiplies the number of terms.
        if len(count.terms) > _MOST_TERMS:
            raise PlanError(f"the size of '{value.name}' is a formula with too many terms")
    if count.number is not None:
        # Elements smaller than a byte are packed, so the whole tensor is rounded up to bytes.
        return -(-count.number * bits // 8)
    if bits % 8 == 0:
        return text_of(count * SizePolynomial.of_number(bits // 8))
    return f"({text_of(count * SizePolynomial.of_number(bits))} + 7)//8"
