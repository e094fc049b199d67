"""Joins two source graphs of one model into one: the nodes in which they differ become branches of an If.

The graphs are two recordings of the same code that took different branches (sides) of its conditions. They
begin with the same operators, and end with the same operators after the branches. Only the nodes between are
kept twice. Works without torch.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...passes.source_builder import SourceBuilder, detach_node
from ...registration import ALIAS, COMPLEX, NUMBER, RANGES, Names
from ...registration.arguments import arguments, blocks, graphs_of, replace_arguments, source_node
from ...registration.size_algebra.dimensions import UNKNOWN, same_size
from .capture import Capture
from .dimensions import read_ranges
from .side_alignment import (
    LEAVES,
    Leaf,
    NotJoinable,
    Operands,
    SideAlignment,
    collect_operands,
    is_of_sizes,
    marks_decision,
)


def join_sides(first: Capture, second: Capture, write_condition: Callable[[SourceBuilder], Value]) -> None:
    """Join the second capture into the first, which then computes both.

    Args:
        first: the capture whose operators run if the condition is true; it is changed.
        second: the capture whose operators run if it is false; its nodes are moved to the first.
        write_condition: adds the nodes of the condition before the If, and returns its value.

    Raises:
        NotJoinable: the types of results or the inputs differ. Nothing is changed.
    """
    _check_interfaces(first, second)
    alignment = SideAlignment(first.source.graph, second.source.graph)
    _merge_facts(alignment)
    _GraphJoin(alignment).run(write_condition)
    opsets = first.source.graph.opset_imports
    opsets.update({**second.source.graph.opset_imports, **opsets, "aten": 1, "prim": 1, "sym": 1})
    _merge_ranges(first.source.metadata_props, second.source.metadata_props)
    # No single exported program has all nodes of the joined graph, so results cannot be compared by node.
    first.exported, first.origins = None, {}


def join_decision(first: Capture, second: Capture, position: int, answer: bool) -> None:
    """Join two captures that took different sides of a condition on values.

    Args:
        first: the capture to join into, see `join_sides`.
        second: the capture that took the other branch.
        position: the position of the condition among the `DECISION` nodes of the first capture.
        answer: the answer to the condition in the first capture.

    Raises:
        NotJoinable: see `join_sides`; or the captures differ before they come to the condition.
    """
    graph = first.source.graph
    marks = [node for node in graph if marks_decision(node)]
    mark = marks[position]

    def write_condition(builder: SourceBuilder) -> Value:
        condition: Value = arguments(mark)["a"]
        if mark not in graph or any(node in graph for node in marks[position + 1 :]):
            raise NotJoinable("the captures differ before the condition")
        if answer:
            return condition
        return builder.emit("sym::not", {"a": condition}, "", dtype=DataType.BOOL, shape=ir.Shape(()))

    join_sides(first, second, write_condition)
    detach_node(mark)


def _check_interfaces(first: Capture, second: Capture) -> None:
    ours, theirs = first.interface, second.interface
    if (ours.outputs, ours.numbers) != (theirs.outputs, theirs.numbers):
        raise NotJoinable("the results have another structure, or other constants")
    if ours.output_specification != theirs.output_specification or ours.inputs != theirs.inputs:
        raise NotJoinable("the results or the inputs have another structure")
    for value, twin in zip(first.source.graph.inputs, second.source.graph.inputs, strict=True):
        for dim, other_dim in zip(value.shape or (), twin.shape or (), strict=True):
            # A branch for a single size has a number instead of a name.
            if not isinstance(dim, int) and not same_size(dim, other_dim):
                raise NotJoinable(f"the axes of input '{value.name}' have other names")
    for value, twin in zip(first.source.graph.inputs, second.source.graph.inputs, strict=True):
        value.shape = twin.shape


def _merge_ranges(metadata: dict[str, str], twin: Mapping[str, str]) -> None:
    """Widen the range of each dimension so that it covers both captures."""
    both = [read_ranges(entries) or {} for entries in (metadata, twin)]
    ranges: dict[str, object] = {}
    for name in sorted({*both[0], *both[1]}):
        bounds, other_bounds = (entries.get(name) for entries in both)
        # A branch for a single size has no range.
        ranges[name] = [None, None]
        if isinstance(bounds, list) and isinstance(other_bounds, list):
            pairs = zip((min, max), bounds, other_bounds, strict=True)
            ranges[name] = [None if None in limits else widest(limits) for widest, *limits in pairs]
    if ranges:
        metadata[RANGES] = json.dumps(ranges, sort_keys=True, separators=(",", ":"))


def _merge_facts(alignment: SideAlignment) -> None:
    """Forget sizes of shared values that differ between the captures, such as `n - 1` for odd n.

    What only one capture knows about aliases is kept.
    """

    def merge(values: Iterable[Value], other_values: Iterable[Value]) -> None:
        for value, twin in zip(values, other_values, strict=True):
            value.shape = _common_shape(value, twin)

    def merge_nodes(node: ir.Node, twin: ir.Node) -> None:
        if ALIAS in twin.metadata_props and not alignment.writes[0]:
            node.metadata_props[ALIAS] = twin.metadata_props[ALIAS]
        merge(node.outputs, twin.outputs)
        for block, other_block in zip(blocks(node), blocks(twin), strict=True):
            merge(block.inputs, other_block.inputs)
            for inner, other_inner in zip(block, other_block, strict=True):
                merge_nodes(inner, other_inner)

    for pair in (*alignment.pairs_before(), *alignment.pairs_after()):
        merge_nodes(*pair)


def _common_shape(value: Value, twin: Value) -> ir.Shape | None:
    if value.shape is None or twin.shape is None or len(value.shape) != len(twin.shape):
        return None
    pairs = zip(value.shape, twin.shape, strict=True)
    return ir.Shape([dim if same_size(dim, other_dim) else UNKNOWN for dim, other_dim in pairs])


@dataclasses.dataclass
class _Block:
    """The nodes of one branch, and its results."""

    nodes: list[ir.Node]
    outputs: list[Value] = dataclasses.field(default_factory=list)

    def give(self, leaf: Leaf, like: Value, names: Names) -> None:
        """Add a result; if the block does not compute it or returns it twice, by a copy or constant node."""
        computed = {output for node in self.nodes for output in node.outputs}
        if isinstance(leaf, Value) and leaf in computed and leaf not in self.outputs:
            self.outputs.append(leaf)
            return
        is_value = isinstance(leaf, Value)
        shape = leaf.shape if isinstance(leaf, Value) else like.shape
        result = Value(name=names.unique(f"{like.name}_side"), type=like.type, shape=shape)
        result.metadata_props.update(like.metadata_props)
        name, parameter = ("aten::alias", "self") if is_value else ("prim::Constant", "value")
        overload = "default" if is_value else ""
        self.nodes.append(source_node(name, {parameter: leaf}, overload=overload, outputs=[result]))
        self.outputs.append(result)


class _GraphJoin:
    """Moves the nodes of two aligned graphs into the first one."""

    def __init__(self, alignment: SideAlignment):
        self._alignment = alignment
        self._graph, self._other = alignment.graphs
        self._names = Names.of(self._graph)

    def run(self, write_condition: Callable[[SourceBuilder], Value]) -> None:
        alignment = self._alignment
        operators, other_operators = alignment.operators
        end, other_end = len(operators) - alignment.after, len(other_operators) - alignment.after
        choices = list(alignment.choices.values())
        results = [self._result(*choice) for choice in choices]
        by_key = dict(zip(alignment.choices, results, strict=True))
        common = self._common_nodes(operators[: alignment.before])
        late = alignment.numbers.late_nodes
        before = [node for node in common if node not in late]
        after = [node for node in common if node in late]
        ours = [ours for ours, _ in choices if isinstance(ours, Value)]
        first = _Block(self._side(self._graph, operators[alignment.before : end], ours, set(common)))
        theirs = [theirs for _, theirs in choices if isinstance(theirs, Value)]
        second = _Block(self._side(self._other, other_operators[alignment.before : other_end], theirs, set()))
        second.nodes = self._adopt(second.nodes, theirs, before)
        adopted = {value: self._moved.get(value, value) for value in theirs}
        self._replace_operands(by_key)
        # A value may be an output of one graph only.
        self._other.outputs.clear()
        self._graph.remove(list(self._graph))
        self._graph.extend(before)
        # A branch without results may still write to tensors.
        if first.nodes or second.nodes or results:
            builder = SourceBuilder(self._graph)
            condition = write_condition(builder)
            for node in builder.inserted_nodes:
                node.name = self._names.unique("condition")
                node.outputs[0].name = node.name
            for (our_leaf, their_leaf), result in zip(choices, results, strict=True):
                first.give(our_leaf, result, self._names)
                moved = adopted[their_leaf] if isinstance(their_leaf, Value) else their_leaf
                second.give(moved, result, self._names)
            self._insert_branch(condition, first, second, results)
        self._graph.extend(after)

    def _result(self, ours: Leaf, theirs: Leaf) -> Value:
        """Make a result of the If for a pair of operands."""
        if not isinstance(ours, Value) or not isinstance(theirs, Value):
            like = ours if isinstance(ours, Value) else theirs
            assert isinstance(like, Value)
            shape = like.shape
        else:
            like, shape = ours, _common_shape(ours, theirs)
        result = Value(name=self._names.unique(f"{like.name}_joined"), type=like.type, shape=shape)
        result.metadata_props.update(
            {key: text for key, text in like.metadata_props.items() if key in (NUMBER, COMPLEX)}
        )
        return result

    def _common_nodes(self, before: Sequence[ir.Node]) -> list[ir.Node]:
        """Return the nodes of the first graph outside of the If, with the size arithmetic that they read."""
        alignment = self._alignment
        nodes = {*before, *(node for node, _ in alignment.pairs_after())}
        pending = [value for node in before for value in _read_values(node)]
        operands: Operands = list(zip(self._graph.outputs, self._other.outputs, strict=True))
        for node, twin in alignment.pairs_after():
            collect_operands(arguments(node), arguments(twin), operands)
            pending += [value for block in blocks(node) for inner in block for value in _read_values(inner)]
        pending += [
            ours for ours, theirs in operands if isinstance(ours, Value) and alignment.is_common(ours, theirs)
        ]
        nodes |= _sizes_behind(pending)
        return [node for node in self._graph if node in nodes]

    @staticmethod
    def _side(
        graph: ir.Graph, operators: Sequence[ir.Node], results: Sequence[Value], common: set[ir.Node]
    ) -> list[ir.Node]:
        """Return the operators of one branch, with the size arithmetic that they read, in order."""
        read = [value for node in operators for value in _read_values(node)]
        nodes = {*operators, *_sizes_behind([*read, *results])} - common
        return [node for node in graph if node in nodes]

    def _adopt(
        self, nodes: Sequence[ir.Node], results: Sequence[Value], before: Sequence[ir.Node]
    ) -> list[ir.Node]:
        """Move nodes out of the second graph; values that the first graph also has replace their operands.

        Args:
            nodes: the nodes of the second graph's branch.
            results: the results of the branch.
            before: the shared nodes before the If.

        Returns:
            The nodes that the branch needs, without size arithmetic that the first graph has already.
        """
        numbers = self._alignment.numbers
        available = {
            numbers.of(value): value
            for value in (
                *self._graph.inputs,
                *self._graph.initializers.values(),
                *(output for node in before for output in node.outputs),
            )
        }
        self._moved: dict[Value, Value] = {}
        for node in self._other:
            for value in node.outputs:
                if numbers.of(value) in available:
                    self._moved[value] = available[numbers.of(value)]
        for value in (*self._other.inputs, *self._other.initializers.values()):
            if numbers.of(value) in available:
                self._moved[value] = available[numbers.of(value)]
        moved_nodes = [node for node in nodes if not (is_of_sizes(node) and node.outputs[0] in self._moved)]
        self._other.remove(moved_nodes)
        for node in moved_nodes:
            self._rename(node)
        read = {*results, *(value for node in moved_nodes for value in _read_values(node))}
        for value in list(self._other.initializers.values()):
            if value in read and value not in self._moved:
                self._other.initializers.pop(value.name or "")
                value.name = self._names.unique(value.name or "constant")
                self._graph.register_initializer(value)
        return moved_nodes

    def _rename(self, node: ir.Node) -> None:
        """Give a moved node and its values unique names, and replace its operands by the first graph's."""
        node.name = self._names.unique(node.name or node.op_type)
        for output in node.outputs:
            output.name = self._names.unique(output.name or node.name)
        for position, value in enumerate(node.inputs):
            if value is not None and value in self._moved:
                node.replace_input_with(position, self._moved[value])
        for block in blocks(node):
            block.name = self._names.unique(block.name or "block")
            for value in block.inputs:
                value.name = self._names.unique(value.name or "input")
            for position, value in enumerate(block.outputs):
                if value in self._moved:
                    block.outputs[position] = self._moved[value]
            for inner in block:
                self._rename(inner)

    def _replace_operands(self, by_key: Mapping[tuple[Hashable, Hashable], Value]) -> None:
        """Make the nodes after the If, and the graph's outputs, read the results of the If."""
        alignment = self._alignment

        def replace(ours: object, theirs: object) -> object:
            if isinstance(ours, list) and isinstance(theirs, list):
                return [replace(*members) for members in zip(ours, theirs, strict=True)]
            has_value = isinstance(ours, Value) or isinstance(theirs, Value)
            if not has_value or not isinstance(ours, LEAVES) or not isinstance(theirs, LEAVES):
                return ours
            key = alignment.choice_key(ours, theirs)
            return ours if alignment.is_common(ours, theirs) else by_key[key]

        for node, twin in alignment.pairs_after():
            second_arguments = arguments(twin)
            new = {name: replace(item, second_arguments[name]) for name, item in arguments(node).items()}
            if by_key:
                replace_arguments(node, new)
        for position, pair in enumerate(zip(self._graph.outputs, self._other.outputs, strict=True)):
            if not alignment.is_common(*pair):
                self._graph.outputs[position] = by_key[alignment.choice_key(*pair)]

    def _insert_branch(
        self, condition: Value, first: _Block, second: _Block, results: Sequence[Value]
    ) -> None:
        graphs = [
            ir.AttrGraph(name, ir.Graph([], side.outputs, nodes=side.nodes, name=self._names.unique(name)))
            for name, side in (("then_branch", first), ("else_branch", second))
        ]
        branch = source_node(
            "prim::If",
            {"condition": condition},
            attributes=graphs,
            outputs=results,
            node_name=self._names.unique("if"),
        )
        self._graph.append(branch)


def _read_values(node: ir.Node) -> Iterator[Value]:
    """Yield the values that a node and its blocks read."""
    yield from (value for value in node.inputs if value is not None)
    for block in blocks(node):
        for graph in graphs_of(block):
            yield from graph.outputs
            yield from (value for inner in graph for value in inner.inputs if value is not None)


def _sizes_behind(values: Iterable[Value]) -> set[ir.Node]:
    """Return the nodes of size arithmetic from which values are computed."""
    nodes: set[ir.Node] = set()
    pending = list(values)
    while pending:
        node = pending.pop().producer()
        if node is not None and node not in nodes and is_of_sizes(node):
            nodes.add(node)
            pending += [value for value in node.inputs if value is not None]
    return nodes
