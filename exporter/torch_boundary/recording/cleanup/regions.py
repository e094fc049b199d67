"""Sub-graphs of a recorded graph: regions without gradients or under autocast, and their operands' names."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ...export_internals import name_operand_placeholders, replace_autocast_with_hop_pass
from ...operators.overloads import HigherOrderOperator

_ENTER = torch.amp.autocast_mode._enter_autocast
_EXIT = torch.amp.autocast_mode._exit_autocast


def remove_regions(graph: torch.fx.Graph, root: torch.nn.Module) -> tuple[torch.fx.Graph, torch.nn.Module]:
    """Remove switches of gradient mode, and turn each autocast region into a node with a sub-graph.

    If no region enables autocast, only the nodes that enter and leave regions are removed.

    Returns:
        The graph, and the module that holds its sub-graphs and attributes.
    """
    entered = []
    for node in list(graph.nodes):
        if node.target is torch._C._set_grad_enabled:
            graph.erase_node(node)
        elif node.target is _ENTER:
            entered.append(node)
    if not entered:
        return graph, root
    # The third argument of `_enter_autocast` is `enabled`.
    if all(node.args[2] is False for node in entered):
        for node in reversed(graph.nodes):
            if node.target in (_ENTER, _EXIT):
                graph.erase_node(node)
        return graph, root
    regions_module: Any = replace_autocast_with_hop_pass(torch.fx.GraphModule(root, graph), None)[0]
    return regions_module.graph, regions_module


def name_operands(root: torch.nn.Module) -> None:
    """Name the inputs of sub-graphs after the nodes that they stand for."""
    module: Any = root
    if any(isinstance(node.target, HigherOrderOperator) for node in module.graph.nodes):
        name_operand_placeholders(module)
