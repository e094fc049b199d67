"""Target pass: writes a product with a Reciprocal, or by itself, as fewer or cheaper nodes.

    Mul(x, Reciprocal(y))  -> Div(x, y)

1. Nothing else reads the Reciprocal. The quotient is rounded once, the product twice.
2. In this form onnxruntime recognises root-mean-square normalization.
"""

from __future__ import annotations

import onnx_ir as ir


class DivideByReciprocals(ir.passes.InPlacePass):
    """Replaces products with Reciprocals by quotients."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        modified = False
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            if node.op_type == "Mul" and not node.domain:
                modified |= _divide(node)
        return ir.passes.PassResult(model, modified)


def _divide(node: ir.Node) -> bool:
    a, b = node.inputs
    for number, factor in ((a, b), (b, a)):
        made = factor.producer() if factor is not None else None
        if made is None or number is None or factor is None or made.op_type != "Reciprocal" or made.domain:
            continue
        if len(factor.uses()) != 1 or factor.is_graph_output() or made.graph is not node.graph:
            continue
        quotient = ir.Node("", "Div", [number, made.inputs[0]], num_outputs=1, name=node.name)
        old, result, graph = node.outputs[0], quotient.outputs[0], node.graph
        result.name, result.type, result.shape = old.name, old.type, old.shape
        quotient.metadata_props.update(node.metadata_props)
        assert graph is not None
        graph.insert_before(node, quotient)
        old.replace_all_uses_with(result, replace_graph_outputs=True)
        graph.remove([node, made], safe=True)
        return True
    return False
