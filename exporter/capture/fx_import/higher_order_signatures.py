"""The arguments of higher-order operators, and the operands that nodes of a captured graph write to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

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
class Signature:
    """The arguments of a higher-order operator, in order, and which of them are graphs.

    Attributes:
        formals: the arguments that the inputs of each graph stand for, in order.
        carried: how many of `formals` the operator gives back after each run; None where the operator lets
            its graphs write to no operand.
    """

    parameters: tuple[str, ...]
    graphs: tuple[str, ...]
    formals: tuple[str, ...]
    carried: int | None = None


_LOOP = Signature(
    ("cond_fn", "body_fn", "carried_inputs", "additional_inputs"),
    ("cond_fn", "body_fn"),
    ("carried_inputs", "additional_inputs"),
    1,
)
SIGNATURES = {
    "cond": Signature(
        ("pred", "true_graph", "false_graph", "operands"), ("true_graph", "false_graph"), ("operands",), 0
    ),
    "while_loop": _LOOP,
    "while_loop_stack_output": dataclasses.replace(_LOOP, carried=None),
    "scan": Signature(
        ("combine_fn", "init", "xs", "additional_inputs"),
        ("combine_fn",),
        ("init", "xs", "additional_inputs"),
    ),
    "associative_scan": Signature(
        ("combine_fn", "xs", "additional_inputs"), ("combine_fn",), ("xs", "xs", "additional_inputs")
    ),
    "map_impl": Signature(("f", "xs", "pos_args"), ("f",), ("xs", "pos_args")),
}

# Where a wrapper has its body, and where the operands of the body begin.
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


def written(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The operands that a node writes to, also from within the graphs that it takes."""
    target = node.target
    if isinstance(target, OpOverload):
        schema = schema_of(target)
        if not schema.is_mutable or target is torch.ops.aten.detach_.default:
            return []
        given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
        return [item for name in written_arguments(schema) for item in _nodes(given.get(name))]
    if isinstance(target, HigherOrderOperator):
        return [
            operand for actual, module in _calls(node, target.name()) for operand in _written(actual, module)
        ]
    return []


def _written(actual: Sequence[Any], module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [actual[index] for index in written_inputs(module) if isinstance(actual[index], torch.fx.Node)]


def written_inputs(module: torch.fx.GraphModule) -> list[int]:
    """The positions of a graph's inputs that its nodes write to, themselves or through views."""
    changed = {storage(item) for node in module.graph.nodes for item in written(node)} - {None}
    return [index for index, node in enumerate(placeholders(module)) if storage(node) in changed]


def _calls(node: torch.fx.Node, name: str) -> Iterator[tuple[list[Any], torch.fx.GraphModule]]:
    """The graphs that a node runs, each with the operands that its inputs stand for."""
    if name in WRAPPERS:
        body, first = WRAPPERS[name]
        operands = node.args[first] if name in TAKES_A_TUPLE else node.args[first:]
        yield list(operands), _module(node.args[body])  # type: ignore[arg-type]
        return
    signature = SIGNATURES.get(name)
    if signature is None:
        return
    given = dict(zip(signature.parameters, node.args, strict=False))
    operands = [item for formal in signature.formals for item in given[formal]]  # type: ignore[union-attr]
    for graph in signature.graphs:
        yield operands, _module(given[graph])


def _module(item: Any) -> torch.fx.GraphModule:
    found: Any = item.graph.owning_module
    for part in str(item.target).split("."):
        found = getattr(found, part)
    result: torch.fx.GraphModule = found
    return result


def _nodes(item: Any) -> list[torch.fx.Node]:
    return [leaf for leaf in pytree.tree_leaves(item) if isinstance(leaf, torch.fx.Node)]


def storage(node: Any) -> int | None:
    """A key that is equal for two nodes if they share memory."""
    return storage_of(node.meta.get("val")) if isinstance(node, torch.fx.Node) else None
