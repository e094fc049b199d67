"""Linear layers, `MatMul(x, w) [-> Add(bias)]`, whose weight and bias a pass may replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import onnx_ir as ir

from ....registration.dtypes import FLOATS
from ..constants.deferred_constants import derive_transposed
from ..constants.initializers import Initializers
from ..node_pass import removable_producer


class LinearLayer(NamedTuple):
    """A MatMul by a constant matrix, and the Add of a constant bias, which has a number for each column.

    Attributes:
        columns: the number of columns of the weight.
        bias_index: the position of the bias among the inputs of the Add.
    """

    product: ir.Node
    addition: ir.Node | None
    columns: int
    bias_index: int

    def replace(self, initializers: Initializers, change: Callable[[ir.Value, int], ir.Value]) -> None:
        """Give the layer another weight and bias.

        Args:
            change: returns a constant that is derived from another one, whose columns are along an axis.
        """
        weight = self.product.inputs[1]
        assert weight is not None
        if weight in initializers.transposed:
            # The stored matrix is changed along its rows: a Gemm can then do without the transposed copy.
            stored = change(initializers.restore(weight), 0)
            copy = derive_transposed(initializers, stored)
            initializers.transposed[copy] = stored
            self.product.replace_input_with(1, copy)
        else:
            self.product.replace_input_with(1, change(weight, -1))
        bias = None if self.addition is None else self.addition.inputs[self.bias_index]
        if self.addition is not None and bias is not None:
            self.addition.replace_input_with(self.bias_index, change(bias, -1))


def find_layer(initializers: Initializers, reader: ir.Node, value: ir.Value | None) -> LinearLayer | None:
    """The layer whose result only `reader` reads, if nothing else reads its weight, bias and product."""
    node = removable_producer(reader, value, "Add", "MatMul")
    if node is None:
        return None
    product, bias, bias_index = node, None, 0
    if node.op_type == "Add":
        for index in (0, 1):
            matmul, addend = removable_producer(node, node.inputs[index], "MatMul"), node.inputs[1 - index]
            if matmul is not None and addend is not None and len(addend.shape or ()) == 1:
                product, bias, bias_index = matmul, addend, 1 - index
        if bias is None:
            return None
    weight = product.inputs[1]
    if weight is None or weight.shape is None or len(weight.shape) != 2:
        return None
    columns = weight.shape[1]
    constants = [weight] if bias is None else [weight, bias]
    for constant in constants:
        is_exclusive = len(constant.uses()) == 1 and not constant.is_graph_output()
        if not is_exclusive or not initializers.is_constant(constant) or constant.dtype not in FLOATS:
            return None
    if not isinstance(columns, int) or (bias is not None and bias.shape != (columns,)):
        return None
    return LinearLayer(product, None if bias is None else node, columns, bias_index)
