"""Finds the forms of a graph's values, and the regions that need fewer Transposes.

A region is a set of Transposes and of nodes between them that compute on bases. Its Transposes are removed,
except one for each form that a node outside of it reads. A region is rewritten only if that leaves fewer
Transposes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import onnx_ir as ir

from ..disjoint_sets import DisjointSets
from . import permutations
from .permutations import Permutation, Sizes
from .transpose_rules import NodeRewrite, Rules


class TransposedForm(NamedTuple):
    """A value as the Transpose of another one.

    Attributes:
        base: that other value. A node that computes on bases outputs the base instead of its own result.
        region: the number of the region.
        is_alias: whether the value is its base.
    """

    base: ir.Value
    perm: Permutation
    region: int
    is_alias: bool


class TransposePlan:
    """The forms of the values of one graph.

    Attributes:
        forms: by value.
        transposes: the Transposes that are removed.
        rewrites: the nodes that compute on bases.
    """

    def __init__(self, graph: ir.Graph, rules: Rules, offered: Collection[ir.Node] = (), gain: int = 1):
        """Make an empty plan; see `PushTransposes` for the arguments."""
        self.graph = graph
        self.rules = rules
        self._offered = offered
        self._gain = gain
        self.forms: dict[ir.Value, TransposedForm] = {}
        self.transposes: list[ir.Node] = []
        self.rewrites: dict[ir.Node, NodeRewrite] = {}
        self._regions = DisjointSets[int]()
        self._frozen: set[ir.Node] = set()

    def make(self) -> bool:
        """Make the plan without the regions that gain nothing; return whether any region remains."""
        nodes = list(self.graph)
        while True:
            self._trace(nodes)
            useless = self._useless_regions()
            if not useless:
                return bool(self.transposes)
            if len(useless) == len({*map(self._region, self.transposes)}):
                # These are all regions, so none remains.
                return False
            planned = [*self.transposes, *self.rewrites]
            # A frozen node may split a region into parts of which one still gains, so plan again.
            self._frozen.update(node for node in planned if self._region(node) in useless)

    def _trace(self, nodes: Sequence[ir.Node]) -> None:
        self.forms, self.transposes, self.rewrites, self._regions = {}, [], {}, DisjointSets()
        graph_outputs = set(self.graph.outputs)
        for node in nodes:
            is_transpose = node.op_type == "Transpose"
            if not is_transpose and self.forms.keys().isdisjoint(node.inputs):
                continue
            if node in self._frozen or node in self._offered or node.domain:
                continue
            # An output of another graph, such as the branch of an If, must keep its value.
            if any(value.is_graph_output() and value not in graph_outputs for value in node.outputs):
                continue
            if is_transpose:
                self._trace_transpose(node)
            else:
                self._trace_node(node)

    def _trace_transpose(self, node: ir.Node) -> None:
        data, perm = node.inputs[0], permutations.permutation_of(node)
        if data is None or perm is None:
            return
        form = self.forms.get(data)
        if form is None:
            base, region = data, len(self.transposes)
        else:
            base, region = form.base, form.region
            perm = permutations.compose(form.perm, perm)
        self._set_form(node.outputs[0], base, perm, region)
        self.transposes.append(node)

    def _trace_node(self, node: ir.Node) -> None:
        perms: dict[int, Permutation] = {}
        regions: list[int] = []
        operands = list(node.inputs)
        for index, value in enumerate(operands):
            form = self.forms.get(value)  # type: ignore[arg-type]
            if form is None:
                continue
            if form.is_alias:
                operands[index] = form.base
            else:
                perms[index] = form.perm
                regions.append(form.region)
        rewrite = self.rules.rewrite_of(node, perms, operands) if perms else None
        if rewrite is None:
            return
        for region in regions[1:]:
            self._regions.join(regions[0], region)
        self.rewrites[node] = rewrite
        for output in node.outputs:
            self._set_form(output, output, rewrite.perm, regions[0])

    def _set_form(self, value: ir.Value, base: ir.Value, perm: Permutation, region: int) -> None:
        self.forms[value] = TransposedForm(base, perm, region, permutations.is_identity(perm))

    def _region(self, node: ir.Node) -> int:
        return self._regions.root(self.forms[node.outputs[0]].region)

    def is_read_as_is(self, value: ir.Value) -> bool:
        """Whether a value with a form is also read by a node that does not compute on bases, or returned."""
        if value.is_graph_output():
            return True
        return any(not self.takes_base(node, index) and not takes_sizes(node) for node, index in value.uses())

    def takes_base(self, node: ir.Node, index: int) -> bool:
        """Whether a node reads the base of an input that has a form."""
        if node in self.rewrites:
            form = self.forms[node.inputs[index]]  # type: ignore[index]
            return not form.is_alias
        return node.op_type == "Transpose" and node.outputs[0] in self.forms

    def _useless_regions(self) -> set[int]:
        """The regions that save fewer Transposes than required."""
        counts = Counter(map(self._region, self.transposes))
        needed: set[tuple[int, ir.Value, Permutation]] = set()
        for value, form in self.forms.items():
            if form.is_alias or not self.is_read_as_is(value):
                continue
            # A Reshape moves no data, so it does not count as a Transpose.
            if permutations.keeps_element_order(self.base_sizes(value), form.perm):
                continue
            needed.add((self._regions.root(form.region), form.base, form.perm))
        for region, _, _ in needed:
            counts[region] -= 1
        # Without its region, an offered Transpose cancels with its inverse.
        offered = {
            (self._regions.root(form.region), form.base)
            for form in self.forms.values()
            if form.base.producer() in self._offered
        }
        for region, _ in offered:
            counts[region] -= 2
        return {region for region, count in counts.items() if count < self._gain}

    def base_sizes(self, value: ir.Value) -> Sizes | None:
        """The shape that the base of a value has after the rewriting."""
        base, perm = self.forms[value][:2]
        sizes = None if value.shape is None else value.shape.dims
        if sizes is not None and len(sizes) == len(perm):
            return tuple(sizes[axis] for axis in permutations.inverse(perm))
        if base is value:
            return None
        if base in self.forms:
            return self.base_sizes(base)
        return None if base.shape is None else base.shape.dims


def takes_sizes(node: ir.Node) -> bool:
    """Whether a node reads all sizes of a value, and nothing else."""
    return (
        node.op_type == "Shape"
        and not node.domain
        and not node.attributes
        and not node.outputs[0].is_graph_output()
    )
