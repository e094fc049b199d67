"""ONNX pass: computes the rotary embedding of queries and keys once, for all of their heads together.

    q [b, 4, n, 8] -> Mul(cos), ... -> Add        Concat [b, 6, n, 8] -> Mul(cos), ... -> Add -> Split [4, 2]
    k [b, 2, n, 8] -> Mul(cos), ... -> Add

1. Two products read one table of rank 2 or more. Around them, nodes of the same operator, attributes and
   other operands compute two tensors that differ in the size of one axis only, that of the heads. Each node
   computes the heads independently.
2. The other operands are computed before all of these nodes, and all readers of the results come after all
   operands. The graph returns none of the tensors between.
3. The result has at least four nodes less, with a Concat for each tensor that enters and a Split for each
   that leaves. With fewer, copying the heads costs more than it saves.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Final

import onnx_ir as ir

from .....registration.arguments import walk_graphs
from .....registration.origins import inherit
from .....registration.size_algebra.dimensions import same_size
from ...node_pass import ConstantPass, new_split, with_size
from ...pass_order import Run
from ...row_operators import BROADCASTING_BY_ROWS, REDUCTIONS, UNARY_BY_ROWS

_ELEMENTWISE = UNARY_BY_ROWS | BROADCASTING_BY_ROWS
_MAXIMUM_NODES = 32
_MAXIMUM_READERS: Final = 8
_MINIMUM_SAVED = 4


@dataclasses.dataclass(slots=True)
class _HeadGroups:
    """Nodes that do the same computation for two groups of heads.

    Attributes:
        sizes: the numbers of heads of both groups.
        nodes: those of the first group, each with that of the second one.
        tensors: those of the first group, each with that of the second one and the axis of the heads.
        operands: what the nodes of both groups read.
    """

    sizes: tuple[int, int]
    nodes: dict[ir.Node, ir.Node] = dataclasses.field(default_factory=dict)
    tensors: dict[ir.Value, tuple[ir.Value, int]] = dataclasses.field(default_factory=dict)
    operands: set[ir.Value] = dataclasses.field(default_factory=set)


class JoinHeads(ConstantPass):
    """Joins equal computations of queries and keys."""

    runs = (
        Run(
            "full",
            after={
                "FuseRotaryEmbedding": "One operator per tensor takes fewer nodes.",
                "FuseRMSNormalization": "One operator per tensor takes fewer nodes.",
                "FuseAttention": "It looks for the scale of the queries alone.",
                "GroupHeads": "It looks for the repeated heads of keys.",
                "SplitSlices": "A Split has all parts of a tensor.",
                "JoinLayers": "Parts of one Split need no Concat.",
                "LiftRows": "Nodes that compute rows have the shape that they keep.",
            },
        ),
    )
    op_types = ("Mul",)

    def begin(self, model: ir.Model) -> bool:
        """Number the nodes of each graph."""
        nodes, _ = walk_graphs(model.graph)
        self._positions: dict[ir.Node, float] = {node: index for index, node in enumerate(nodes)}
        self._last_readers: dict[ir.Value, ir.Node] = {}
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Join a product by a table and the last one before it, with the nodes around them."""
        for index, table in enumerate(node.inputs):
            if table is None or table.shape is None or len(table.shape) < 2:
                continue
            earlier = self._last_readers.get(table)
            self._last_readers[table] = node
            if earlier is None or earlier.graph is not node.graph or earlier.inputs[index] is not table:
                continue
            for axis in _axes_of_heads(earlier, node, index):
                if self._join(self._find_region(earlier, node, index, axis)):
                    return True
        return False

    def _find_region(self, first: ir.Node, second: ir.Node, index: int, axis: int) -> _HeadGroups:
        """The nodes around two products with a table at an index that compute the same along an axis."""
        a, b = first.inputs[1 - index], second.inputs[1 - index]
        assert a is not None
        assert b is not None
        assert a.shape is not None
        assert b.shape is not None
        heads = a.shape[axis], b.shape[axis]
        assert isinstance(heads[0], int)
        assert isinstance(heads[1], int)
        region = _HeadGroups((heads[0], heads[1]))
        if self._add_tensors(region, a, b, axis) and self._add_nodes(region, first, second, axis, True):
            self._grow(region)
        return region

    def _grow(self, region: _HeadGroups) -> None:
        """Add the nodes that compute the tensors, and those that read them."""
        pending = list(region.tensors)
        while pending and len(region.nodes) < _MAXIMUM_NODES:
            a = pending.pop()
            b, axis = region.tensors[a]
            count = len(region.tensors)
            first, second = a.producer(), b.producer()
            if first is not None and second is not None and a.index() == b.index():
                self._add_nodes(region, first, second, axis, False)
            if len(a.uses()) <= _MAXIMUM_READERS and len(b.uses()) <= _MAXIMUM_READERS:
                for reader, index in a.uses():
                    for twin, other_index in b.uses():
                        if index == other_index and self._add_nodes(region, reader, twin, axis, True):
                            break
            pending += list(region.tensors)[count:]

    def _add_tensors(self, region: _HeadGroups, a: ir.Value, b: ir.Value, axis: int) -> bool:
        """Add two tensors that differ in the number of heads only; whether they are a pair of the region."""
        if a in region.tensors:
            return region.tensors[a] == (b, axis)
        if a is b or a.shape is None or b.shape is None or len(a.shape) != len(b.shape) or a.dtype != b.dtype:
            return False
        if axis >= len(a.shape) or (a.shape[axis], b.shape[axis]) != region.sizes:
            return False
        if not all(
            same_size(x, y) or i == axis for i, (x, y) in enumerate(zip(a.shape, b.shape, strict=True))
        ):
            return False
        region.tensors[a] = (b, axis)
        return True

    def _add_nodes(
        self, region: _HeadGroups, first: ir.Node, second: ir.Node, axis: int, is_reader: bool
    ) -> bool:
        """Add two nodes, if they compute the same of each head.

        Args:
            axis: that of the heads in the operands of readers, and in the results of other nodes.
            is_reader: whether all operands must be known.
        """
        if first in region.nodes:
            return region.nodes[first] is second
        if first is second or first.op_type != second.op_type or first.domain or second.domain:
            return False
        if first.graph is not second.graph or first not in self._positions or second not in self._positions:
            return False
        if len(first.inputs) != len(second.inputs) or len(first.outputs) != len(second.outputs):
            return False
        if _attributes(first) != _attributes(second):
            return False
        axes = self._axes(first, second, axis, is_reader)
        if axes is None:
            return False
        axis, result_axis = axes
        operands, tensors = set(), []
        has_arguments = first.op_type in ("Split", *REDUCTIONS)
        for index, (a, b) in enumerate(zip(first.inputs, second.inputs, strict=True)):
            if a is None or b is None:
                if a is not b:
                    return False
            elif a is b or (has_arguments and index):
                if first.op_type in _ELEMENTWISE and not _is_repeated(
                    a, len(first.outputs[0].shape or ()), axis
                ):
                    return False
                operands.add(a)
            else:
                is_unknown = is_reader and region.tensors.get(a) != (b, axis)
                if is_unknown or len(a.shape or ()) != len(first.outputs[0].shape or ()):
                    return False
                tensors.append((a, b, axis))
        results = [(a, b, result_axis) for a, b in zip(first.outputs, second.outputs, strict=True)]
        previous = dict(region.tensors)
        if not all(self._add_tensors(region, *pair) for pair in (*tensors, *results)):
            region.tensors = previous
            return False
        region.nodes[first] = second
        region.operands |= operands
        return True

    def _axes(self, first: ir.Node, second: ir.Node, axis: int, is_operand: bool) -> tuple[int, int] | None:
        """The axis of the heads in operands and results; None if the operator mixes heads, or is unknown.

        Args:
            axis: that in the operands, or in the results.
        """
        shape = first.outputs[0].shape
        if shape is None:
            return None
        rank, op_type = len(shape), first.op_type
        if op_type in _ELEMENTWISE:
            return axis, axis
        if op_type == "Transpose":
            order = first.attributes.get_ints("perm", range(rank)[::-1])
            assert order is not None
            return (axis, order.index(axis)) if is_operand else (order[axis], axis)
        if op_type == "Concat":
            return None if first.attributes.get_int("axis", 0) % rank == axis else (axis, axis)
        if op_type == "Split":
            sizes = self.initializers.integers(first, "split", 1)
            is_same = sizes is not None and sizes == self.initializers.integers(second, "split", 1)
            is_other_axis = first.attributes.get_int("axis", 0) % rank != axis
            return (axis, axis) if is_same and is_other_axis else None
        if op_type in REDUCTIONS and first.attributes.get_int("keepdims", 1) == 1:
            reduced = self.initializers.integers(first, "axes", 1)
            if reduced is not None and reduced == self.initializers.integers(second, "axes", 1):
                return None if axis in [index % rank for index in reduced] else (axis, axis)
        return None

    def _join(self, region: _HeadGroups) -> bool:
        """Write the nodes of a region once, where its rules 2 and 3 hold."""
        twins = {*region.nodes.values()}
        seconds = {b for b, _ in region.tensors.values()}
        if (
            twins & region.nodes.keys()
            or seconds & region.tensors.keys()
            or len(seconds) < len(region.tensors)
        ):
            return False
        entries = [a for a in region.tensors if a.producer() not in region.nodes]
        exits = [
            a
            for a, (b, _) in region.tensors.items()
            if any(reader not in region.nodes for reader, _ in a.uses())
            or any(reader not in twins for reader, _ in b.uses())
        ]
        exits = [a for a in exits if a not in entries]
        if len(region.nodes) - len(entries) - len(exits) < _MINIMUM_SAVED:
            return False
        inner = {b for a, (b, _) in region.tensors.items() if a not in entries} | (
            region.tensors.keys() - {*entries}
        )
        operands = region.operands | {*entries} | {region.tensors[a][0] for a in entries}
        if operands & inner or any(value.is_graph_output() for value in inner):
            return False
        graph = next(iter(region.nodes)).graph
        producers = [value.producer() for value in operands]
        last = max(
            (node for node in producers if node is not None and node.graph is graph),
            key=lambda node: self._positions.get(node, math.inf),
            default=None,
        )
        leaving = [value for a in exits for value in (a, region.tensors[a][0])]
        readers = {reader for value in leaving for reader, _ in value.uses()} - twins - region.nodes.keys()
        position = -1.0 if last is None else self._positions.get(last, math.inf)
        if any(
            reader.graph is not graph or self._positions.get(reader, -1) <= position for reader in readers
        ):
            return False
        self._write(region, entries, exits, last)
        return True

    def _write(
        self, region: _HeadGroups, entries: list[ir.Value], exits: list[ir.Value], last: ir.Node | None
    ) -> None:
        """Replace the nodes of both groups by new ones, behind the last node that computes an operand."""
        unique = self.initializers.unique
        joined: dict[ir.Value, ir.Value] = {}
        written: list[ir.Node] = []
        total = sum(region.sizes)

        def add(
            op_type: str, inputs: list[ir.Value | None], attributes: list[ir.Attr], results: list[ir.Value]
        ) -> None:
            name = unique(f"{results[0].name}/joined")
            node = ir.Node("", op_type, inputs, attributes, num_outputs=len(results), name=name)
            for old, new in zip(results, node.outputs, strict=True):
                new.name, new.type = unique(f"{old.name}_joined"), old.type
                assert old.shape is not None
                new.shape = with_size(old.shape, region.tensors[old][1], total)
                joined[old] = new
            written.append(node)

        for a in entries:
            b, axis = region.tensors[a]
            add("Concat", [a, b], [ir.AttrInt64("axis", axis)], [a])
        nodes = sorted(region.nodes, key=self._positions.__getitem__)
        for node in nodes:
            inputs = [value if value is None else joined.get(value, value) for value in node.inputs]
            add(node.op_type, inputs, [*node.attributes.values()], [*node.outputs])
            inherit(written[-1], node, region.nodes[node])
        for a in exits:
            b, axis = region.tensors[a]
            producer = joined[a].producer()
            assert producer is not None
            split = new_split(producer, self.initializers, joined[a], axis, region.sizes, "heads", self.opset)
            written.append(split)
            for old, new in zip((a, b), split.outputs, strict=True):
                new.shape = old.shape
                old.replace_all_uses_with(new)
        graph = nodes[0].graph
        assert graph is not None
        if last is None:
            graph.insert_before(graph[0], written)
        else:
            graph.insert_after(last, written)
        position = -1.0 if last is None else self._positions[last]
        for node in written:
            position = (position + math.floor(position) + 1) / 2
            self._positions[node] = position
        for pair in reversed([*region.nodes.items()]):
            for node in pair:
                for index in range(len(node.inputs)):
                    node.replace_input_with(index, None)
        for pair in region.nodes.items():
            graph.remove(pair, safe=True)


def _axes_of_heads(first: ir.Node, second: ir.Node, index: int) -> list[int]:
    """The axes that may be those of the heads in two products with a table at an index."""
    a, b, table = first.inputs[1 - index], second.inputs[1 - index], first.inputs[index]
    if a is None or b is None or a is b or a.shape is None or b.shape is None or table is None:
        return []
    rank = len(a.shape)
    if len(b.shape) != rank:
        return []
    different = [axis for axis in range(rank) if not same_size(a.shape[axis], b.shape[axis])]
    return [
        axis
        for axis in reversed(range(rank))
        if isinstance(a.shape[axis], int)
        and isinstance(b.shape[axis], int)
        and _is_repeated(table, rank, axis)
        and different in ([], [axis])
    ]


def _is_repeated(operand: ir.Value, rank: int, axis: int) -> bool:
    """Whether broadcasting repeats an operand along an axis of the result, which has this rank."""
    if operand.shape is None or len(operand.shape) > rank:
        return False
    own_axis = axis - rank + len(operand.shape)
    return own_axis < 0 or operand.shape[own_axis] == 1


def _attributes(node: ir.Node) -> dict[str, object]:
    return {name: attribute.value for name, attribute in node.attributes.items()}
