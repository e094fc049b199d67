"""ONNX pass: stores constants of INT64 as INT32 where the operator takes either.

1. The schema allows INT32 for the input, every input of its type variable is such a constant, and no output
   has the variable: so no other value changes its type.
2. Every number fits.
3. A constant that other nodes read as INT64 stays, in addition to the new one.
"""

from __future__ import annotations

import collections

import numpy as np
import onnx_ir as ir

from ..node_pass import ConstantPass

_MAXIMUM_ELEMENTS = 1 << 20
_BOUNDS = np.iinfo(np.int32)


class NarrowConstants(ConstantPass):
    """Stores constants of INT64 (indices, axes, bounds of slices) as INT32 where the schema allows it."""

    def rewrite(self, node: ir.Node) -> bool:
        """Narrow the constants of a node."""
        schema = self.schema(node.op_type)
        if schema is None or any(parameter.variadic for parameter in schema.inputs):
            return False
        output_variables = {parameter.variable for parameter in schema.outputs}
        groups = collections.defaultdict(list)
        for index, value in enumerate(node.inputs):
            parameter = schema.inputs[index]
            is_free = bool(parameter.variable) and parameter.variable not in output_variables
            if value is not None and is_free and ir.DataType.INT32 in parameter.dtypes:
                groups[parameter.variable].append(index)
        modified = False
        for indices in groups.values():
            if all(self._fits(node.inputs[index]) for index in indices):
                for index in indices:
                    value = node.inputs[index]
                    assert value is not None
                    assert value.const_value is not None
                    narrow = value.const_value.numpy().astype(np.int32)
                    node.replace_input_with(index, self.initializers.make(narrow, f"{value.name}_int32"))
                modified = True
        return modified

    def _fits(self, value: ir.Value | None) -> bool:
        if value is None or value.dtype != ir.DataType.INT64 or not self.initializers.is_constant(value):
            return False
        tensor = value.const_value
        if tensor is None or tensor.size > _MAXIMUM_ELEMENTS:
            return False
        array = tensor.numpy()
        return not array.size or bool(array.min() >= _BOUNDS.min and array.max() <= _BOUNDS.max)
