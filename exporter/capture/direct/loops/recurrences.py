"""Functions of transformers that compute a recurrence in chunks of a fixed size, as loops over the tokens.

A chunk's function unrolls a triangular solution of a fixed size, and holds for lengths of at least two chunks.
The modules that define such a function also define the recurrence itself, with the same arguments and results.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

_RECURRENCES = {
    "torch_chunk_gated_delta_rule": "torch_recurrent_gated_delta_rule",
    "chunk_kimi_delta_attention": "recurrent_kimi_delta_attention",
}
"""The name of the recurrence for that of the function in chunks."""


def recurrent_forms(namespace: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """The functions in chunks that a module defines, and what to call instead for a dynamic length.

    Returns:
        For each of them the namespace, the name, and a function whose `__wrapped__` is the original.
    """
    for name, recurrence_name in _RECURRENCES.items():
        chunked, recurrence = namespace.get(name), namespace.get(recurrence_name)
        if isinstance(chunked, types.FunctionType) and isinstance(recurrence, types.FunctionType):
            yield namespace, name, _choose(chunked, recurrence)


def _choose(chunked: types.FunctionType, recurrence: types.FunctionType) -> Any:
    @functools.wraps(chunked)
    def choose(query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        # The length is the second axis of the queries.
        function = recurrence if isinstance(query.shape[1], torch.SymInt) else chunked
        return function(query, *args, **kwargs)

    choose.__wrapped__ = chunked  # type: ignore[attr-defined]
    return choose
