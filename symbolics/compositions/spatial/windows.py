"""Helpers of convolution and pooling: numbers per spatial dimension, and inputs without a batch."""

from collections.abc import Sequence
from typing import TypeVar

from ....registration import GraphContext, Value

Number = TypeVar("Number")
"""A number of a window: an int, or a value that is computed."""


def per_dimension(numbers: Sequence[Number], dimensions: int) -> list[Number]:
    """Return one number per spatial dimension; a single number applies to all of them."""
    return list(numbers) * dimensions if len(numbers) == 1 else list(numbers)


def is_unbatched(g: GraphContext, input: Value, dimensions: int) -> bool:
    """Whether the input is [C, spatial...]; an input of unknown rank is assumed to be [N, C, spatial...]."""
    return g.rank(input) == dimensions + 1


def spatial_sizes(g: GraphContext, input: Value, dimensions: int) -> list[int] | None:
    """The spatial sizes if all of them are known.

    Raises:
        UnsupportedError: the input has fewer dimensions than the window, or none for channels.
    """
    shape = g.shape(input)
    if shape is not None and len(shape) <= dimensions:
        raise g.refuse(f"a window with {dimensions} dimensions needs an input with more than {len(shape)}")
    sizes = None if shape is None else shape[len(shape) - dimensions :]
    return None if sizes is None or not all(isinstance(size, int) for size in sizes) else list(sizes)  # type: ignore[arg-type]
