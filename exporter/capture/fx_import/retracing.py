"""Retraces parts of a captured graph that transform operators, on their fake tensors.

Three kinds of nodes transform operators instead of computing tensors:

- the nodes between the two ends of a `vmap`, of any depth: functorch turns them into operators on the batch;
- `flex_attention`, whose eager implementation is attention with its two functions under `vmap`;
- a region under autocast, whose casts are not in the captured graph.

Tracing must not add assumptions about symbolic sizes: a graph that is valid for some sizes only is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from ....passes.faults import raise_fault
from ....registration import CaptureError
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import mode_of, trace
from ...torch_boundary.operators.higher_order import eager_flex_attention, vmap_nesting
from .fx_graph import GraphImporter
from .source_values import Imported


def vmap_region(first: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes of a `vmap`, from its beginning to its end, further ones inside it included.

    Raises:
        CaptureError: it does not end.
    """
    region: list[torch.fx.Node] = []
    depth = 0
    node = first
    while node.op != "output":
        region.append(node)
        depth += vmap_nesting(node.target)
        if depth == 0:
            return region
        node = node.next
    raise CaptureError("a vmap of the captured graph does not end")


def import_vmap(importer: GraphImporter, region: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, Imported]:
    """Import the nodes of a `vmap` as operators on the batch; return the value of each result."""
    inside = set(region)
    used = [item for node in region for item in node.all_input_nodes if item not in inside]
    operands = list(dict.fromkeys(used))
    results = [node for node in region if any(user not in inside for user in node.users)]

    def run(*values: object) -> list[object]:
        environment: dict[torch.fx.Node, Any] = dict(zip(operands, values, strict=True))
        for node in region:
            if node.op == "get_attr":
                environment[node] = importer.module_attribute(node)
                continue
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), environment.__getitem__)
            environment[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return [environment[node] for node in results]

    constants = {node: importer.module_attribute(node) for node in operands if node.op == "get_attr"}
    examples = [constants.get(node, node.meta.get("val")) for node in operands]
    traced = _trace_function(run, examples, "vmap")
    values = importer.inline(traced, [importer.argument(node) for node in operands])
    return dict(zip(results, values, strict=True))


def import_flex_attention(importer: GraphImporter, node: torch.fx.Node) -> object:
    """Import a `flex_attention` as its eager implementation: attention with functions of single scores."""
    leaves, structure = pytree.tree_flatten((node.args, node.kwargs))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.fx.Node)]
    arguments = {i: importer.argument(leaves[i]) for i in positions}
    graphs = {i: item for i, item in arguments.items() if isinstance(item, torch.fx.GraphModule)}
    # The tensors of a block mask only list blocks where its function is false; the function decides.
    mask = structure.unflatten(range(len(leaves)))[0][4]
    ignored = {i for i in pytree.tree_leaves(mask) if i not in graphs}
    operands = [i for i in positions if i not in graphs and i not in ignored]

    attention = eager_flex_attention()

    def run(*values: object) -> object:
        merged = dict(enumerate(leaves)) | graphs | dict(zip(operands, values, strict=True))
        args, kwargs = structure.unflatten(list(merged.values()))
        return attention(*args, **kwargs)

    examples = [leaves[i].meta["val"] for i in operands]
    return importer.inline(_trace_function(run, examples, "flex_attention"), [arguments[i] for i in operands])


def import_autocast(importer: GraphImporter, node: torch.fx.Node) -> object:
    """Import a region under autocast with the casts that autocast makes.

    Returns:
        The region's results; None if the capture recorded other element types than eager PyTorch, as strict
        tracing does.
    """
    device, dtype, enabled, _, body, *operands = node.args
    module = importer.argument(body)

    def run(*values: object) -> object:
        # Without a GPU, torch.autocast disables itself for "cuda"; the program may be captured on one.
        of_gpu = device == "cuda"
        # The cache would return casts of an earlier trace.
        with torch.autocast(device, dtype=dtype, enabled=enabled and not of_gpu, cache_enabled=False):  # type: ignore[arg-type]
            if of_gpu:
                torch.set_autocast_enabled("cuda", bool(enabled))
            return module(*values)

    examples = [item.meta["val"] if isinstance(item, torch.fx.Node) else item for item in operands]
    traced = _trace_function(run, examples, "region under autocast")
    [output] = (node for node in traced.graph.nodes if node.op == "output")
    results = output.args[0]
    for user in node.users:
        result = results[user.args[1]] if user.target is operator.getitem else None
        if result is None or result.meta["val"].dtype != user.meta["val"].dtype:
            return None
    return importer.inline(traced, importer.argument(operands))


def _trace_function(
    function: Callable[..., object], examples: Sequence[object], construct: str
) -> torch.fx.GraphModule:
    """The operators that a function runs over fake tensors.

    Args:
        construct: what the function belongs to, for messages.

    Raises:
        CaptureError: torch cannot trace it, or only for some symbolic sizes.
    """
    mode = mode_of(examples)
    environment = mode.shape_env
    guard_count = len(environment.guards) if environment is not None else 0
    try:
        traced = trace(function, mode, examples)
    except Exception as error:
        raise_fault(error, f"when it traced a {construct} of the captured graph")
        raise CaptureError(
            f"a {construct} of the captured graph cannot be traced: {type(error).__name__}: {error}"
        ) from error
    # A new guard means that a branch of the traced code depended on a size.
    if environment is not None and len(environment.guards) > guard_count:
        raise CaptureError(f"a {construct} of the captured graph holds for some of the dynamic sizes only")
    # Tracing records sizes that nothing reads.
    traced.graph.eliminate_dead_code()
    return traced
