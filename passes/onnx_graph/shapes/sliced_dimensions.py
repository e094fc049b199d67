"""ONNX pass: names each size that a Slice of opset 10 leaves unknown.

onnx's shape inference for this version of Slice, which onnxruntime uses, gives the sliced dimension the name
of the whole dimension. onnxruntime then puts both tensors into one buffer and fails at run time. It does not
infer a dimension that already has a name.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration import Names
from ....registration.arguments import every_node
from ....registration.schemas import misnames_cut_sizes
from ....registration.size_algebra.dimensions import UNKNOWN, Dim
from ..node_pass import NodePass
from ..pass_order import Run


class NameSlicedDimensions(NodePass):
    """Gives every unknown size along a sliced dimension a unique name."""

    runs = (Run("none", after={"RemoveUnusedAtEnd": "Nodes that are removed need no change."}),)
    op_types = ("Slice",)
    _names: Names

    def begin(self, model: ir.Model) -> bool:
        """Collect the names of sizes, if the opset has this version of Slice."""
        if not misnames_cut_sizes(self.opset):
            return False
        self._names = Names()
        for node in every_node(model.graph):
            for value in (*node.inputs, *node.outputs):
                for name in _names(value):
                    self._names.take(name)
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Name the unknown sizes of a Slice."""
        return _name_sizes(node, self._names)


def _names(value: ir.Value | None) -> list[str]:
    dims = () if value is None or value.shape is None else value.shape
    return [dim.value for dim in dims if isinstance(dim, ir.SymbolicDim) and dim.value is not None]


def _name_sizes(node: ir.Node, names: Names) -> bool:
    data, result = node.inputs[0], node.outputs[0]
    if data is None or data.shape is None:
        return False
    rank = len(data.shape)
    if result.shape is not None and len(result.shape) != rank:
        return False
    axes_tensor = node.inputs[3].const_value if len(node.inputs) > 3 and node.inputs[3] is not None else None
    cut = (
        range(rank) if axes_tensor is None else {int(axis) % rank for axis in axes_tensor.numpy().reshape(-1)}
    )
    dims: list[Dim] = list(result.shape or [UNKNOWN] * rank)
    # A size with a name is not inferred again.
    unknown = [axis for axis in cut if dims[axis] == UNKNOWN]
    for axis in unknown:
        dims[axis] = ir.SymbolicDim(names.unique(f"{result.name}_dim_{axis}"))
    if unknown:
        result.shape = ir.Shape(dims)
    return bool(unknown)
