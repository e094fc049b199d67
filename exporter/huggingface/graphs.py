"""One ONNX file of a task: the call, its example, and the names of inputs and outputs."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ...registration import CaptureError

BATCH, SEQUENCE, PAST, TOTAL = (
    "batch_size",
    "sequence_length",
    "past_sequence_length",
    "total_sequence_length",
)
SOURCE = "encoder_sequence_length"
EXAMPLE_BATCH, EXAMPLE_SEQUENCE, EXAMPLE_PAST, EXAMPLE_SOURCE = 2, 3, 5, 6
"""Sizes in examples: all different, so that they are not taken for one another."""

Pairs = list[tuple[Any, ...]]
"""Keys and values of each layer, and those of cross-attention if there are such."""


@dataclasses.dataclass(frozen=True)
class Graph:
    """A call that becomes one ONNX file.

    Attributes:
        file: its name.
        call: takes the model and the inputs by name, and returns tensors in lists and tuples.
        inputs: examples by name; pairs of keys and values have one name.
        shapes: the dynamic dimensions of each input, by their number.
        input_names, output_names: of the flattened inputs and results.
    """

    file: str
    call: Callable[[Any, dict[str, Any]], Any]
    inputs: dict[str, Any]
    shapes: dict[str, Any]
    input_names: list[str]
    output_names: list[str]


def example_tokens(config: Any, length: int) -> Any:
    """Make a batch of distinct tokens."""
    import torch

    size = config.get_text_config(decoder=True).vocab_size
    return (torch.arange(EXAMPLE_BATCH * length).reshape(EXAMPLE_BATCH, length) * 7 + 3) % size


def cache_names(prefix: str, layers: int, attention_prefixes: Sequence[str] = ("",)) -> list[str]:
    """The names of keys and values, `past_key_values.0.key` or `present.0.decoder.key`."""
    return [
        f"{prefix}.{layer}.{attention_prefix}{part}"
        for layer in range(layers)
        for attention_prefix in attention_prefixes
        for part in ("key", "value")
    ]


def random_like(pairs: Pairs, length: int, dtype: Any) -> Pairs:
    """Make deterministic random keys and values of another length.

    Args:
        pairs: tensors `[batch, heads, length, channels]`, which may have no data.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    return [
        tuple(
            torch.randn(EXAMPLE_BATCH, part.shape[1], length, part.shape[3], generator=generator).to(dtype)
            for part in pair
        )
        for pair in pairs
    ]


def trial_run(model: Any, inputs: dict[str, Any]) -> Any:
    """Run the model with a cache to find the shapes in its result; the values are meaningless.

    On the meta device nothing is computed. A model that asks for the value of a tensor runs with weights that
    are not initialized, whose memory is not used before it is written.

    Args:
        inputs: without masks, whose values models ask for.

    Raises:
        CaptureError: the model fails.
    """
    import torch

    def run(candidate: Any) -> Any:
        with torch.no_grad():
            moved = {name: item.to(candidate.device) for name, item in inputs.items()}
            return type(candidate).forward(candidate, **moved, use_cache=True)

    if model.device.type != "meta":
        return run(model)
    # The run of a copy: some models keep tensors of their last run.
    with contextlib.suppress(RuntimeError, NotImplementedError):
        return run(copy.deepcopy(model))
    try:
        return run(copy.deepcopy(model).to_empty(device="cpu"))
    except (RuntimeError, NotImplementedError, ValueError, IndexError) as error:
        raise CaptureError(
            f"{type(model).__name__} cannot be exported: {' '.join(str(error).split())}"
        ) from error
