"""Models and arguments that direct capture leaves to torch.export."""

from __future__ import annotations

import torch
import torch.fx

from ....registration import CaptureError
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import FakeTensor, is_without_data
from ...torch_boundary.operators.higher_order import is_transform
from ...torch_boundary.operators.overloads import HigherOrderOperator, OpOverload
from ...torch_boundary.state.module_tree import ModuleTree

_ARITHMETIC = ("_operator", "math")
"""The modules of Python functions that a graph may have."""


class NotRecordable(CaptureError):
    """A model of a kind that only torch.export captures."""


class LoopRefused(CaptureError):
    """A Python loop over a dynamic size whose iterations cannot become one operator."""


def check_recordable(tree: ModuleTree, call: object) -> None:
    """Refuse a model or arguments that direct capture would not record as torch.export does.

    Raises:
        NotRecordable: the message names the kind.
    """
    if isinstance(tree.model, torch.fx.GraphModule):
        raise NotRecordable("the model is a torch.fx.GraphModule, which only torch.export captures")
    for path, module in tree.modules.items():
        if isinstance(module, torch.jit.ScriptModule):
            raise NotRecordable(f"module '{path}' is TorchScript")
    for path, item in tree.attributes.items():
        if isinstance(item, torch.ScriptObject):
            raise NotRecordable(f"attribute '{path}' is a TorchScript object")
    for description, named in (("parameter", tree.parameters), ("buffer", tree.buffers)):
        for name, tensor in named.items():
            if _has_unknown_sizes(tensor) or tensor.device.type == "meta":
                raise NotRecordable(f"{description} '{name}' is a {type(tensor).__name__} without data")
    for leaf in pytree.tree_leaves(call):
        # Other leaves would become constants of the graph without notice.
        is_known = leaf is None or isinstance(leaf, (torch.Tensor, int, float, str))
        if not is_known or (isinstance(leaf, torch.Tensor) and _has_unknown_sizes(leaf)):
            raise NotRecordable(f"an argument is a {type(leaf).__name__}")


def _has_unknown_sizes(tensor: torch.Tensor) -> bool:
    """Whether a tensor wraps others, or is a fake tensor with symbolic sizes, which belong to its mode."""
    if not isinstance(tensor, FakeTensor):
        return is_without_data(tensor)
    return not all(isinstance(size, int) for size in (*tensor.shape, *tensor.stride()))


def check_graph(graph: torch.fx.Graph) -> None:
    """Refuse a graph that calls other things than operators, arithmetic on sizes, and ends of a `vmap`.

    Raises:
        NotRecordable: the message names the function.
    """
    for node in graph.nodes:
        target = node.target
        if node.op != "call_function" or isinstance(target, (OpOverload, HigherOrderOperator)):
            continue
        name = getattr(target, "__name__", str(target))
        is_arithmetic = getattr(target, "__module__", None) in _ARITHMETIC or name.lstrip("_").startswith(
            "sym_"
        )
        is_arithmetic = is_arithmetic or target is round
        if not is_arithmetic and not is_transform(target):
            raise NotRecordable(f"function {name} is not an operator")
