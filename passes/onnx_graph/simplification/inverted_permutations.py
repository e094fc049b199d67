"""ONNX pass: computes the inverse of a permutation by sorting it.

    ScatterND(any, order, 0, 1, 2, …)  -> the positions of TopK(order), smallest first

1. `order` is the positions of a TopK that sorts all elements of a vector, a permutation: the scattering
   replaces every element. Layers of experts undo their sorting so.
2. The opset has a TopK that sorts integers from the smallest on, from opset 11.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.inference.constant_integers import argument
from ....registration.origins import inherit
from ....registration.size_algebra.dimensions import same_size
from ..node_pass import ConstantPass, producer_of, replace_by_value
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
        vector = None if sort is None else sort.inputs[0]
        if sort is None or vector is None or order is not sort.outputs[1] or node.graph is None:
            return False
        shapes = [None if value is None else value.shape for value in (vector, order, node.inputs[0])]
        sizes = [shape[0] for shape in shapes if shape is not None and len(shape) == 1]
        if len(sizes) < 3 or not all(same_size(size, sizes[0]) for size in sizes):
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
