"""Target pass: folds a constant factor behind a linear layer into its weight and bias.

    MatMul(x, w) [-> Add(bias)] [-> Reshape, Transpose, ...] -> Mul or Div by a number

1. Only the next node reads each of these results, and none is an output of a graph.
2. Weight and bias are constants without other readers. The new ones are computed when they are written.
3. Directly behind MatMul or Add the factor may also be a vector with a number for each column.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..initializers import Initializers

_MOVES = ("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten")
_FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)


class FoldLinearScales(ir.passes.InPlacePass):
    """Removes factors behind MatMuls."""

    def __init__(self, initializers: Initializers):
        super().__init__()
        self._known = initializers

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        modified = False
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            if node.op_type in ("Mul", "Div") and not node.domain:
                modified |= self._fold(node)
        return ir.passes.PassResult(model, modified)

    def _fold(self, node: ir.Node) -> bool:
        a, b = node.inputs
        for operand, factor in ((a, b),) if node.op_type == "Div" else ((a, b), (b, a)):
            if operand is None or factor is None or not self._known.is_constant(factor):
                continue
            numbers = factor.const_value
            if numbers is None or len(numbers.shape) > 1 or numbers.dtype not in _FLOATS:
                continue
            layer = self._layer(operand, node, is_number=numbers.size == 1)
            if layer is not None and self._scale(*layer, numbers.numpy(), node.op_type == "Div"):
                old, graph = node.outputs[0], node.graph
                assert graph is not None
                if operand.shape is None:
                    operand.shape = old.shape
                old.replace_all_uses_with(operand, replace_graph_outputs=True)
                graph.remove(node, safe=True)
                return True
        return False

    def _layer(
        self, value: ir.Value, reader: ir.Node, is_number: bool
    ) -> tuple[ir.Node, ir.Node | None] | None:
        """The MatMul and the addition of its bias that a value comes from."""
        node = _only(value, reader)
        while is_number and node is not None and node.op_type in _MOVES:
            data = node.inputs[0]
            node = _only(data, node) if data is not None else None
        if node is None:
            return None
        if node.op_type == "MatMul":
            return node, None
        if node.op_type != "Add":
            return None
        for index in (0, 1):
            product, bias = node.inputs[index], node.inputs[1 - index]
            made = _only(product, node) if product is not None else None
            if (
                made is not None
                and made.op_type == "MatMul"
                and bias is not None
                and len(bias.shape or ()) == 1
            ):
                return made, node
        return None

    def _scale(self, product: ir.Node, addition: ir.Node | None, numbers: np.ndarray, divides: bool) -> bool:
        weight = product.inputs[1]
        if weight is None or not self._is_own(weight) or len(weight.shape or ()) != 2:
            return False
        columns = weight.shape[1]  # type: ignore[index]
        index, bias = 0, None
        if addition is not None:
            index = 1 if addition.inputs[0] is product.outputs[0] else 0
            bias = addition.inputs[index]
            if bias is None or not self._is_own(bias) or bias.shape is None or bias.shape[0] != columns:
                return False
        if numbers.size not in (1, columns) or ir.DataType.from_numpy(numbers.dtype) != weight.dtype:
            return False
        wide = numbers.reshape(-1).astype(np.float64)
        with np.errstate(all="ignore"):
            factor = 1.0 / wide if divides else wide
        if not np.isfinite(factor).all():
            return False
        product.replace_input_with(1, self._scaled(weight, factor))
        if addition is not None and bias is not None:
            addition.replace_input_with(index, self._scaled(bias, factor))
        return True

    def _is_own(self, value: ir.Value) -> bool:
        own = self._known.is_constant(value) and len(value.uses()) == 1 and not value.is_graph_output()
        return own and value.dtype in _FLOATS

    def _scaled(self, value: ir.Value, factor: np.ndarray) -> ir.Value:
        assert value.const_value is not None
        tensor = value.const_value

        def compute(array: np.ndarray) -> np.ndarray:
            kind = array.dtype if array.dtype.itemsize >= 4 else np.dtype(np.float32)
            result: np.ndarray = array.astype(kind, copy=False) * factor.astype(kind)
            return result.astype(array.dtype, copy=False)

        return self._known.derive(
            [value], compute, tensor.dtype, tuple(tensor.shape.numpy()), suffix="scaled"
        )


def _only(value: ir.Value, reader: ir.Node) -> ir.Node | None:
    """The node that makes a value for one reader of the same graph."""
    node = value.producer()
    if node is None or node.domain or node.graph is not reader.graph:
        return None
    return node if len(value.uses()) == 1 and not value.is_graph_output() else None
