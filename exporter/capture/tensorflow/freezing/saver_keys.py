"""Finds the checkpoint keys of variables in the saver nodes of a graph.

A saver restores a variable by an Assign of a result of RestoreV2, and saves it by SaveV2; both read the keys
from a constant. In TensorFlow 2 these nodes are in functions, which take the handles of the variables.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .....registration import ModelFileError
from ..messages import FunctionDef
from ..node_messages import CALLS, MessageNode, MessageScope, ResultName, argument_names
from ..tensor_protos import array_of
from .scope_analysis import HANDLE_VARIABLES, REFERENCE_VARIABLES, RESOURCE

_IDENTITIES = frozenset("Identity ReadVariableOp Cast DisableCopyOnRead RefIdentity".split())
_ASSIGNS = frozenset({"Assign", "AssignVariableOp"})
_SAVES = {"SaveV2": 3, "Save": 2, "SaveSlices": 3}
"""The index of the first input that is a variable."""
_RESTORES = frozenset({"RestoreV2", "Restore", "RestoreSlice"})
_MOST_STEPS = 100


class CheckpointKey(NamedTuple):
    """The key of a variable in a checkpoint, and the slice of it that is stored, empty for all of it.

    A slice such as "8 6 0,4:-" has the whole shape, then the start and the length of each dimension, or "-".
    """

    name: str
    slice: str


class _SaverScope(NamedTuple):
    """The graph, or a function that it calls, with the results of the graph that are its arguments."""

    scope: MessageScope
    arguments: Mapping[str, ResultName]


def saver_keys(graph: MessageScope, functions: Iterable[FunctionDef]) -> dict[str, list[CheckpointKey]]:
    """The keys of each variable of a graph, those of RestoreV2 first."""
    keys_by_variable: dict[str, list[CheckpointKey]] = {}
    # A key that restores a variable has priority over one that only saves it.
    for read_assigns in (True, False):
        for saver_scope in _saver_scopes(graph, functions):
            for node in saver_scope.scope.nodes.values():
                pairs = (
                    _keys_of_assign(saver_scope, node) if read_assigns else _keys_of_save(saver_scope, node)
                )
                for variable, key in pairs:
                    keys = keys_by_variable.setdefault(variable, [])
                    if key not in keys:
                        keys.append(key)
    for copy, original in _copies(graph):
        if copy in keys_by_variable:
            keys_by_variable.setdefault(original, keys_by_variable[copy])
    return keys_by_variable


def _copies(graph: MessageScope) -> Iterable[tuple[str, str]]:
    """Variables whose initial value is another variable, and that variable.

    In SavedModels of Keras 3 the saver restores copies, and the signatures read the originals.
    """
    scope = _SaverScope(graph, {})
    for node in graph.nodes.values():
        if node.op in _ASSIGNS and len(node.inputs) >= 2:
            copy, original = (_variable_name(scope, result) for result in node.inputs[:2])
            if copy is not None and original is not None:
                yield copy, original


def _saver_scopes(graph: MessageScope, functions: Iterable[FunctionDef]) -> list[_SaverScope]:
    """The graph, and the functions with savers that the graph calls."""
    savers = {
        function.signature.name: function
        for function in functions
        if any(node.op in _RESTORES or node.op in _SAVES for node in function.node_def)
        # Without handles as arguments, a function cannot restore variables of the graph.
        and any(argument.type == RESOURCE for argument in function.signature.input_arg)
    }
    scopes = [_SaverScope(graph, {})]
    for node in graph.nodes.values():
        name = node.attribute("f").func.name if node.op in CALLS else node.op
        if name in savers:
            arguments = dict(zip(argument_names(savers[name]), node.inputs, strict=False))
            scopes.append(_SaverScope(MessageScope.of_function(savers[name]), arguments))
    return scopes


def _keys_of_assign(saver_scope: _SaverScope, node: MessageNode) -> Iterable[tuple[str, CheckpointKey]]:
    """The variable that a node assigns, and the key under which RestoreV2 reads the value."""
    if node.op not in _ASSIGNS or len(node.inputs) < 2:
        return
    variable = _variable_name(saver_scope, node.inputs[0])
    source = _skip_identities(saver_scope.scope, node.inputs[1])
    restore = saver_scope.scope.nodes.get(source.node)
    if variable is None or restore is None or restore.op not in _RESTORES:
        return
    index = source.port.rpartition(":")[2]
    keys = _keys(saver_scope.scope, restore)
    position = int(index) if index.isdigit() else 0
    if position < len(keys):
        yield variable, keys[position]


def _keys_of_save(saver_scope: _SaverScope, node: MessageNode) -> Iterable[tuple[str, CheckpointKey]]:
    """The variables that a node saves, and their keys."""
    first = _SAVES.get(node.op)
    if first is None:
        return
    for key, result in zip(_keys(saver_scope.scope, node), node.inputs[first:], strict=False):
        variable = _variable_name(saver_scope, result)
        if variable is not None:
            yield variable, key


def _keys(scope: MessageScope, node: MessageNode) -> Sequence[CheckpointKey]:
    """The keys of a node that saves or restores; none if they are computed."""
    names = _constant_strings(scope, node.inputs[1]) if len(node.inputs) > 1 else None
    if names is None:
        return []
    slices = None
    if node.op not in ("Save", "Restore") and len(node.inputs) > 2:
        slices = _constant_strings(scope, node.inputs[2])
    # Save and Restore have no slices.
    slices = [""] * len(names) if slices is None else slices
    if len(slices) != len(names):
        raise ModelFileError(f"{node.label} has {len(names)} keys, but {len(slices)} slices")
    return [CheckpointKey(name, slice_text) for name, slice_text in zip(names, slices, strict=True)]


def _constant_strings(scope: MessageScope, result: ResultName) -> list[str] | None:
    """The strings of a constant; None if the result is something else."""
    node = scope.nodes.get(_skip_identities(scope, result).node)
    if node is None or node.op != "Const":
        return None
    strings = array_of(node.attribute("value").tensor, node.label)
    if strings.dtype != np.object_:
        return None
    return [text.decode(errors="replace") for text in strings.reshape(-1)]


def _skip_identities(scope: MessageScope, result: ResultName) -> ResultName:
    """Skip nodes that return their input."""
    # A malformed graph may have a cycle of such nodes.
    for _ in range(_MOST_STEPS):
        node = scope.nodes.get(result.node)
        if node is None or node.op not in _IDENTITIES or not node.inputs:
            break
        result = node.inputs[0]
    return result


def _variable_name(saver_scope: _SaverScope, result: ResultName) -> str | None:
    """The name of the variable whose handle, reference or value a result is; None if there is none."""
    source = _skip_identities(saver_scope.scope, result)
    if source.node in saver_scope.scope.arguments:
        return saver_scope.arguments[source.node].node if source.node in saver_scope.arguments else None
    node = saver_scope.scope.nodes.get(source.node)
    return source.node if node is not None and node.op in REFERENCE_VARIABLES | HANDLE_VARIABLES else None
