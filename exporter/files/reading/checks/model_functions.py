"""Checks the functions of a file: their calls, and their size after inlining."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import onnx

from .....registration import ModelFileError
from ..bounds import BOUNDS, REMEDY, Bounds
from ..names import quoted
from ..subgraphs import subgraphs
from .metadata import canonical

BYTES_OF_NODE = 100
"""Bytes of the model required for each further node after inlining."""

MAXIMUM_CALL_DEPTH = 100
"""Bound on nested function calls, because shape inference and inlining recurse for each level."""

_Key = tuple[str, str, str]


_MOST = 2**62
"""Counts saturate here, because larger numbers would grow with the call depth."""


class _Expanded(NamedTuple):
    """The size of a call after inlining."""

    nodes: int = 1
    size: int = 0
    levels: int = 0


_PLAIN = _Expanded()
"""The size of an operator that is not a function."""


def check_calls(model: onnx.ModelProto, bounds: Bounds = BOUNDS) -> None:
    """Refuse functions that are duplicates, call themselves, or are too large or too deep after inlining.

    A few functions that each call the next one ten times expand to more nodes than any memory holds.

    Raises:
        ModelFileError: the message names the function.
    """
    functions: dict[_Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (canonical(function.domain), function.name, function.overload)
        if key in functions:
            raise ModelFileError(f"{title_of(function)} occurs twice")
        functions[key] = function
    if not functions:
        return
    measured: dict[_Key, _Expanded] = {}
    for key in functions:
        _measure(key, functions, measured)
    calls = [measured.get(key, _PLAIN) for key in _operators(model.graph.node)]
    size = model.ByteSize()
    allowed_nodes = min(bounds.nodes, bounds.expanded_nodes + size // BYTES_OF_NODE)
    if sum(call.nodes for call in calls) > max(allowed_nodes, len(calls)):
        raise ModelFileError(
            f"the model has more than {allowed_nodes} nodes when its functions are inlined, the limit for a "
            f"file of {size} bytes; {REMEDY}"
        )
    allowed_bytes = bounds.expanded_bytes + 2 * size
    if sum(call.size for call in calls) > allowed_bytes:
        raise ModelFileError(
            f"the model has more than {allowed_bytes} bytes when its functions are inlined, the limit for a "
            f"file of {size} bytes; {REMEDY}"
        )


def title_of(function: onnx.FunctionProto) -> str:
    """The title of a function in error messages."""
    return f"function {quoted(f'{function.domain}::{function.name}')}"


def _measure(start: _Key, functions: dict[_Key, onnx.FunctionProto], sizes: dict[_Key, _Expanded]) -> None:
    """Compute the size of a function after inlining.

    Called functions are measured first.
    """
    path = [start]
    inside: set[_Key] = set()
    while path:
        key = path[-1]
        if key in sizes:
            path.pop()
            continue
        callees = list(_operators(functions[key].node))
        missing = [callee for callee in dict.fromkeys(callees) if callee in functions and callee not in sizes]
        if not missing:
            callee_sizes = [sizes.get(callee, _PLAIN) for callee in callees]
            depth = 1 + max((call.levels for call in callee_sizes), default=0)
            if depth > MAXIMUM_CALL_DEPTH:
                raise ModelFileError(f"functions call each other more than {MAXIMUM_CALL_DEPTH} levels deep")
            nodes = max(1, sum(call.nodes for call in callee_sizes))
            size = functions[key].ByteSize() + sum(call.size for call in callee_sizes)
            # Each level may double the count, so it is bounded before it becomes a long integer.
            sizes[key] = _Expanded(min(nodes, _MOST), min(size, _MOST), depth)
            inside.discard(key)
            path.pop()
            continue
        if key in inside:
            raise ModelFileError(f"{title_of(functions[key])} calls itself")
        inside.add(key)
        path.extend(missing)


def _operators(nodes: Iterable[onnx.NodeProto]) -> Iterator[_Key]:
    """The operators of nodes and of their sub-graphs."""
    # A stack, because sub-graphs of a file may be nested deeper than Python's recursion goes.
    pending = [iter(nodes)]
    while pending:
        for node in pending[-1]:
            yield canonical(node.domain), node.op_type, node.overload
            graphs = subgraphs(node)
            if graphs:
                pending.extend(iter(graph.node) for graph in graphs)
                break
        else:
            pending.pop()
