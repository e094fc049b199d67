"""Makes random values for the inputs of a model, of sizes for which the model is valid."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from ...registration import DimensionError, OpsettaError
from ..captured_graph.dimensions import Dimension
from .input_sizes import DeclaredInput
from .model_inputs import ModelInputs

_BOUND = 2
"""Random integers are less than this: 0 or 1, which are valid for embeddings and masks."""
_WORDS = ("one", "two")
_SIZE = 2
"""The size to try first; sizes of 0 and 1 would hide broadcasting errors."""
_LARGEST_SIZE = 128
_SMALL_SIZES = (2, 4, 1, 3, 5, 6, 8, 10)
_MOST_COMBINATIONS = 5000


def random_inputs(
    inputs: ModelInputs, seed: int = 0, sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Make random values by input name: normally distributed floats, integers 0 and 1, bools, words.

    Args:
        sizes: sizes of named dimensions; the others get 2, or the next size for which the model is valid.

    Raises:
        DimensionError: no such size is valid for all of these dimensions.
        OpsettaError: an input has no shape, or an element type for which no values are made.
    """
    generator = np.random.default_rng(seed)
    declared = [inputs.declared[name] for name in inputs.names]
    for entry in declared:
        if entry.shape is None:
            raise OpsettaError(f"input '{entry.name}' has no shape, so no random values can be made for it")
    shapes = _valid_shapes(inputs, dict(sizes or {}))
    return {entry.name: _random_array(generator, entry, shapes[entry.name]) for entry in declared}


def _valid_shapes(inputs: ModelInputs, sizes: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the shapes of the inputs for `sizes` and the first valid sizes of the other dimensions."""
    first_error = None
    for candidate in _candidate_sizes(inputs, [name for name in inputs.dimension_names if name not in sizes]):
        shapes = inputs.shapes_at({**candidate, **sizes}, _SIZE)
        try:
            inputs.check_sizes(shapes)
        except DimensionError as error:
            first_error = first_error or error
        else:
            return shapes
    raise DimensionError(f"no sizes were found that are valid for all inputs: name them; {first_error}")


def _candidate_sizes(inputs: ModelInputs, names: list[str]) -> Iterator[dict[str, int]]:
    """Yield sizes to try for dimensions: first one size for all, within their bounds, then combinations."""
    dimensions = {} if inputs.sizes is None else inputs.sizes.dimensions
    bounds = {name: dimensions.get(name, Dimension(name)) for name in names}

    def clamp(name: str, size: int) -> int:
        maximum = bounds[name].maximum
        return max(bounds[name].minimum, size if maximum is None else min(maximum, size))

    # For most models one size for all dimensions is valid.
    for size in (_SIZE, *range(1, _LARGEST_SIZE + 1)):
        yield {name: clamp(name, size) for name in names}
    # Conditions such as `height == 2*width` need different sizes.
    combinations = itertools.product(_SMALL_SIZES, repeat=len(names))
    for sizes in itertools.islice(combinations, _MOST_COMBINATIONS):
        yield {name: clamp(name, size) for name, size in zip(names, sizes, strict=True)}


def _random_array(generator: np.random.Generator, entry: DeclaredInput, shape: list[int]) -> np.ndarray:
    if entry.dtype == ir.DataType.STRING:
        return generator.choice(_WORDS, shape).astype(object)
    dtype = None if entry.dtype is None else entry.dtype.numpy()
    if dtype is not None and dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    if dtype is not None and dtype.kind in "iu":
        return generator.integers(0, _BOUND, shape).astype(dtype)
    if dtype is not None and dtype.kind == "b":
        return generator.random(shape) < 0.5
    name = "unknown" if entry.dtype is None else entry.dtype.name
    raise OpsettaError(f"input '{entry.name}' has the type {name}, for which random values are not supported")
