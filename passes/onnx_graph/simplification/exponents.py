"""ONNX pass: gives constant exponents of Pow the type of the base, because TVM and others refuse two types.

1. The exponent is a constant of integers that the type of the base represents; the base is of floats.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration.dtypes import FLOATS, INTEGERS
from ..node_pass import ConstantPass
from ..pass_order import Run

_MAXIMUM_ELEMENTS = 4096


class AlignExponents(ConstantPass):
    """Casts constant exponents."""

    runs = (Run("basic", after={"FoldSmallResults": "The exponent must be a constant."}),)
    op_types = ("Pow",)

    def rewrite(self, node: ir.Node) -> bool:
        """Cast the exponent."""
        base, exponent = node.inputs
        if base is None or exponent is None or base.dtype not in FLOATS or exponent.dtype not in INTEGERS:
            return False
        tensor = exponent.const_value
        if tensor is None or not self.initializers.is_constant(exponent) or tensor.size > _MAXIMUM_ELEMENTS:
            return False
        integers = tensor.numpy()
        converted = integers.astype(base.dtype.numpy())
        if not np.array_equal(converted.astype(np.float64), integers.astype(np.float64)):
            return False
        node.replace_input_with(1, self.initializers.make(converted, f"{exponent.name}_float"))
        return True
