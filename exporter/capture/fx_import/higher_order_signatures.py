"""The arguments of higher-order operators, and the operands that nodes of a captured graph write to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.fx

from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import storage_of
from ...torch_boundary.operators.overloads import (
    HigherOrderOperator,
    OpOverload,
    schema_of,
    written_arguments,
)


@dataclasses.dataclass(frozen=True)
class HigherOrderSignature:
    """The arguments of a higher-order operator, in order, and which of them are graphs.

    Attributes:
        formals: the arguments that become the inputs of each graph, in order.
        carried: how many of `formals` the operator returns after each run; None if the graphs of the
            operator must not write to an operand.
    """

    parameters: tuple[str, ...]
    graphs: tuple[str, ...]
    formals: tuple[str, ...]
    carried: int | None = None


_LOOP = HigherOrderSignature(
    ("cond_fn", "body_fn", "carried_inputs", "additional_inputs"),
    ("cond_fn", "body_fn"),
    ("carried_inputs", "additional_inputs"),
    1,
)
SIGNATURES = {
    "cond": HigherOrderSignature(
        ("pred", "true_graph", "false_graph", "operands"), ("true_graph", "false_graph"), ("operands",), 0
    ),
    "while_loop": _LOOP,
    "while_loop_stack_output": dataclasses.replace(_LOOP, carried=None),
    "scan": HigherOrderSignature(
        ("combine_fn", "init", "xs", "additional_inputs"),
        ("combine_fn",),
        ("init", "xs", "additional_inputs"),
    ),
    "associative_scan": HigherOrderSignature(
        ("combine_fn", "xs", "additional_inputs"), ("combine_fn",), ("xs", "xs", "additional_inputs")
    ),
    "range_loop": HigherOrderSignature(
        ("body_fn", "init", "index", "additional_inputs", "count", "step"),
        ("body_fn",),
        ("init", "index", "additional_inputs"),
    ),
    "map_impl": HigherOrderSignature(("f", "xs", "pos_args"), ("f",), ("xs", "pos_args")),
}

# The position of a wrapper's body among its arguments, and of the first operand of the body.
WRAPPERS = {
    "hints_wrapper": (0, 1),
    "invoke_quant": (0, 1),
    "invoke_quant_packed": (0, 1),
    "invoke_subgraph": (0, 2),
    "strict_mode": (0, 1),
    "tag_activation_checkpoint": (0, 1),
    "wrap": (0, 1),
    "wrap_activation_checkpoint": (0, 1),
    "wrap_with_autocast": (4, 5),
    "wrap_with_set_grad_enabled": (1, 2),
}
TAKES_A_TUPLE = frozenset({"hints_wrapper", "strict_mode"})


def placeholders(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The inputs of a graph, in order."""
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def written_operands(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The operands that a node or the graphs among its arguments write to."""
    target = node.target
    if isinstance(target, OpOverload):
        schema = schema_of(target)
        # `detach_` is declared mutable, but changes only autograd's record.
        if not schema.is_mutable or target is torch.ops.aten.detach_.default:
            return []
        arguments = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
        return [item for name in written_arguments(schema) for item in _nodes(arguments.get(name))]
    if isinstance(target, HigherOrderOperator):
        return [
            operands[index]
            for operands, module in _calls(node, target.name())
            for index in written_inputs(module)
            if isinstance(operands[index], torch.fx.Node)
        ]
    return []


def written_inputs(module: torch.fx.GraphModule) -> list[int]:
    """The positions of a graph's inputs that its nodes write to, themselves or through views."""
    # By storage, because a graph may write through a view of its input.
    changed = {storage(item) for node in module.graph.nodes for item in written_operands(node)} - {None}
    return [index for index, node in enumerate(placeholders(module)) if storage(node) in changed]


def _calls(node: torch.fx.Node, name: str) -> Iterator[tuple[list[Any], torch.fx.GraphModule]]:
    """The graphs that a node runs, each with the operands for its inputs."""
    if name in WRAPPERS:
        body, first = WRAPPERS[name]
        operands: Any = node.args[first] if name in TAKES_A_TUPLE else node.args[first:]
        yield list(operands), _module(node.args[body])
        return
    signature = SIGNATURES.get(name)
    if signature is None:
        return
    arguments: dict[str, Any] = dict(zip(signature.parameters, node.args, strict=False))
    operands = [item for formal in signature.formals for item in arguments[formal]]
    for graph in signature.graphs:
        yield operands, _module(arguments[graph])


def _module(item: Any) -> torch.fx.GraphModule:
    submodule: Any = item.graph.owning_module
    for part in str(item.target).split("."):
        submodule = getattr(submodule, part)
    return cast(torch.fx.GraphModule, submodule)


def _nodes(item: object) -> list[torch.fx.Node]:
    return [leaf for leaf in pytree.tree_leaves(item) if isinstance(leaf, torch.fx.Node)]


def storage(node: object) -> int | None:
    """A key that is equal for two nodes if they share memory."""
    return storage_of(node.meta.get("val")) if isinstance(node, torch.fx.Node) else None
