"""Names of the nodes of a recorded graph, by torch.export's rules."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import InputKind, InputSpec

from ...torch_boundary.containers import pytree

_PREFIXES = {
    InputKind.PARAMETER: "p_",
    InputKind.BUFFER: "b_",
    InputKind.CONSTANT_TENSOR: "c_",
    InputKind.CUSTOM_OBJ: "obj_",
}
_NUMBERED = re.compile(r"(.*)_(\d+)")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9]")


def _stem(name: str) -> str:
    """A name without the number at its end."""
    numbered = _NUMBERED.match(name) if name[-1:].isdigit() else None
    return numbered[1] if numbered else name


def assign_names(graph: torch.fx.Graph, entries: Sequence[InputSpec], arguments: Sequence[str]) -> None:
    """Name placeholders after the forward's parameters and the weights, and other nodes apart from them.

    Args:
        graph: has the `tensor_name` of each parameter and buffer as the target of its placeholder.
        entries: the kind of each placeholder, whose names are corrected too.
        arguments: the `argument_names`.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    pairs = list(zip(placeholders, entries, strict=True))
    # Inputs are named first, so that they keep the names of the forward's parameters.
    users = [(node, entry) for node, entry in pairs if entry.kind == InputKind.USER_INPUT]
    names = _UniqueNames()
    for (node, entry), name in zip(users, arguments, strict=True):
        _set(node, entry, names.take(name))
    for node, entry in pairs:
        if entry.kind != InputKind.USER_INPUT:
            is_named = entry.kind in (InputKind.PARAMETER, InputKind.BUFFER)
            _set(node, entry, names.take(node.target if is_named else tensor_name(entry.kind, entry.target)))
    for node in graph.nodes:
        if node.op != "placeholder":
            _rename(node, names.take(node.name, is_numbered=True))


def _set(node: torch.fx.Node, entry: InputSpec, name: str) -> None:
    _rename(node, name)
    object.__setattr__(node, "target", name)
    entry.arg.name = name


def _rename(node: torch.fx.Node, name: str) -> None:
    if node.name != name:
        # A node's own setter looks for the node in tables, which have no names or targets of placeholders.
        object.__setattr__(node, "name", name)


def tensor_name(input_kind: InputKind, name: object) -> str:
    """The name of the placeholder of a parameter, buffer or constant."""
    return _PREFIXES[input_kind] + _NOT_IN_NAMES.sub("_", str(name)).lower()


def argument_names(
    model: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> list[str]:
    """A name for each leaf of a call: the parameter, and the keys within it."""
    bound = {**inspect.signature(model.forward).bind_partial(*args).arguments, **kwargs}
    paths = [path for path, _ in pytree.tree_flatten_with_path(bound)[0]]
    return ["_".join(_key(step).lower() for step in path) for path in paths]


def _key(step: Any) -> str:
    if isinstance(step, pytree.MappingKey):
        return _NOT_IN_NAMES.sub("_", str(step.key))
    return str(step.idx) if isinstance(step, pytree.SequenceKey) else step.name


class _UniqueNames:
    """Makes names unique: a repeated name gets the number after the highest one seen for it."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._highest: dict[str, int] = {}

    def take(self, name: str, *, is_numbered: bool = False) -> str:
        """The name if it is unused; else the name with a new number, in place of an existing number."""
        if name in self._used:
            stem = _stem(name) if is_numbered else name
            name = f"{stem}_{self._highest.get(stem, 0) + 1}"
        numbered = _NUMBERED.match(name) if name[-1:].isdigit() else None
        if numbered:
            self._highest[numbered[1]] = max(self._highest.get(numbered[1], 0), int(numbered[2]))
        self._used.add(name)
        return name
