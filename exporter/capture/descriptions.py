"""Writes metadata of inputs and state: kind, training flags, memory format, ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from ...registration import KIND, MEMORY_FORMAT, PERSISTENT, TRAINABLE

_PERMUTED = {4: ("channels_last", (1, 3, 2, 0)), 5: ("channels_last_3d", (1, 4, 3, 2, 0))}
"""The memory format that is not contiguous, and its axes from the innermost on, by rank."""


def describe_input(metadata: dict[str, str], tensor: Any) -> None:
    """Record the kind and memory format of an input."""
    metadata[KIND] = "user"
    _note_memory_format(metadata, tensor)


def describe_state(
    metadata: dict[str, str], kind: str, tensor: torch.Tensor, *, persistent: bool = True
) -> None:
    """Record whether a tensor is a parameter, buffer or constant."""
    metadata[KIND] = kind
    if kind == "parameter":
        metadata[TRAINABLE] = "true" if tensor.requires_grad else "false"
    if kind == "buffer":
        metadata[PERSISTENT] = "true" if persistent else "false"
    _note_memory_format(metadata, tensor)


def _note_memory_format(metadata: dict[str, str], tensor: Any) -> None:
    """Record a memory format that is not contiguous; compares symbolic sizes as text, without guards."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.ndim not in _PERMUTED:
        return
    name, order = _PERMUTED[tensor.ndim]
    strides = tensor.stride()
    if _text(strides[1]) == "1" and _text(strides[order[1]]) == _text(tensor.shape[1]) != "1":
        metadata[MEMORY_FORMAT] = name


def _text(size: Any) -> str:
    return str(size if isinstance(size, int) else size.node.expr)


def ranges(constraints: Mapping[Any, Any], names: Mapping[Any, str]) -> str | None:
    """The smallest and largest value of each symbolic size, as JSON by name; None without sizes.

    Args:
        constraints: torch's ranges by symbol.
        names: names by symbol; other symbols keep torch's name.
    """
    found: dict[str, list[int | None]] = {}
    for symbol, bound in constraints.items():
        bounds = [_finite(bound.lower), _finite(bound.upper)]
        held = found.setdefault(names.get(symbol, str(symbol)), bounds)
        # Two symbols with the same name are one size, to which both ranges apply.
        held[0] = max((known for known in (held[0], bounds[0]) if known is not None), default=None)
        held[1] = min((known for known in (held[1], bounds[1]) if known is not None), default=None)
    return json.dumps(found, sort_keys=True, separators=(",", ":")) if found else None


def _finite(bound: Any) -> int | None:
    return int(bound) if bound.is_Integer else None
