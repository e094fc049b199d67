"""ONNX pass: replaces an If whose condition is constant by the branch that runs.

Exporters of TorchScript write `squeeze(dim)` as an If whose branches have different ranks. Before opset 11,
shape inference refuses such an If, unless the sizes in its condition stay unknown. Folding computes them.

1. The nodes of the branch move before the If; its initializers move to the graph of the If.
2. Names that other graphs have too become unique. Results take the names of the If's results.
3. If a graph returns a result that no node of the branch computes, it returns an Identity of it.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from ....registration.arguments import graphs_of
from ....registration.origins import inherit
from ..node_pass import ConstantPass, remove_node
from ..pass_order import Run
from .initializers import rename_tensor

_FREE_INITIALIZERS = 4
"""Below this IR version, an initializer is an input too, and a branch has none."""
_BRANCHES = {True: "then_branch", False: "else_branch"}


class ChooseBranches(ConstantPass):
    """Replaces each If that always takes the same branch."""

    runs = (
        Run(
            "basic",
            after={
                "FoldSmallResults": "Conditions become constant.",
                "RemoveUniformValues": "A condition of one repeated number becomes a constant.",
                "RefineAndFold": "Conditions on sizes become constant.",
            },
        ),
    )
    op_types = ("If",)

    def begin(self, model: ir.Model) -> bool:
        """Forget the names of another model."""
        self._names: Counter[str | None] | None = None
        self._has_inner_initializers = model.ir_version >= _FREE_INITIALIZERS
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Replace an If, if its condition is constant."""
        condition = self.initializers.small_array(node.inputs[0] if node.inputs else None)
        if condition is None or condition.size != 1:
            return False
        attribute = node.attributes.get(_BRANCHES[bool(condition.item())])
        if attribute is None or attribute.is_ref():
            return False
        branch = attribute.as_graph()
        # Such an If is invalid; leave it to the checker.
        if branch.inputs or len(branch.outputs) != len(node.outputs):
            return False
        self._inline(node, branch)
        return True

    def _inline(self, node: ir.Node, branch: ir.Graph) -> None:
        graph = node.graph
        assert graph is not None
        results = list(branch.outputs)
        # The results must no longer count as outputs of a graph when they move.
        branch.outputs.clear()
        initializers = list(branch.initializers.values())
        branch.initializers.clear()
        owner = graph if self._has_inner_initializers else self.initializers.graph
        for value in initializers:
            self._rename(value)
            owner.initializers.add(value)
        moved = list(branch)
        branch.remove(moved)
        for inner in moved:
            graph.insert_before(node, inner)
            for value in inner.outputs:
                self._rename(value)
        branch_nodes, named = set(moved), set[ir.Value]()
        for output, result in zip(node.outputs, results, strict=True):
            is_moved = result.producer() in branch_nodes and result not in named
            if output.is_graph_output() and not is_moved:
                result, is_moved = self._copy(node, result), True
            if result.shape is None:
                result.shape = output.shape
            output.replace_all_uses_with(result, replace_graph_outputs=True)
            if is_moved:
                named.add(result)
                # A value that is removed must not keep the name.
                result.name, output.name = output.name, None
        remove_node(node)

    def _copy(self, node: ir.Node, value: ir.Value) -> ir.Value:
        """A copy of a value, computed before the If."""
        identity = ir.Node("", "Identity", [value], num_outputs=1, name=self.initializers.unique("Identity"))
        result = identity.outputs[0]
        result.type, result.shape = value.type, value.shape
        inherit(identity, node)
        assert node.graph is not None
        node.graph.insert_before(node, identity)
        return result

    def _rename(self, value: ir.Value) -> None:
        """Make the name of a moved value unique, if another value has it too."""
        if self._names is None:
            self._names = Counter()
            for graph in graphs_of(self.initializers.graph):
                values = [*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs)]
                self._names.update({value.name for value in values})
        if value.name and self._names[value.name] > 1:
            self._names[value.name] -= 1
            name, tensor = self.initializers.unique(value.name), value.const_value
            if tensor is not None:
                value.const_value = rename_tensor(tensor, name)
            value.name = name
