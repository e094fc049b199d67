"""Target pass: computes what depends on constants alone.

1. Arithmetic on small constants is computed at once, by `registration.emission.folding`.
2. Weights that are transposed or reshaped become another constant, computed when it is written.
3. Initializers that keep their names and contents, and outputs of graphs, stay.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from ...registration.dtypes import FLOATS
from ...registration.emission import shape_inference
from ...registration.emission.folding import MAXIMUM_ELEMENTS, evaluate
from .initializers import Initializers

_REARRANGED = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity"})


class FoldConstants(ir.passes.InPlacePass):
    """Replaces nodes that read constants alone by constants."""

    def __init__(self, initializers: Initializers):
        super().__init__()
        self._initializers = initializers

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold in the main graph and in its sub-graphs, and report whether anything changed."""
        modified = False
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            modified |= self._fold(node)
        return ir.passes.PassResult(model, modified)

    def _fold(self, node: ir.Node) -> bool:
        known = self._initializers
        if node.domain or len(node.outputs) != 1 or not node.inputs or node.outputs[0].is_graph_output():
            return False
        if not all(map(known.is_constant, node.inputs)):
            return False
        made = self._folded(node)
        if made is None:
            return False
        node.outputs[0].replace_all_uses_with(made)
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        return True

    def _folded(self, node: ir.Node) -> ir.Value | None:
        attributes: dict[str, Any] = {name: each.value for name, each in node.attributes.items()}
        inputs = [value for value in node.inputs if value is not None]
        sizes = [math.prod(value.const_value.shape.numpy()) for value in inputs if value.const_value]
        if node.op_type in _REARRANGED and inputs[0].dtype in FLOATS:
            return self._rearranged(node, inputs, attributes)
        if max(sizes) <= MAXIMUM_ELEMENTS:
            arrays = [value.const_value.numpy() for value in inputs if value.const_value is not None]
            result = evaluate(node.op_type, arrays, attributes)
            if result is None or result.dtype.hasobject:
                return None
            dtype = node.outputs[0].dtype
            if dtype is not None and result.dtype != dtype.numpy():
                return None
            stem = (node.outputs[0].name or "constant").removesuffix("_output_0")
            return self._initializers.make(np.asarray(result), stem)
        return None

    def _rearranged(
        self, node: ir.Node, inputs: list[ir.Value], attributes: dict[str, Any]
    ) -> ir.Value | None:
        """A constant in another shape or order, by the rest of the operands."""
        data, dtype = inputs[0], inputs[0].dtype
        shape = _result_shape(node, inputs, attributes)
        if shape is None or dtype is None or dtype.numpy().hasobject:
            return None
        turned, perm = node.op_type == "Transpose", attributes.get("perm")

        def compute(array: np.ndarray) -> np.ndarray:
            return np.transpose(array, perm) if turned else array.reshape(shape)

        return self._initializers.derive([data], compute, dtype, shape)


def _result_shape(
    node: ir.Node, inputs: list[ir.Value], attributes: dict[str, Any]
) -> tuple[int, ...] | None:
    found = shape_inference.infer(node.op_type, inputs, attributes)
    tensor = inputs[0].const_value
    if found is None or tensor is None:
        return None
    total = math.prod(tensor.shape.numpy())
    known = [size for size in found if isinstance(size, int)]
    rest = math.prod(known)
    if len(known) + 1 == len(found) and rest and total % rest == 0:
        return tuple(size if isinstance(size, int) else total // rest for size in found)
    return tuple(known) if len(known) == len(found) and rest == total else None
