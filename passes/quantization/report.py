"""What quantization did to a model: sizes and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from .quantized_weight import QuantizedWeight


@dataclasses.dataclass(frozen=True)
class Error:
    """The difference between approximate numbers and the exact ones.

    Attributes:
        maximum: the largest absolute error, relative to the largest absolute value.
        mean: the mean absolute error, relative to the mean absolute value.
    """

    maximum: float
    mean: float

    @classmethod
    def between(cls, computed: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Error:
        """The error of arrays."""
        pairs = [
            (np.asarray(a, np.float64), np.asarray(b, np.float64))
            for a, b in zip(computed, expected, strict=True)
        ]
        largest = max((float(np.abs(b).max(initial=0)) for _, b in pairs), default=0.0)
        worst = max((float(np.abs(a - b).max(initial=0)) for a, b in pairs), default=0.0)
        total = sum(float(np.abs(b).sum()) for _, b in pairs)
        return cls(
            worst / (largest or 1.0), sum(float(np.abs(a - b).sum()) for a, b in pairs) / (total or 1.0)
        )

    def __str__(self) -> str:
        # Of two denominators: the mean may be the larger number.
        return f"{self.maximum:.2g} of the largest number at most, {self.mean:.2g} of the mean on average"


@dataclasses.dataclass(frozen=True)
class Quantization:
    """What was quantized in a model.

    Attributes:
        weights: the weights that were quantized.
        form: how the weights of products are stored.
        bytes_before: of all initializers of the model as it was.
        bytes_after: of all its initializers now.
    """

    weights: tuple[QuantizedWeight, ...]
    form: str
    bytes_before: int
    bytes_after: int

    @property
    def error(self) -> Error:
        """The largest error of a weight relative to the largest number of that weight, and the mean error.

        Reading it computes the contents of all weights, unless they have been written before.
        """
        errors = [weight.errors for weight in self.weights]
        worst = max((error.largest / (error.largest_weight or 1.0) for error in errors), default=0.0)
        total = sum(error.total_weight for error in errors)
        return Error(worst, sum(error.total for error in errors) / (total or 1.0))
