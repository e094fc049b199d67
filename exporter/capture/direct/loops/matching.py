"""Compares the calls that the iterations of a loop recorded."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
import torch.fx

from ....torch_boundary.recording.replay import NotReplayable
from .tensor_writes import NotRepeated, SliceWrite, call_text, have_same_type, operand_text, take_writes

Argument = Any
"""An argument of a graph node: a node, a Python value, or a list or tuple of arguments."""
_ATEN = torch.ops.aten
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def loop_index(loop: int, iteration: int) -> int:
    """The index of an iteration; a target for graph nodes only.

    Raises:
        NotReplayable: always, since the operator that replaces the loop has its own index.
    """
    raise NotReplayable("it depends on the index of a loop")


@dataclasses.dataclass
class LoopBody:
    """What a loop computes.

    Attributes:
        iterations: the nodes of each recorded iteration, in order; equal positions correspond.
        positions: the iteration and the position of each node.
        carried: the positions whose values the next iteration reads.
        inputs: the values that the second iteration reads for these, in the same order.
        initial: the values that the first iteration reads for them; None if it differs from the others, and
            is recorded apart.
        writes: the writes to slices of tensors from before the loop; their nodes have no position.
        updates: by another written tensor from before the loop, its value after each iteration.
    """

    iterations: list[list[torch.fx.Node]]
    positions: dict[torch.fx.Node, tuple[int, int]]
    carried: list[int]
    inputs: list[torch.fx.Node]
    initial: list[torch.fx.Node] | None
    writes: list[SliceWrite]
    updates: dict[torch.fx.Node, list[torch.fx.Node]]


def match_iterations(
    iterations: list[list[torch.fx.Node]],
    symbols: set[sympy.Symbol],
    root: torch.nn.Module,
    *,
    peels: bool,
    takes_writes: bool,
    takes_rows: bool = True,
) -> LoopBody:
    """Find what the iterations of a loop have in common.

    Args:
        iterations: the nodes of the first three iterations, each beginning with that of its index.
        symbols: the symbols of the indices, of inner loops too.
        root: has what `get_attr` nodes name.
        peels: whether the first iteration is known to differ.
        takes_writes: whether to take writes to tensors from before the loop out of the iterations.
        takes_rows: see `take_writes`.

    Raises:
        NotRepeated: the third iteration differs from the second.
    """
    for nodes in iterations:
        move_invariants(nodes, iterations[0][0], symbols, root)
    writes, updates = take_writes(iterations, takes_rows=takes_rows) if takes_writes else ([], {})
    positions = {
        node: (iteration, position)
        for iteration, nodes in enumerate(iterations)
        for position, node in enumerate(nodes)
    }
    inputs: dict[int, torch.fx.Node] = {}

    def compare_later(earlier: Argument, later: Argument) -> bool:
        before, after = positions.get(earlier, (-1, -1)), positions.get(later, (-1, -1))
        if after[0] == 1 and before[0] < 1:
            return inputs.setdefault(after[1], earlier) is earlier
        return earlier is later or ((before[0], after[0]) == (1, 2) and before[1] == after[1])

    _compare(iterations[1], iterations[2], compare_later, root)
    initial: dict[int, torch.fx.Node] = {}

    def compare_first(earlier: Argument, later: Argument) -> bool:
        before, after = positions.get(earlier), positions.get(later)
        if after is not None and after[0] == 0:
            return before is None and initial.setdefault(after[1], earlier) is earlier
        if before is None or after is None:
            return earlier is later
        return before[1] == after[1]

    values: list[torch.fx.Node] | None = None
    with contextlib.suppress(NotRepeated):
        if not peels:
            _compare(iterations[0], iterations[1], compare_first, root)
            if inputs.keys() <= initial.keys():
                values = [initial[position] for position in inputs]
    for position, value in zip(inputs, values or inputs.values(), strict=True):
        result = iterations[2][position]
        if not (have_same_type(iterations[1][position], result) and have_same_type(value, result)):
            what = "a number that it computes from that of the iteration before"
            if isinstance(result.meta.get("val"), torch.Tensor):
                what = f"the type or shape of {operand_text(result)}"
            raise NotRepeated(f"{what} changes from one iteration to the next")
    return LoopBody(iterations, positions, list(inputs), list(inputs.values()), values, writes, updates)


def _compare(
    earlier: Sequence[torch.fx.Node],
    later: Sequence[torch.fx.Node],
    are_same: Callable[[torch.fx.Node, torch.fx.Node], bool],
    root: torch.nn.Module,
) -> None:
    """Raise NotRepeated unless two iterations make the same calls."""
    if len(earlier) != len(later):
        raise NotRepeated(f"one iteration makes {len(earlier) - 1} calls, the next one {len(later) - 1}")

    def are_same_or_equal(before: torch.fx.Node, after: torch.fx.Node) -> bool:
        if are_same(before, after):
            return True
        # Each iteration has its own nodes for constants and sizes.
        first, second = before.meta.get("val"), after.meta.get("val")
        if isinstance(first, _SYMBOLIC) and isinstance(second, _SYMBOLIC):
            return bool(first.node.expr == second.node.expr)
        return _are_equal_attributes(before, after, root, root)

    # The first nodes are those of the indices.
    for before, after in zip(earlier[1:], later[1:], strict=True):
        if not _is_same_call(before, after, are_same_or_equal):
            texts = call_text(before), call_text(after)
            if texts[0] == texts[1]:
                raise NotRepeated(f"one iteration calls {texts[0]}, the next one with other operands")
            raise NotRepeated(f"one iteration calls {texts[0]}, the next one {texts[1]}")


def _is_same_call(
    before: torch.fx.Node, after: torch.fx.Node, are_same: Callable[[torch.fx.Node, torch.fx.Node], bool]
) -> bool:
    if before.op == after.op == "get_attr":
        return are_same(before, after)
    # The index of an inner loop has the number of that loop as its first argument.
    first = 1 if before.target is loop_index else 0
    return (
        before.op == after.op
        and before.target == after.target
        and _is_same_argument(
            (before.args[first:], before.kwargs), (after.args[first:], after.kwargs), are_same
        )
    )


def _are_equal_attributes(
    before: torch.fx.Node, after: torch.fx.Node, root: torch.nn.Module, root_of_after: torch.nn.Module
) -> bool:
    """Whether two nodes read equal constants, or equal bodies of inner loops."""
    if not before.op == after.op == "get_attr":
        return False
    first = operator.attrgetter(str(before.target))(root)
    second = operator.attrgetter(str(after.target))(root_of_after)
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return torch.equal(first, second)
    if not isinstance(first, torch.fx.GraphModule) or not isinstance(second, torch.fx.GraphModule):
        return first is second
    nodes, nodes_of_second = list(first.graph.nodes), list(second.graph.nodes)
    counterparts = dict(zip(nodes, nodes_of_second, strict=False))

    def are_same(node: torch.fx.Node, node_of_second: torch.fx.Node) -> bool:
        if node.op == "get_attr":
            return _are_equal_attributes(node, node_of_second, first, second)
        return counterparts[node] is node_of_second

    return len(nodes) == len(nodes_of_second) and all(
        _is_same_call(node, counterpart, are_same) for node, counterpart in counterparts.items()
    )


def _is_same_argument(
    before: Argument, after: Argument, are_same: Callable[[torch.fx.Node, torch.fx.Node], bool]
) -> bool:
    if isinstance(before, torch.fx.Node) and isinstance(after, torch.fx.Node):
        return are_same(before, after)
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        return len(before) == len(after) and all(
            _is_same_argument(*pair, are_same) for pair in zip(before, after, strict=True)
        )
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(
            _is_same_argument(before[key], after[key], are_same) for key in before
        )
    if isinstance(before, slice) and isinstance(after, slice):
        bounds = (before.start, before.stop, before.step)
        return _is_same_argument(bounds, (after.start, after.stop, after.step), are_same)
    return type(before) is type(after) and bool(before == after)


def move_invariants(
    nodes: list[torch.fx.Node], start: torch.fx.Node, symbols: set[sympy.Symbol], root: torch.nn.Module
) -> None:
    """Move constants, and arithmetic on sizes that no index is in, before the loop; it is recorded once."""
    inside = set(nodes)
    for node in list(nodes[1:]):
        value = node.meta.get("val")
        if node.op == "get_attr":
            if isinstance(operator.attrgetter(str(node.target))(root), torch.fx.GraphModule):
                # The body of an inner loop belongs to the body of this one.
                continue
            start.prepend(node)
            nodes.remove(node)
            inside.discard(node)
            continue
        if not isinstance(value, _SYMBOLIC) or value.node.expr.free_symbols & symbols:
            continue
        # The number that an iteration reads from a tensor may be another one in the next.
        if "unbacked_bindings" in node.meta:
            continue
        if inside.intersection(node.all_input_nodes) and not _reads_outside(node, start, value):
            continue
        start.prepend(node)
        nodes.remove(node)
        inside.discard(node)


def _reads_outside(
    node: torch.fx.Node, start: torch.fx.Node, value: torch.SymInt | torch.SymFloat | torch.SymBool
) -> bool:
    """Let a node read a size from a tensor before the loop; returns whether there is one."""
    if node.target is not _ATEN.sym_size.int:
        return False
    for earlier in start.graph.nodes:
        if earlier is start:
            return False
        tensor = earlier.meta.get("val")
        if not isinstance(tensor, torch.Tensor):
            continue
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and size.node.expr == value.node.expr:
                node.args = (earlier, axis)
                return True
    return False
