"""Functions of a file: which call which, and how much they are when they are written out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from ...registration import ModelFileError
from .metadata import canonical
from .names import quoted

MAXIMUM_EXPANDED = 1_000_000
"""Nodes of a model with every call of a function written out."""

MAXIMUM_CALL_DEPTH = 100
"""Functions that call functions; each level is a level of calls in what infers types and writes out."""

_Key = tuple[str, str, str]
_PLAIN = 1, 0
"""An operator that is no function: one node, no level of calls."""


def check_calls(model: onnx.ModelProto) -> None:
    """Refuse functions that stand twice, call themselves, or are too much or too deep when written out.

    A few functions that each call the next ten times are more nodes than any memory holds.

    Raises:
        ModelFileError: naming the function.
    """
    functions: dict[_Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (canonical(function.domain), function.name, function.overload)
        if key in functions:
            raise ModelFileError(f"{title_of(function)} stands twice")
        functions[key] = function
    sizes: dict[_Key, tuple[int, int]] = {}
    for key in functions:
        _measure(key, functions, sizes)
    total = sum(sizes.get(key, _PLAIN)[0] for key in _called(model.graph.node))
    if total > MAXIMUM_EXPANDED:
        raise ModelFileError(
            f"the model is more than {MAXIMUM_EXPANDED} nodes with its functions written out"
        )


def title_of(function: onnx.FunctionProto) -> str:
    """A function, as an error names it."""
    return f"function {quoted(f'{function.domain}::{function.name}')}"


def _measure(
    start: _Key, functions: dict[_Key, onnx.FunctionProto], sizes: dict[_Key, tuple[int, int]]
) -> None:
    """Find how many nodes a function is with all that it calls, and how many levels of calls.

    What is called comes first.
    """
    path = [start]
    inside: set[_Key] = set()
    while path:
        key = path[-1]
        if key in sizes:
            path.pop()
            continue
        called = list(_called(functions[key].node))
        missing = [other for other in dict.fromkeys(called) if other in functions and other not in sizes]
        if not missing:
            inner = [sizes.get(other, _PLAIN) for other in called]
            depth = 1 + max((levels for _, levels in inner), default=0)
            if depth > MAXIMUM_CALL_DEPTH:
                raise ModelFileError(f"functions call each other more than {MAXIMUM_CALL_DEPTH} levels deep")
            sizes[key] = min(MAXIMUM_EXPANDED + 1, sum(nodes for nodes, _ in inner)), depth
            inside.discard(key)
            path.pop()
            continue
        if key in inside:
            raise ModelFileError(f"{title_of(functions[key])} calls itself")
        inside.add(key)
        path.extend(missing)


def _called(nodes: Iterable[onnx.NodeProto]) -> Iterator[_Key]:
    """The operators of nodes and of the graphs within them."""
    pending = [iter(nodes)]
    while pending:
        for node in pending[-1]:
            yield canonical(node.domain), node.op_type, node.overload
            graphs = [g for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]
            if graphs:
                pending.extend(iter(graph.node) for graph in graphs)
                break
        else:
            pending.pop()
