"""Names of the nodes of a recorded graph, by torch.export's rules."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import InputKind, InputSpec

from ...torch_boundary import pytree

_PREFIXES = {InputKind.PARAMETER: "p_", InputKind.BUFFER: "b_", InputKind.CONSTANT_TENSOR: "c_"}
_NUMBERED = re.compile(r"(.*)_(\d+)")


def assign_names(
    model: torch.nn.Module,
    call: tuple[tuple, Mapping[str, Any]],
    graph: torch.fx.Graph,
    entries: Sequence[InputSpec],
) -> None:
    """Name placeholders after the forward's parameters and the weights, and other nodes apart from them.

    Args:
        entries: the kind of each placeholder, whose names are corrected too.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    pairs = list(zip(placeholders, entries, strict=True))
    users = [(node, entry) for node, entry in pairs if entry.kind == InputKind.USER_INPUT]
    names = _Names()
    for (node, entry), wanted in zip(users, _argument_names(model, *call), strict=True):
        _set(node, entry, names.take(wanted, wanted))
    for node, entry in pairs:
        if entry.kind != InputKind.USER_INPUT:
            wanted = _PREFIXES[entry.kind] + re.sub(r"[^a-zA-Z0-9]", "_", str(entry.target)).lower()
            _set(node, entry, names.take(wanted, wanted))
    for node in graph.nodes:
        if node.op != "placeholder":
            numbered = _NUMBERED.match(node.name)
            node.name = names.take(node.name, numbered[1] if numbered else node.name)


def _set(node: torch.fx.Node, entry: InputSpec, name: str) -> None:
    node.name = node.target = entry.arg.name = name


def _argument_names(model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> Iterator[str]:
    """A name for each leaf of a call: the parameter, and the keys within it."""
    bound = {**inspect.signature(model.forward).bind_partial(*args).arguments, **kwargs}
    for path, _ in pytree.tree_flatten_with_path(bound)[0]:
        yield "_".join(_key(step).lower() for step in path)


def _key(step: Any) -> str:
    if isinstance(step, pytree.MappingKey):
        return re.sub(r"[^a-zA-Z0-9]", "_", str(step.key))
    return str(step.idx) if isinstance(step, pytree.SequenceKey) else step.name


class _Names:
    """Unique names: a name that is taken gets the number after the highest one seen for it."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._highest: dict[str, int] = {}

    def take(self, name: str, stem: str) -> str:
        """The name, or the stem with a number if it is taken."""
        if name in self._used:
            name = f"{stem}_{self._highest.get(stem, 0) + 1}"
        numbered = _NUMBERED.match(name)
        if numbered:
            self._highest[numbered[1]] = max(self._highest.get(numbered[1], 0), int(numbered[2]))
        self._used.add(name)
        return name
