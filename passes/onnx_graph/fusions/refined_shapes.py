"""ONNX pass: infers sizes that were unknown in the file, before attention and normalization are fused.

Files often compute the targets of their Reshapes. Once these are constants, or sizes of other values, the
number of heads follows from them:

    data [batch, 197, 192] -> Reshape [Shape(data)[0], 197, -1, 64]      gives      [batch, 197, 3, 64]

1. Applies to graphs with a Softmax, in opsets with Attention, and to graphs with a mean of values whose last
   size is unknown, in opsets with LayerNormalization.
2. Sizes that are known stay.
3. A Slice of a table of `n` rows up to a size `s` has the size Min(n, s); broadcast with `s` it is `s`.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from ....registration.inference import shape_inference
from ....registration.size_algebra.dimensions import UNKNOWN, Dim, broadcast, same_size
from ..constants.fold_constants import FoldConstants
from ..node_pass import InitializerPass, NodePass, NodesByOperator
from ..pass_order import Run
from ..shapes.result_sizes import RULES, result_sizes


class RefineShapes(NodePass):
    """Replaces unknown sizes in the shapes of values; no node changes."""

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Refine the shapes of a graph that may have an operator written out whose fusion needs them."""
        self.opset = model.opset_imports.get("", 0)
        is_attention = self.schema("Attention") is not None and nodes.of(("Softmax",))
        is_normalization = self.schema("LayerNormalization") is not None and any(
            not _has_last_size(node.inputs[0]) for node in nodes.of(("ReduceMean",))
        )
        return bool(is_attention or is_normalization) and super().run(model, nodes)

    def rewrite(self, node: ir.Node) -> bool:
        """Infer the shape of a result."""
        result = node.outputs[0] if len(node.outputs) == 1 and not node.domain else None
        if result is None or (result.shape is not None and result.shape.is_static()):
            return False
        inferred = _infer_sizes(node)
        if inferred is None or (result.shape is not None and len(inferred) != len(result.shape)):
            return False
        current = [UNKNOWN] * len(inferred) if result.shape is None else [*result.shape]
        # A number is most precise; the operands' symbol is preferred to the result's, which others share.
        sizes = [
            old if isinstance(old, int) or new == UNKNOWN or same_size(old, new) else new
            for old, new in zip(current, inferred, strict=True)
        ]
        if result.shape is not None and sizes == [*result.shape]:
            return False
        result.shape = ir.Shape(sizes)
        return True


class RefineAndFold(InitializerPass):
    """Refines shapes, and folds the values that become constant, such as the masks of shifted windows."""

    runs = (
        Run(
            "full",
            after={"RemoveUnusedBeforeFusion": "Unused nodes would count as readers of folded constants."},
        ),
    )

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Run both passes; most graphs have nothing to refine, and so nothing new to fold."""
        if not RefineShapes().run(model, nodes):
            return False
        FoldConstants(self.initializers).run(model, nodes)
        return True


def _infer_sizes(node: ir.Node) -> list[Dim] | None:
    """The sizes of a result that follow from its operands."""
    if node.op_type in RULES:
        return result_sizes(node)
    if node.op_type in shape_inference.BROADCASTING:
        shapes = [value.shape.dims for value in node.inputs if value is not None and value.shape is not None]
        return [*broadcast(shapes)] if len(shapes) == len(node.inputs) else None
    attributes: dict[str, Any] = {name: attribute.value for name, attribute in node.attributes.items()}
    inferred = shape_inference.infer(node.op_type, node.inputs, attributes)
    return None if inferred is None else list(inferred)


def _has_last_size(value: ir.Value | None) -> bool:
    """Whether the last size of a value is a number."""
    return value is not None and value.shape is not None and isinstance([0, *value.shape][-1], int)
