"""What convolution and pooling share: numbers per spatial dimension, and inputs without a batch."""

from collections.abc import Sequence

from ...registration import GraphContext, Value


def per_dimension(numbers: Sequence[int], dimensions: int) -> list[int]:
    """One number per spatial dimension; a lone number is meant for all of them."""
    return list(numbers) * dimensions if len(numbers) == 1 else list(numbers)


def is_unbatched(g: GraphContext, input: Value, dimensions: int) -> bool:
    """Whether the input is [C, spatial...]; one of unknown rank counts as [N, C, spatial...]."""
    return g.rank(input) == dimensions + 1


def spatial_sizes(g: GraphContext, input: Value, dimensions: int) -> list[int] | None:
    """The spatial sizes where all of them are known."""
    shape = g.shape(input)
    sizes = None if shape is None else shape[len(shape) - dimensions :]
    return None if sizes is None or not all(isinstance(size, int) for size in sizes) else list(sizes)  # type: ignore[arg-type]
