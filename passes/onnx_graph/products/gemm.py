"""ONNX pass: writes products of matrices as Gemm, where that saves a node or a Transpose.

    MatMul(x, Transpose(w))           -> Gemm(x, w, transB=1)
    Add(MatMul(x, w), bias)           -> Gemm(x, w, bias)

1. x has two dimensions; with a Transpose of a weight that cannot be folded, because it has other readers or
   keeps its contents, x may have more, of which at most one is unknown: Reshapes then enclose the Gemm.
2. The weight is an initializer of two dimensions, and the bias one of one dimension.
3. Gemm without a bias begins at opset 11.
4. No other node reads the product without its bias.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ....registration.origins import inherit
from ....registration.runtimes import has_kernel
from ....registration.schemas import operator_schema
from ..constants.initializers import Initializers
from ..node_pass import ConstantPass, producer_of
from ..pass_order import Run


class WriteGemm(ConstantPass):
    """Replaces MatMuls by Gemms."""

    runs = (
        Run(
            "basic",
            after={"RemoveIdentities": "A copy between a product and its bias would hide the sum."},
            name="WriteMatrixGemm",
            make=lambda initializers: WriteGemm(initializers, reshapes=False),
        ),
        Run(
            "basic",
            after={
                "RemoveFoldedIdentities": "A copy between a product and its bias would hide the sum.",
                "PushTransposes": "A Transpose of a weight that it removes is no part of a Gemm.",
            },
        ),
        Run("basic", after={"FlattenRows": "Its products are those of matrices."}, name="WriteRowGemm"),
    )
    op_types = ("MatMul",)

    def __init__(self, initializers: Initializers, reshapes: bool = True):
        """Make the pass.

        Args:
            reshapes: whether to write Reshapes around a Gemm; else x must have two dimensions.
        """
        super().__init__(initializers)
        self._reshapes = reshapes

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a MatMul, and the Add of a bias after it."""
        x, right = node.inputs
        if x is None or right is None or x.shape is None:
            return False
        rank, transpose = len(x.shape), producer_of(right, "Transpose")
        if transpose is not None and not _is_matrix(transpose.inputs[0]):
            transpose = None
        if rank != 2 and (transpose is None or not self._reshapes or not _can_restore_shape(x.shape)):
            return False
        schema = self.schema("Gemm")
        if schema is None or x.dtype is None:
            return False
        weight = right if transpose is None else transpose.inputs[0]
        if weight is None or not _is_matrix(weight) or x.dtype != weight.dtype:
            return False
        if x.dtype not in schema.inputs[0].dtypes or not has_kernel("Gemm", x.dtype):
            return False
        if 0 in (*x.shape, *(weight.shape or ())):
            return False
        # Without a bias, replacing MatMul by Gemm saves only a Transpose.
        addition = _bias_addition(node)
        if addition is None and (transpose is None or schema.minimum_inputs > 2):
            return False
        attributes = [] if transpose is None else [ir.AttrInt64("transB", 1)]
        last, bias = (node, None) if addition is None else addition
        rows = math.prod(x.shape.numpy()[:-1]) if x.shape.is_static() else None
        data = x
        if rank != 2:
            size = x.shape[-1]
            assert isinstance(size, int)
            data = self._insert_reshape(node, x, [-1, size], ir.Shape([rows, size]))
        operands = [data, weight] if bias is None else [data, weight, bias]
        gemm = ir.Node("", "Gemm", operands, attributes, num_outputs=1, name=self._name(node, "Gemm"))
        gemm.outputs[0].name = f"{gemm.name}_output_0"
        gemm.outputs[0].type = last.outputs[0].type
        inherit(gemm, node, last)
        graph, old, result = last.graph, last.outputs[0], gemm.outputs[0]
        assert graph is not None
        graph.insert_before(last, gemm)
        columns = weight.shape[0 if transpose is not None else 1]  # type: ignore[index]
        if rank == 2:
            result.shape = old.shape or ir.Shape([x.shape[0], columns])
        else:
            result.shape = ir.Shape([rows, columns])
            sizes = [size if isinstance(size, int) else -1 for size in (*x.shape[:-1], columns)]
            result = self._insert_reshape(last, result, sizes, old.shape)
        old.replace_all_uses_with(result, replace_graph_outputs=True)
        graph.remove((last, node), safe=True)
        return True

    def _name(self, node: ir.Node, op_type: str) -> str:
        return self.initializers.unique(f"{(node.name or node.op_type).removesuffix('/MatMul')}/{op_type}")

    def _insert_reshape(
        self, before: ir.Node, value: ir.Value, sizes: list[int], shape: ir.Shape | None
    ) -> ir.Value:
        target = self.initializers.make(np.array(sizes, dtype=np.int64), "product_shape")
        node = ir.Node("", "Reshape", [value, target], num_outputs=1, name=self._name(before, "Reshape"))
        result = node.outputs[0]
        result.name, result.type, result.shape = f"{node.name}_output_0", value.type, shape
        inherit(node, before)
        assert before.graph is not None
        before.graph.insert_before(before, node)
        return result


def is_biased_product(node: ir.Node, opset: int) -> bool:
    """Whether a MatMul of a weight and the Add of a bias after it would be one Gemm if x were a matrix."""
    if node.op_type != "MatMul" or node.domain or _bias_addition(node) is None:
        return False
    x, weight = node.inputs
    schema = operator_schema("Gemm", opset)
    if x is None or weight is None or schema is None or x.dtype is None or x.dtype != weight.dtype:
        return False
    fits = x.dtype in schema.inputs[0].dtypes and has_kernel("Gemm", x.dtype)
    return fits and _is_matrix(weight) and 0 not in (weight.shape or ())


def _is_matrix(value: ir.Value | None) -> bool:
    """Whether a value is an initializer of two dimensions."""
    if value is None or not value.is_initializer() or value.is_graph_input() or value.const_value is None:
        return False
    return value.shape is not None and len(value.shape) == 2


def _can_restore_shape(shape: ir.Shape) -> bool:
    """Whether Reshape can restore a shape from the one with its first dimensions merged."""
    unknown = [size for size in shape if not isinstance(size, int)]
    return len(shape) > 2 and isinstance(shape[-1], int) and len(unknown) <= 1 and 0 not in shape


def _bias_addition(node: ir.Node) -> tuple[ir.Node, ir.Value] | None:
    """The Add that adds a constant vector to a product, and the vector; None if others read the product."""
    result = node.outputs[0]
    uses = result.uses()
    if len(uses) != 1 or result.is_graph_output():
        return None
    [(reader, index)] = uses
    if reader.op_type != "Add" or reader.domain or reader.graph is not node.graph:
        return None
    bias = reader.inputs[1 - index]
    if bias is None or not bias.is_initializer() or bias.is_graph_input() or bias.shape is None:
        return None
    columns = result.shape[-1] if result.shape is not None else None
    fits = len(bias.shape) == 1 and bias.shape[0] in (1, columns) and isinstance(columns, int)
    return (reader, bias) if fits else None
