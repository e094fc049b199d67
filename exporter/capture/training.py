"""Whether what is captured is in training mode."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ..torch_boundary.operators import HigherOrderOperator, OpOverload, schema_of

_ARITHMETIC = ("_operator", "math")
"""The modules of Python's functions in a graph that torch.export leaves."""


def is_training(model: Any) -> bool:
    """Whether a model is in training mode.

    The flag of a graph is read by no node of it. It counts where a node is a module or a function that may do
    in training what it does not otherwise; operators are called with what they do: `train`, `training`.
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
        # One without users checks guards.
        return bool(node.users)
    if node.op != "call_function" or isinstance(target, HigherOrderOperator):
        return node.op == "call_method"
    if not isinstance(target, OpOverload):
        name = getattr(target, "__name__", "")
        return getattr(target, "__module__", None) not in _ARITHMETIC and not name.startswith("sym_")
    given = dict(zip((formal.name for formal in schema_of(target).arguments), node.args, strict=False))
    given.update(node.kwargs)
    return given.get("train") is True or given.get("training") is True
