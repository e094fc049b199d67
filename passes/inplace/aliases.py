"""Alias analysis of a source graph: finds the values that share memory, and the memory that is written.

A value flows into another if the other may be the same tensor or a view of it: through views, in-place
operators, outputs of branches, carried values of loops, and lists. The roots of a value are the inputs,
initializers and results that may own its memory.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

import onnx_ir as ir
from onnx_ir import Value

from ...registration import INPLACE, KIND, NUMBER, GraphError
from ...registration.arguments import arguments, blocks
from ..source_builder import where
from . import mutating_operators as table
from .views import aliased_tensors, may_be_view, view_rule

_Flow = tuple[Value, bool]
"""A value that flows into another, and whether both are the same tensor."""


def is_list(value: Value) -> bool:
    """Whether a value is a list of tensors."""
    return isinstance(value.type, ir.SequenceType)


def shares_with_list(node: ir.Node) -> bool:
    """Whether a node puts tensors into a list or reads them from one."""
    return (
        node.domain == "list" or any(is_list(output) for output in node.outputs)
    ) and node.domain != "prim"


def is_branch(node: ir.Node) -> bool:
    """Whether a node is a TorchScript branch, which may write to outer values."""
    return node.op_type == "If" and node.domain == "prim"


def is_loop(node: ir.Node) -> bool:
    """Whether a node is a TorchScript loop, which may write to outer values."""
    return node.op_type == "Loop" and node.domain == "prim"


def written_values(node: ir.Node) -> list[Value]:
    """Return the values whose contents or metadata a node writes to."""
    name = node.op_type
    if table.is_inplace(node):
        destination = next(iter(arguments(node).values()), None)
        if not isinstance(destination, Value):
            # Raises the specific error for operators that are refused by name.
            table.functional_form(node, {})
            raise GraphError(f"{where(node)}: this in-place operator does not write to exactly one tensor")
        return [destination]
    if table.is_out_overload(node):
        node_arguments = arguments(node)
        return [node_arguments[key] for key in table.functional_form_of_out(node, node_arguments)[1]]
    if name in table.BATCH_NORMS and node.domain == "aten" and INPLACE not in node.metadata_props:
        node_arguments = arguments(node)
        flag = table.BATCH_NORMS[name]
        # Statistics change only in training.
        if flag is None or node_arguments.get(flag):
            return [
                node_arguments[key]
                for key in ("running_mean", "running_var")
                if node_arguments.get(key) is not None
            ]
    return []


def writes_anything(graph: ir.Graph) -> bool:
    """Whether any node writes. A graph without in-place operators needs only this check."""
    norms, irregular = table.BATCH_NORMS, table.OUT_OVERLOADS
    for node in graph:
        name, overload = node.op_type, node.overload
        # Cheap string tests first: this loop visits every node of every capture.
        suspect = node.domain == "aten" and (
            name[-1] == "_" or overload[-3:] == "out" or name in norms or (name, overload) in irregular
        )
        if suspect and written_values(node):
            return True
        if len(node.attributes.data) > 1 and any(writes_anything(block) for block in blocks(node)):
            return True
    return False


class Aliases:
    """The values that share memory in a graph and its sub-blocks.

    Attributes:
        outliving: the inputs and initializers that may change, with the first node that changes each.
    """

    def __init__(self, graph: ir.Graph, keep_statistics: bool):
        self.outliving: dict[Value, ir.Node] = {}
        self._graph = graph
        self._keep_statistics = keep_statistics
        self._first: dict[ir.Node, int] = {}
        self._last: dict[ir.Node, int] = {}
        self._loops: dict[ir.Node, tuple[ir.Node, ...]] = {}
        self._defined: dict[Value, int] = {}
        self._sources: dict[Value, list[_Flow]] = {}
        self._objects: dict[Value, Value] = {}
        self._returning_nodes: dict[Value, list[ir.Node]] = {}
        self._writes: list[tuple[ir.Node, Value]] = []
        self._looping = False
        self._walk(graph, ())
        self._roots = self._find_roots()
        self._write_positions: dict[Value, list[int]] = {}
        """The positions of the writes to each root, in order."""
        self._targets = {value for _, value in self._writes}
        self._find_write_positions()
        self._names: dict[Value, list[Value]] = {}
        self._uses: dict[Value, list[tuple[ir.Node, int]]] = {}
        self._flows_to: dict[Value, list[Value]] = {}
        self._graph_outputs = set(graph.outputs)
        self._find_names()

    def roots(self, value: Value) -> frozenset[Value]:
        """The roots of a value: the inputs, initializers and results that may own its memory."""
        return self._roots.get(value) or frozenset((value,))

    def is_tracked(self, value: Value) -> bool:
        """Whether some node may write to the value's memory."""
        roots = self._roots.get(value)
        return (
            value in self._write_positions
            if roots is None
            else any(root in self._write_positions for root in roots)
        )

    def written_in(self, roots: Iterable[Value], loop: ir.Node) -> bool:
        """Whether a loop's body may write to memory of these roots."""
        first, last = self._first[loop], self._last[loop]
        for root in roots:
            positions = self._write_positions.get(root, ())
            index = bisect.bisect_right(positions, first)
            if index < len(positions) and positions[index] <= last:
                return True
        return False

    def written_later(self, roots: Iterable[Value], node: ir.Node) -> bool:
        """Whether a node after this one or in its blocks may write to memory of these roots."""
        # In a loop, nodes before this one run again after it.
        since = self._first[self._loops[node][0] if self._loops[node] else node]
        return any(self._write_positions[root][-1] > since for root in roots if root in self._write_positions)

    def sources(self, value: Value, loop: ir.Node) -> list[_Flow]:
        """Return the sources that flow into a value of a loop's body: outer values, body inputs, new tensors.

        A value that no node writes to counts as a new tensor.

        Returns:
            Pairs of a source and whether it flows in unchanged, not as a view.
        """
        formal = set(blocks(loop)[0].inputs)
        seen: set[_Flow] = set()
        flows: list[_Flow] = []
        stack: list[_Flow] = [(value, True)]
        while stack:
            flow = stack.pop()
            if flow in seen:
                continue
            seen.add(flow)
            current, exact = flow
            # Stop at values from outside, body inputs, and values that nothing writes to.
            if current in formal or not self.is_inside(current, loop) or not self.is_tracked(current):
                flows.append(flow)
            elif self._sources.get(current):
                stack += [(source, exact and same) for source, same in self._sources[current]]
            else:
                flows.append(flow)
        return flows

    def is_inside(self, value: Value, loop: ir.Node) -> bool:
        """Whether a value is defined in a loop's body."""
        return self._first[loop] <= self._defined.get(value, -1) <= self._last[loop]

    def descendants(self, *values: Value, until: ir.Node | None = None) -> set[Value]:
        """Return the values and everything that they flow into.

        Args:
            until: a node; do not follow the back edge of a loop that contains it.
        """
        reached: set[Value] = set()
        # Values of the next iteration are other tensors.
        ends = (
            {formal for loop in self._loops[until] for formal in blocks(loop)[0].inputs} if until else set()
        )
        stack = list(values)
        while stack:
            value = stack.pop()
            if value not in reached and value not in ends:
                reached.add(value)
                stack += self._flows_to.get(value, ())
        return reached

    def any_written(self, values: Iterable[Value]) -> bool:
        """Whether some node writes to one of the values."""
        return any(value in self._targets for value in values)

    def used_later(self, roots: Iterable[Value], node: ir.Node, ignored: set[Value]) -> bool:
        """Whether other values in memory of these roots are used after a branch, or in and after a loop.

        Args:
            ignored: values whose uses do not count.
        """
        # A loop reads its inputs again in each iteration.
        since = self._first[node] if is_loop(node) else self._last[node]
        for root in roots:
            if root in self.outliving:
                return True
            for name in self._names.get(root, ()):
                if name not in ignored and self._is_used_since(name, since):
                    return True
        return False

    def _is_used_since(self, value: Value, since: int) -> bool:
        if value in self._graph_outputs:
            return True
        defined = self._defined.get(value, -1)
        for user, position in self._uses.get(value, ()):
            repeating_loop = next((loop for loop in self._loops[user] if self._first[loop] > defined), None)
            if position > since or (repeating_loop is not None and self._last[repeating_loop] >= since):
                return True
        return False

    def _walk(self, graph: ir.Graph, loops: tuple[ir.Node, ...]) -> None:
        for node in graph:
            # Positions are in pre-order: those of a block's nodes lie between the first and last of its node.
            position = self._first[node] = len(self._first)
            self._loops[node] = loops
            for output in node.outputs:
                self._defined[output] = position
            inner = blocks(node)
            if inner:
                self._walk_blocks(node, inner, loops)
            elif shares_with_list(node):
                self._add_list_flows(node)
            elif may_be_view(node):
                self._add_view_flows(node)
            else:
                self._add_writes(node)
            self._last[node] = len(self._first) - 1

    def _walk_blocks(self, node: ir.Node, inner: list[ir.Graph], loops: tuple[ir.Node, ...]) -> None:
        is_in_loop = is_loop(node)
        if is_in_loop:
            self._looping = True
            initial = arguments(node)["carried"]
            flows = zip(inner[0].inputs[1:], inner[0].outputs[1:], node.outputs, initial, strict=True)
            for formal, result, output, first in flows:
                flows_in = [(source, True) for source in (first, result) if isinstance(source, Value)]
                self._sources[formal] = self._sources[output] = flows_in
        for block in inner:
            for formal in block.inputs:
                self._defined[formal] = self._first[node]
            for result in block.outputs:
                self._returning_nodes.setdefault(result, []).append(node)
            self._walk(block, (*loops, node) if is_in_loop else loops)
        if is_branch(node):
            for output, *results in zip(node.outputs, *(block.outputs for block in inner), strict=True):
                self._sources[output] = [(result, True) for result in results]

    def _add_list_flows(self, node: ir.Node) -> None:
        sources = [
            (value, False)
            for value in node.inputs
            if value is not None and NUMBER not in value.metadata_props
        ]
        for output in node.outputs:
            if NUMBER not in output.metadata_props:
                self._sources[output] = sources

    def _add_view_flows(self, node: ir.Node) -> None:
        node_arguments = arguments(node)
        rule = view_rule(node, node_arguments)
        if rule is None:
            return
        for output, source in zip(node.outputs, aliased_tensors(node, rule, node_arguments), strict=False):
            if source is not None:
                self._sources[output] = [(source, rule.is_identity)]
                if rule.same_object:
                    self._objects[output] = self._objects.get(source, source)

    def _add_writes(self, node: ir.Node) -> None:
        for output, value in zip(node.outputs, written := written_values(node), strict=False):
            if node.op_type not in table.BATCH_NORMS:
                self._sources[output] = [(value, node.op_type not in table.METADATA)]
                self._objects[output] = self._objects.get(value, value)
        self._writes += [(node, value) for value in written if node.op_type not in table.IDLE]

    def _find_roots(self) -> dict[Value, frozenset[Value]]:
        """Propagate roots to a fixed point, because carried values of loops make the flow circular."""
        roots_by_value: dict[Value, frozenset[Value]] = {}
        no_roots: frozenset[Value] = frozenset()

        def roots_of(value: Value) -> frozenset[Value]:
            return roots_by_value.get(value, no_roots) if self._sources.get(value) else frozenset((value,))

        is_changing = True
        while is_changing:
            is_changing = False
            for value, sources in self._sources.items():
                roots = (
                    roots_of(sources[0][0])
                    if len(sources) == 1
                    else no_roots.union(*(roots_of(s) for s, _ in sources))
                )
                if roots != roots_by_value.get(value, no_roots):
                    roots_by_value[value] = roots
                    # Without loops, sources precede their values, so that one round reaches the fixed point.
                    is_changing = self._looping
        return roots_by_value

    def _find_write_positions(self) -> None:
        # A write in a branch may reach several inputs; their new values are outputs in the order of inputs.
        inputs = (*self._graph.inputs, *self._graph.initializers.values())
        positions = {value: position for position, value in enumerate(inputs)}
        for node, value in self._writes:
            for root in sorted(self.roots(value), key=lambda root: positions.get(root, -1)):
                is_state = root.is_graph_input() or root.is_initializer()
                # Only TorchScript branches and loops may write to tensors from outside.
                if is_state and root.is_graph_input() and root.graph is not self._graph:
                    raise GraphError(
                        f"{where(node)}: a block writes to its input; write to a clone() and return the clone"
                    )
                whole = self._objects.get(value, value) is root or node.op_type not in table.METADATA
                if is_state and whole and root.metadata_props.get(KIND) != "constant":
                    self.outliving.setdefault(root, node)
                if not (self._keep_statistics and is_state and node.op_type in table.BATCH_NORMS):
                    self._write_positions.setdefault(root, []).append(self._first[node])

    def _find_names(self) -> None:
        """Group the values by their written roots, and record the uses of each root."""
        for root in self._write_positions:
            self._names[root] = [root]
        for value, roots in self._roots.items():
            for root in roots:
                if root in self._write_positions:
                    self._names[root].append(value)
        for value in {value: None for values in self._names.values() for value in values}:
            users = [user for user, _ in value.uses() if user in self._first]
            self._uses[value] = [(user, self._first[user]) for user in users]
            self._uses[value] += [(node, self._last[node]) for node in self._returning_nodes.get(value, ())]
        for value, sources in self._sources.items():
            for source, _ in sources:
                self._flows_to.setdefault(source, []).append(value)
