"""Finds the checkpoint keys of variables in the saver nodes of a graph.

A saver restores a variable by an Assign from a result of RestoreV2, and saves it by SaveV2; both have the
keys in a constant. TensorFlow 2 has these nodes in functions, which take the handles of the variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .....registration import ModelFileError
from ..tensors import array_of
from .conditions import HANDLES, VARIABLES
from .scope import Node, Reference, Scope

_PASSED = frozenset("Identity ReadVariableOp Cast DisableCopyOnRead RefIdentity".split())
_ASSIGNS = frozenset({"Assign", "AssignVariableOp"})
_SAVES = {"SaveV2": 3, "Save": 2, "SaveSlices": 3}
"""The first input that is a variable."""
_RESTORES = frozenset({"RestoreV2", "Restore", "RestoreSlice"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_RESOURCE = 20
_MOST_STEPS = 100


class Key(NamedTuple):
    """The position of a variable in a checkpoint.

    Attributes:
        name: the key.
        slice: the part of it: "8 6 0,4:-", the whole shape and then the start and the length of each
            dimension; empty for all of it.
    """

    name: str
    slice: str


class _Place(NamedTuple):
    """The graph, or a function that it calls, with the results of the graph that it takes."""

    scope: Scope
    arguments: Mapping[str, Reference]


def saver_keys(graph: Scope, functions: Iterable[Any]) -> dict[str, list[Key]]:
    """The keys of each variable of a graph, those of RestoreV2 first.

    Raises:
        ModelFileError: a saver is malformed.
    """
    found: dict[str, list[Key]] = {}
    for restores in (True, False):
        for place in _places(graph, functions):
            for node in place.scope.nodes.values():
                pairs = _restored(place, node) if restores else _saved(place, node)
                for variable, key in pairs:
                    keys = found.setdefault(variable, [])
                    if key not in keys:
                        keys.append(key)
    return found


def _places(graph: Scope, functions: Iterable[Any]) -> list[_Place]:
    """The graph, and the functions with savers that it calls."""
    savers = {
        function.signature.name: function
        for function in functions
        if any(node.op in _RESTORES or node.op in _SAVES for node in function.node_def)
        and any(argument.type == _RESOURCE for argument in function.signature.input_arg)
    }
    found = [_Place(graph, {})]
    for node in graph.nodes.values():
        name = node.attribute("f").func.name if node.op in _CALLS else node.op
        if name in savers:
            arguments = [argument.name for argument in savers[name].signature.input_arg]
            scope = Scope(savers[name].node_def, f"the function '{name}'", arguments)
            found.append(_Place(scope, dict(zip(arguments, node.inputs, strict=False))))
    return found


def _restored(place: _Place, node: Node) -> Iterable[tuple[str, Key]]:
    """The variable that a node assigns, and the key that it was read under."""
    if node.op not in _ASSIGNS or len(node.inputs) < 2:
        return
    variable = _variable(place, node.inputs[0])
    source = _source(place.scope, node.inputs[1])
    restore = place.scope.nodes.get(source.node)
    if variable is None or restore is None or restore.op not in _RESTORES:
        return
    index = source.port.rpartition(":")[2]
    keys = _keys(place.scope, restore)
    position = int(index) if index.isdigit() else 0
    if position < len(keys):
        yield variable, keys[position]


def _saved(place: _Place, node: Node) -> Iterable[tuple[str, Key]]:
    """The variables that a node saves, and their keys."""
    first = _SAVES.get(node.op)
    if first is None:
        return
    for key, result in zip(_keys(place.scope, node), node.inputs[first:], strict=False):
        variable = _variable(place, result)
        if variable is not None:
            yield variable, key


def _keys(scope: Scope, node: Node) -> Sequence[Key]:
    """The keys of a node that saves or restores; none if they are computed."""
    names = _texts(scope, node.inputs[1]) if len(node.inputs) > 1 else None
    if names is None:
        return []
    slices = None
    if node.op not in ("Save", "Restore") and len(node.inputs) > 2:
        slices = _texts(scope, node.inputs[2])
    slices = [""] * len(names) if slices is None else slices
    if len(slices) != len(names):
        raise ModelFileError(f"{node.shown} has {len(names)} keys, but {len(slices)} slices")
    return [Key(name, part) for name, part in zip(names, slices, strict=True)]


def _texts(scope: Scope, result: Reference) -> list[str] | None:
    """The strings of a constant."""
    node = scope.nodes.get(_source(scope, result).node)
    if node is None or node.op != "Const":
        return None
    held = array_of(node.attribute("value").tensor, node.shown)
    if held.dtype != np.object_:
        return None
    return [text.decode(errors="replace") for text in held.reshape(-1)]


def _source(scope: Scope, result: Reference) -> Reference:
    """Skip nodes that return their input."""
    for _ in range(_MOST_STEPS):
        node = scope.nodes.get(result.node)
        if node is None or node.op not in _PASSED or not node.inputs:
            break
        result = node.inputs[0]
    return result


def _variable(place: _Place, result: Reference) -> str | None:
    """The variable that a result is the handle, the reference or the value of."""
    source = _source(place.scope, result)
    if source.node in place.scope.arguments:
        return place.arguments[source.node].node if source.node in place.arguments else None
    node = place.scope.nodes.get(source.node)
    return source.node if node is not None and node.op in VARIABLES | HANDLES else None
