"""ONNX pass: reshapes one factor of a product instead of the other factor and the product.

    x [b, n, 4, 8],  gate [b, n, 32] -> Reshape [0, 0, 4, 8] -> Sigmoid -> Mul(x) -> Reshape [0, 0, 32]
    x [b, n, 4, 8] -> Reshape [0, 0, 32] -> Mul(Sigmoid(gate))

1. The Reshape behind has a constant target, and only it reads the product, or the result of another
   elementwise operator with two operands of the same shape.
2. Elementwise operators compute one operand from results of Reshapes only, whose operands have the shape
   behind, and from numbers. Nothing else reads the values between, and no graph returns one.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_shape
from ..node_pass import ConstantPass, insert_node, removable_producer, replace_by_value
from ..pass_order import Run
from ..row_operators import BROADCASTING_BY_ROWS, UNARY_BY_ROWS

_ELEMENTWISE = UNARY_BY_ROWS | BROADCASTING_BY_ROWS
_MAXIMUM_NODES = 16


class ReshapeFactors(ConstantPass):
    """Moves a Reshape in front of a product, where that removes another one."""

    runs = (
        Run(
            "full",
            after={
                "LiftRows": "It removes both Reshapes where no other tensor enters.",
                "MergeShapesBehindScales": "One Reshape stands for all changes of the shape.",
            },
        ),
    )
    op_types = ("Reshape",)

    def rewrite(self, node: ir.Node) -> bool:
        """Move a Reshape to the operand of the node before it that is not reshaped yet."""
        product = removable_producer(node, node.inputs[0], *BROADCASTING_BY_ROWS)
        target, shape = node.inputs[1], node.outputs[0].shape
        if product is None or len(product.inputs) != 2 or not self.initializers.is_constant(target):
            return False
        if node.outputs[0].is_graph_output() or shape is None:
            return False
        result = product.outputs[0]
        if not all(value is not None and same_shape(value.shape, result.shape) for value in product.inputs):
            return False
        for index in (0, 1):
            operand, gate = product.inputs[index], product.inputs[1 - index]
            assert operand is not None
            values = self._find_values(product, gate, shape)
            if values is None:
                continue
            reshaped = insert_node(product, self.initializers, "Reshape", [operand, target], shape)
            product.replace_input_with(index, reshaped)
            for value in values:
                producer = value.producer()
                assert producer is not None
                value.shape = shape
                source = producer.inputs[0]
                if producer.op_type == "Reshape" and source is not None:
                    replace_by_value(producer, source)
            result.shape = shape
            replace_by_value(node, result)
            return True
        return False

    def _find_values(self, product: ir.Node, gate: ir.Value | None, shape: ir.Shape) -> list[ir.Value] | None:
        """The values between Reshapes of tensors of a shape and a factor; None if something else enters."""
        values: dict[ir.Value, None] = {}
        pending, readers = [gate], {product}
        while pending:
            value = pending.pop()
            if value is None or value in values:
                continue
            node = value.producer()
            if node is None or node.graph is not product.graph or node.domain or value.is_graph_output():
                return None
            values[value] = None
            if node.op_type == "Reshape":
                if node.inputs[0] is None or not same_shape(node.inputs[0].shape, shape):
                    return None
                continue
            if node.op_type not in _ELEMENTWISE or len(node.outputs) != 1 or len(values) > _MAXIMUM_NODES:
                return None
            readers.add(node)
            for operand in node.inputs:
                if operand is None or not self.initializers.is_constant(operand):
                    pending.append(operand)
                elif operand.shape is None or list(operand.shape) not in ([], [1]):
                    return None
        assert gate is not None
        if any(
            reader not in readers or not same_shape(value.shape, gate.shape)
            for value in values
            for reader, _ in value.uses()
        ):
            return None
        return list(values)
