"""Removes what torch.export removes from a recorded graph: sizes and detached tensors that nothing reads."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.fx

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ATEN = torch.ops.aten
_ACCESSORS = frozenset(
    {
        _ATEN.sym_size.default,
        _ATEN.sym_size.int,
        _ATEN.sym_stride.default,
        _ATEN.sym_stride.int,
        _ATEN.sym_storage_offset.default,
        _ATEN.sym_numel.default,
    }
)
_PROFILING = frozenset(
    {
        torch.ops.profiler._record_function_enter.default,
        torch.ops.profiler._record_function_enter_new.default,
        torch.ops.profiler._record_function_exit._RecordFunction,
    }
)


def remove_dead_nodes(graph: torch.fx.Graph) -> None:
    """Remove unread nodes that only compute sizes, then profiling and unread detachments."""
    _remove(graph, _computes_a_size)
    _remove(graph, (_PROFILING | {_ATEN.detach.default}).__contains__, by_target=True)


def _remove(graph: torch.fx.Graph, is_dead: Callable[..., bool], by_target: bool = False) -> None:
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and is_dead(node.target if by_target else node):
            graph.erase_node(node)


def _computes_a_size(node: torch.fx.Node) -> bool:
    if node.target in _ACCESSORS:
        return True
    return isinstance(node.meta.get("val"), _SYMBOLIC) and all(
        isinstance(item.meta.get("val"), _SYMBOLIC) for item in node.args if isinstance(item, torch.fx.Node)
    )
