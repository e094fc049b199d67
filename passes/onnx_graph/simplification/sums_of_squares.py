"""ONNX pass: writes a sum of squares as one operator.

    ReduceSum(Mul(x, x)) or ReduceSum(Pow(x, 2))      becomes      ReduceSumSquare(x)

1. Only the sum reads the squares, and no graph returns them.
2. The axes are constants, and x has floats of 32 or 64 bits: onnxruntime has no kernel for half precision.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..node_pass import ConstantPass, replace_match
from ..pass_order import Run
from ..pattern_matcher import op, value

_X = value("x")
_SUM = op("ReduceSum", _X**2 | _X * _X)


class SumSquares(ConstantPass):
    """Replaces the square and the sum by ReduceSumSquare."""

    runs = (
        Run(
            "full",
            after={
                "FuseLayerNormalization": "Its formula has squares.",
                "JoinHeads": "Sums of squares of queries and keys are computed together.",
            },
        ),
    )
    op_types = ("ReduceSum",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a sum."""
        match = _SUM.find(node)
        axes = self.initializers.integers(node, "axes", 1)
        schema = self.schema("ReduceSumSquare")
        if match is None or not axes or schema is None:
            return False
        x = match["x"]
        if x.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
            return False
        inputs = [x]
        attributes = [ir.AttrInt64("keepdims", node.attributes.get_int("keepdims", 1) or 0)]
        if "axes" in schema.input_index:
            inputs.append(self.initializers.make(np.array(axes, np.int64), "axes"))
        else:
            attributes.append(ir.AttrInt64s("axes", axes))
        replace_match(node, "ReduceSumSquare", inputs, attributes, self.opset)
        return True
