"""Finds whether a model is in training mode."""

from __future__ import annotations

import torch
import torch.fx

from ..torch_boundary.operators.overloads import HigherOrderOperator, OpOverload, schema_of

_ARITHMETIC = ("_operator", "math")
"""The modules of Python functions in a graph of torch.export."""


def is_training(model: object) -> bool:
    """Whether a model is in training mode.

    No node of a graph reads the graph's training flag. The flag counts only if a node is a module or a
    function that may behave differently in training; operators have arguments for it (`train`, `training`).
    """
    if getattr(model, "training", False) is not True:
        return False
    if not isinstance(model, torch.fx.GraphModule):
        return True
    graphs = [module.graph for module in model.modules() if isinstance(module, torch.fx.GraphModule)]
    return any(_may_train(node) for graph in graphs for node in graph.nodes)


def _may_train(node: torch.fx.Node) -> bool:
    target = node.target
    if node.op == "call_module":
        # A module whose result is not used only checks guards.
        return bool(node.users)
    if node.op != "call_function" or isinstance(target, HigherOrderOperator):
        return node.op == "call_method"
    if not isinstance(target, OpOverload):
        name = getattr(target, "__name__", "")
        return getattr(target, "__module__", None) not in _ARITHMETIC and not name.startswith("sym_")
    arguments = dict(zip((formal.name for formal in schema_of(target).arguments), node.args, strict=False))
    arguments.update(node.kwargs)
    return arguments.get("train") is True or arguments.get("training") is True
