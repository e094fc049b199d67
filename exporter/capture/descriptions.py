"""Writes metadata of inputs and state: kind, training flags, memory format, ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

import sympy
import torch

from ...registration import KIND, MEMORY_FORMAT, PERSISTENT, TRAINABLE


class SymbolRange(Protocol):
    """torch's range of a symbolic size."""

    @property
    def lower(self) -> sympy.Expr:
        """The smallest size."""

    @property
    def upper(self) -> sympy.Expr:
        """The largest size."""


_PERMUTED = {4: ("channels_last", (1, 3, 2, 0)), 5: ("channels_last_3d", (1, 4, 3, 2, 0))}
"""The memory format that is not contiguous, and its axes from the innermost on, by rank."""


def describe_input(metadata: dict[str, str], tensor: object) -> None:
    """Record the kind and memory format of an input."""
    metadata[KIND] = "user"
    _note_memory_format(metadata, tensor)


def describe_state(
    metadata: dict[str, str], role: str, tensor: torch.Tensor, *, persistent: bool = True
) -> None:
    """Record whether a tensor is a parameter, buffer or constant."""
    metadata[KIND] = role
    if role == "parameter":
        metadata[TRAINABLE] = "true" if tensor.requires_grad else "false"
    if role == "buffer":
        metadata[PERSISTENT] = "true" if persistent else "false"
    _note_memory_format(metadata, tensor)


def _note_memory_format(metadata: dict[str, str], tensor: object) -> None:
    """Record a memory format that is not contiguous; compares symbolic sizes as text, without guards."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.ndim not in _PERMUTED:
        return
    name, order = _PERMUTED[tensor.ndim]
    strides = tensor.stride()
    if _text(strides[1]) == "1" and _text(strides[order[1]]) == _text(tensor.shape[1]) != "1":
        metadata[MEMORY_FORMAT] = name


def _text(size: int | torch.SymInt) -> str:
    return str(size if isinstance(size, int) else size.node.expr)


def ranges(constraints: Mapping[sympy.Symbol, SymbolRange], names: Mapping[sympy.Symbol, str]) -> str | None:
    """The smallest and largest value of each symbolic size, as JSON by name; None without sizes.

    Args:
        constraints: torch's ranges by symbol.
        names: names by symbol; other symbols keep torch's name.
    """
    ranges_by_name: dict[str, list[int | None]] = {}
    for symbol, bound in constraints.items():
        bounds = [_finite(bound.lower), _finite(bound.upper)]
        merged_bounds = ranges_by_name.setdefault(names.get(symbol, str(symbol)), bounds)
        # Two symbols with the same name are one size, to which both ranges apply.
        for end, tightest in enumerate((max, min)):
            limits = [limit for limit in (merged_bounds[end], bounds[end]) if limit is not None]
            merged_bounds[end] = tightest(limits, default=None)
    return json.dumps(ranges_by_name, sort_keys=True, separators=(",", ":")) if ranges_by_name else None


def _finite(bound: sympy.Expr) -> int | None:
    return int(bound) if bound.is_Integer else None
