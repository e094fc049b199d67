"""Removes what torch.export removes from a recorded graph: sizes and detached tensors that nothing reads."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.fx

from ...fake_tensors import FakeTensor, unwrap_batches

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
_PROFILER = "profiler"
"""The namespace of the operators by which `torch.profiler` marks regions."""


def remove_dead_nodes(graph: torch.fx.Graph) -> None:
    """Remove unread nodes that only compute sizes, then a profiler's marks and unread `detach` nodes."""
    _remove(graph, _computes_a_size)
    _remove(graph, _reads_hidden_tensor)
    _remove(graph, _marks_or_detaches)


def _remove(graph: torch.fx.Graph, is_dead: Callable[[torch.fx.Node], bool]) -> None:
    # In reverse order, because erasing a node may leave its operands unread.
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and is_dead(node):
            constants = [item for item in node.all_input_nodes if item.op == "get_attr"]
            graph.erase_node(node)
            for constant in constants:
                if not constant.users:
                    graph.erase_node(constant)


def _reads_hidden_tensor(node: torch.fx.Node) -> bool:
    """Whether a node reads a fake tensor that no node computes, such as one of a batching rule of `vmap`."""
    root = node.graph.owning_module
    constants = [
        getattr(root, str(item.target), None) for item in node.all_input_nodes if item.op == "get_attr"
    ]
    return any(
        isinstance(item, torch.Tensor) and isinstance(unwrap_batches(item), FakeTensor) for item in constants
    )


def _marks_or_detaches(node: torch.fx.Node) -> bool:
    return node.target is _ATEN.detach.default or getattr(node.target, "namespace", None) == _PROFILER


def _computes_a_size(node: torch.fx.Node) -> bool:
    if node.target in _ACCESSORS:
        return True
    return isinstance(node.meta.get("val"), _SYMBOLIC) and all(
        isinstance(item.meta.get("val"), _SYMBOLIC) for item in node.args if isinstance(item, torch.fx.Node)
    )
