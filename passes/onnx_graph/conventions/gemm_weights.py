"""ONNX pass: writes Gemm with a constant transposed weight, for targets that read no other.

1. A constant weight of a Gemm without `transB` is stored transposed, and gets the attribute.
2. A Gemm of two computed matrices without `transA`, `transB`, `alpha` and `beta` becomes MatMul and Add.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..constants.initializers import Initializers
from ..node_pass import ConstantPass, replace_match


class TransposeGemmWeights(ConstantPass):
    """Transposes the weights of Gemm."""

    op_types = ("Gemm",)

    def __init__(self, initializers: Initializers):
        super().__init__(initializers)

    def rewrite(self, node: ir.Node) -> bool:
        """Transpose the weight of a node, or write a product and a sum."""
        if _number(node, "transB", 0):
            return False
        weight = node.inputs[1]
        assert weight is not None
        if weight.const_value is not None and self.initializers.is_constant(weight):
            rows, columns = weight.const_value.shape.numpy()
            transposed = self.initializers.derive(
                [weight], np.transpose, weight.const_value.dtype, (columns, rows), suffix="transposed"
            )
            node.replace_input_with(1, transposed)
            node.attributes["transB"] = ir.AttrInt64("transB", 1)
            return True
        if _number(node, "transA", 0) or (_number(node, "alpha", 1.0), _number(node, "beta", 1.0)) != (1, 1):
            return False
        addend = node.inputs[2] if len(node.inputs) > 2 else None
        if addend is None:
            replace_match(node, "MatMul", [node.inputs[0], weight], [], self.opset)
            return True
        product = ir.Node("", "MatMul", [node.inputs[0], weight], metadata_props=dict(node.metadata_props))
        product.name = self.initializers.unique(f"{node.name}/MatMul")
        product.outputs[0].name = self.initializers.unique(f"{node.outputs[0].name}_product")
        product.outputs[0].type, product.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
        assert node.graph is not None
        node.graph.insert_before(node, product)
        replace_match(node, "Add", [product.outputs[0], addend], [], self.opset)
        return True


def _number(node: ir.Node, name: str, default: float) -> float:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value
