"""ONNX passes: computes the inverse of a permutation by sorting it, and multiplies rows after it is undone.

    ScatterND(any, order, 0, 1, 2, …)  -> the positions of TopK(order), smallest first

1. `order` is the positions of a TopK that sorts all elements of a vector, a permutation: the scattering
   replaces every element. Layers of experts undo their sorting so.
2. The opset has a TopK that sorts integers from the smallest on, from opset 11.

    Gather(rows * column of Gather(factors, order), inverse)  ->  Gather(rows, inverse) * column of factors

3. `inverse` is what rule 1 writes for `order`. Nothing else reads the product, the column or the ordered
   factors.
4. A Reshape [-1, k, columns] behind it, and one of the factors from [n, k], are joined: the product then
   has the shape [n, k, columns].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ....registration.inference.constant_integers import argument
from ....registration.origins import inherit
from ....registration.size_algebra.dimensions import same_size
from ..node_pass import (
    ConstantPass,
    new_node,
    producer_of,
    removable_producer,
    remove_unread,
    replace_by_value,
)
from ..pass_order import Run
from ..pattern_matcher import number


class SortPermutations(ConstantPass):
    """Replaces the ScatterND of consecutive numbers at the positions of a sorted vector."""

    runs = (Run("full", after={"FoldSmallResults": "The axes must be constants."}),)
    op_types = ("ScatterND",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a ScatterND that inverts a permutation."""
        schema, reduction = self.schema("TopK"), node.attributes.get_string("reduction", "none")
        if schema is None or "largest" not in schema.attributes or reduction != "none":
            return False
        numbers, column = producer_of(node.inputs[2], "Range"), producer_of(node.inputs[1], "Unsqueeze")
        order = None if column is None else column.inputs[0]
        if (
            numbers is None
            or order is None
            or column is None
            or argument(column, "axes", 1) not in ([1], [-1])
        ):
            return False
        if [number(numbers.inputs[index]) for index in (0, 2)] != [0, 1]:
            return False
        sort = producer_of(order, "TopK")
        if sort is None or order is not sort.outputs[1] or node.graph is None:
            return False
        if not _are_equally_long((sort.inputs[0], order, node.inputs[0])):
            return False
        inverse = ir.Node(
            "",
            "TopK",
            [order, sort.inputs[1]],
            [ir.AttrInt64("axis", 0), ir.AttrInt64("largest", 0)],
            num_outputs=2,
            name=self.initializers.unique(f"{node.name}/TopK"),
        )
        for index, result in enumerate(inverse.outputs):
            result.name = self.initializers.unique(f"{inverse.name}_output_{index}")
            result.type, result.shape = order.type, order.shape
        inherit(inverse, node)
        node.graph.insert_before(node, inverse)
        replace_by_value(node, inverse.outputs[1])
        return True


class ScaleRestoredRows(ConstantPass):
    """Multiplies rows by factors behind the Gather that restores their order."""

    runs = (
        Run(
            "full",
            after={
                "SortPermutations": "It writes the inverse by which rows are restored.",
                "MergeShapeChains": "The shapes behind the rows are known.",
            },
        ),
    )
    op_types = ("Gather",)

    def rewrite(self, node: ir.Node) -> bool:
        """Move the factors behind a Gather of rows by an inverse permutation."""
        rows, order = node.inputs
        inverse, product = producer_of(order, "TopK"), removable_producer(node, rows, "Mul")
        if inverse is None or product is None or not node.outputs[0].uses():
            return False
        sort = producer_of(inverse.inputs[0], "TopK")
        is_inverse = sort is not None and inverse.inputs[0] is sort.outputs[1] and order is inverse.outputs[1]
        largest, axis = inverse.attributes.get_int("largest", 1), node.attributes.get_int("axis", 0)
        if sort is None or not is_inverse or largest != 0 or axis != 0:
            return False
        for rows, column in (product.inputs, product.inputs[::-1]):
            factors = self._ordered_factors(product, column, sort)
            if not _are_equally_long((order, factors)):
                continue
            is_matrix = rows is not None and rows.shape is not None and len(rows.shape) == 2
            if is_matrix and factors is not None and not node.outputs[0].is_graph_output():
                node.replace_input_with(0, rows)
                self._scale(node, product, factors)
                return True
        return False

    def _ordered_factors(self, product: ir.Node, column: ir.Value | None, sort: ir.Node) -> ir.Value | None:
        """The vector of which a column has all elements in the order of a sort; None for another column."""
        insertion = removable_producer(product, column, "Unsqueeze")
        if insertion is None or argument(insertion, "axes", 1) not in ([1], [-1]):
            return None
        gather = removable_producer(insertion, insertion.inputs[0], "Gather")
        if gather is None or gather.inputs[1] is not sort.outputs[1]:
            return None
        factors = gather.inputs[0]
        return factors if _are_equally_long((sort.inputs[0], sort.outputs[1], factors)) else None

    def _scale(self, node: ir.Node, product: ir.Node, factors: ir.Value) -> None:
        """Multiply restored rows, or the Reshape of them that separates the factors of a row as well."""
        result, graph = node.outputs[0], node.graph
        assert graph is not None
        last, column = node, [-1, 1]
        reader, *others = [reader for reader, _ in result.uses()]
        flattened = producer_of(factors, "Reshape")
        matrix = None if flattened is None else flattened.inputs[0]
        separated = reader.outputs[0].shape if reader.op_type == "Reshape" and not others else None
        if matrix is not None and matrix.shape is not None and separated is not None:
            is_same = len(matrix.shape) == len(separated) - 1 and all(map(same_size, matrix.shape, separated))
            if is_same and not reader.outputs[0].is_graph_output() and reader.graph is graph:
                last, factors, column = reader, matrix, [*[0] * len(matrix.shape), 1]
        restored = last.outputs[0]
        shape = None if restored.shape is None else ir.Shape([*restored.shape[:-1], 1])
        target = self.initializers.make(np.array(column, np.int64), "column_shape")
        as_column = new_node(self.initializers, "Reshape", [factors, target], shape)
        scaled = new_node(self.initializers, "Mul", [restored, as_column.outputs[0]], restored.shape)
        restored.replace_all_uses_with(scaled.outputs[0])
        scaled.replace_input_with(0, restored)
        graph.insert_after(last, [as_column, scaled])
        inherit(as_column, product)
        inherit(scaled, product)
        remove_unread(product)


def _are_equally_long(vectors: Sequence[ir.Value | None]) -> bool:
    """Whether all of these have one dimension, and the same size."""
    shapes = [None if vector is None else vector.shape for vector in vectors]
    sizes = [shape[0] for shape in shapes if shape is not None and len(shape) == 1]
    return len(sizes) == len(vectors) and all(same_size(size, sizes[0]) for size in sizes)
