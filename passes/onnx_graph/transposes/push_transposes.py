"""ONNX pass: moves Transposes over nodes, where that leaves fewer of them.

1. Nodes that treat all dimensions alike, or that name the ones they work on, compute on the untransposed
   value. Their constants are permuted, and vectors among their operands reshaped.
2. Consecutive Transposes become one, or none.
3. Where a node needs the original order, one Transpose remains for all such nodes; a Reshape if it moves
   only dimensions of size 1.
4. A part of the graph in which that removes no Transpose is not changed.
5. `Shape` reads the untransposed value, and its sizes are reordered.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from ....registration.origins import inherit
from ..constants.initializers import Initializers
from ..node_pass import InitializerPass, NodesByOperator
from ..pass_order import Run
from . import permutations
from .permutations import Permutation, Sizes
from .transpose_plan import TransposedForm, TransposePlan, takes_sizes
from .transpose_rules import Rules

_ROUNDS = 8


class PushTransposes(InitializerPass):
    """Moves Transposes so that they cancel."""

    runs = (
        Run("basic", after={"SplitBatchesEarly": "A Reshape between two Transposes would keep them apart."}),
    )

    def __init__(
        self,
        initializers: Initializers,
        *,
        offered: Collection[ir.Node] = (),
        gain: int = 1,
        resizes: bool = False,
    ):
        """Make the pass.

        Args:
            offered: Transposes that stay, each before its inverse. Later nodes may compute on its result if
                that saves Transposes; otherwise the pair cancels.
            gain: the Transposes that a part of the graph must save to be rewritten. With 0 they move once.
            resizes: whether Resize may work on other dimensions than the last ones.
        """
        super().__init__(initializers)
        self._offered = offered
        self._gain = gain
        self._resizes = resizes

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        modified = False
        if len(nodes.of(("Transpose",))) < 1 + self._gain:
            return False
        rules = Rules(model.opset_imports.get("", 0), self.initializers, self._resizes)
        for graph in nodes.graphs:
            # One round may bring Transposes together that the next one cancels.
            for _ in range(_ROUNDS if self._gain else 1):
                count = sum(node.op_type == "Transpose" and not node.domain for node in graph)
                if count < 1 + self._gain:
                    break
                plan = TransposePlan(graph, rules, self._offered, self._gain)
                if not _TransposeRewriter(plan).rewrite():
                    break
                modified = True
        return modified


class _TransposeRewriter:
    """Rewrites one graph by its plan."""

    def __init__(self, plan: TransposePlan):
        self.graph = plan.graph
        self.initializers = plan.rules.initializers
        self.plan = plan
        self._transposed: dict[tuple[ir.Value, Permutation], ir.Value] = {}

    def rewrite(self) -> bool:
        if not self.plan.make():
            return False
        forms = dict(self.plan.forms)
        sizes = {value: self.plan.base_sizes(value) for value in forms}
        returned = [value for value in self.graph.outputs if value in forms]
        readers = {
            value: [(node, index) for node, index in value.uses() if not self.plan.takes_base(node, index)]
            for value in forms
        }
        rewritten_inputs = [
            (node, index, form.base)
            for node in self.plan.rewrites
            for index, value in enumerate(node.inputs)
            if (form := forms.get(value)) is not None and not form.is_alias  # type: ignore[arg-type]
        ]
        for node_rewrite in self.plan.rewrites.values():
            node_rewrite.edit()
        for node, index, base in rewritten_inputs:
            node.replace_input_with(index, base)
        for node in self.plan.rewrites:
            for output in node.outputs:
                new_sizes = sizes[output]
                output.shape = None if new_sizes is None else ir.Shape(new_sizes)
        for value, form in forms.items():
            for node, index in readers[value]:
                if node.inputs[index] is not value:
                    continue
                if takes_sizes(node) and not form.is_alias:
                    self._shape_of_base(node, form)
                else:
                    node.replace_input_with(index, self._original_order(form, sizes[value]))
        if returned:
            self._return(forms, sizes)
        self._remove()
        return True

    def _shape_of_base(self, node: ir.Node, form: TransposedForm) -> None:
        """The sizes of the base, in the order of the value."""
        node.replace_input_with(0, form.base)
        sizes = node.outputs[0]
        order = self.initializers.make(np.array(form.perm, dtype=np.int64), "order")
        gather = ir.node("Gather", [sizes, order], name=self.initializers.unique(f"{node.name}/Gather"))
        result = gather.outputs[0]
        result.name = self.initializers.unique(f"{gather.name}_output_0")
        result.type, result.shape = sizes.type, sizes.shape
        inherit(gather, node)
        sizes.replace_all_uses_with(result)
        # The line above redirected the Gather too.
        gather.replace_input_with(0, sizes)
        self.graph_of(node).insert_after(node, gather)

    def graph_of(self, node: ir.Node) -> ir.Graph:
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        return graph

    def _original_order(self, form: TransposedForm, sizes: Sizes | None) -> ir.Value:
        """The value in its original order, computed by one Transpose for all of its readers."""
        if form.is_alias:
            return form.base
        transposed = self._transposed.get((form.base, form.perm))
        if transposed is None:
            node = self._transpose_node(form, sizes)
            transposed = self._transposed[form.base, form.perm] = node.outputs[0]
            producer = form.base.producer()
            if producer is not None and producer.graph is self.graph:
                self.graph.insert_after(producer, node)
            else:
                self.graph.insert_before(self.graph[0], node)
        return transposed

    def _transpose_node(self, form: TransposedForm, sizes: Sizes | None) -> ir.Node:
        name = self.initializers.unique(f"{form.base.name}/Transpose")
        if sizes is not None and permutations.keeps_element_order(sizes, form.perm):
            target_sizes = permutations.target_shape(sizes, form.perm)
            target = self.initializers.make(np.array(target_sizes, dtype=np.int64), "order_shape")
            node = ir.Node("", "Reshape", [form.base, target], name=name)
        else:
            node = ir.Node("", "Transpose", [form.base], [ir.AttrInt64s("perm", form.perm)], name=name)
        output = node.outputs[0]
        output.name, output.type = f"{name}_output_0", form.base.type
        output.shape = permutations.permute_shape(sizes, form.perm)
        origin = form.base.producer()
        if origin is not None:
            inherit(node, origin)
        return node

    def _return(self, forms: dict[ir.Value, TransposedForm], sizes: dict[ir.Value, Sizes | None]) -> None:
        """Return the values of forms, under the names that outputs had."""
        for index, old in enumerate(list(self.graph.outputs)):
            if old not in forms:
                continue
            value = self._original_order(forms[old], sizes[old])
            if value is old:
                continue
            producer = value.producer()
            # A graph cannot return its input or a constant under another name, nor one value twice.
            if producer is None or producer.graph is not self.graph or value.is_graph_output():
                copy = ir.node("Identity", [value], name=self.initializers.unique(f"{old.name}/Identity"))
                copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
                self.graph.append(copy)
                value = copy.outputs[0]
            name = old.name
            old.name = self.initializers.unique(f"{name}_base")
            value.name = name
            self.graph.outputs[index] = value

    def _remove(self) -> None:
        """Remove the Transposes that nothing reads any more."""
        for node in reversed(self.plan.transposes):
            output = node.outputs[0]
            if not output.uses() and not output.is_graph_output():
                self.graph.remove(node, safe=True)
