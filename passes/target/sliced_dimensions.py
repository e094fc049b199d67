"""Target pass: gives a name to each size that a Slice of opset 10 leaves unknown.

onnx's shape inference for this version of Slice, which onnxruntime uses, gives the sliced dimension the name
of the whole dimension. onnxruntime then puts both tensors into one buffer and fails at run time. It does not
infer a dimension that already has a name.
"""

from __future__ import annotations

import onnx_ir as ir

from ...registration import Names
from ...registration.schemas import misnames_cut_sizes


class NameSlicedDimensions(ir.passes.InPlacePass):
    """Gives every unknown size along a sliced dimension a unique name."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Name the sizes and report whether there were any."""
        if not misnames_cut_sizes(model.opset_imports.get("", 0)):
            return ir.passes.PassResult(model, False)
        names, modified = Names(), False
        for node in ir.traversal.RecursiveGraphIterator(model.graph):
            for value in (*node.inputs, *node.outputs):
                for name in _names(value):
                    names.take(name)
        for node in ir.traversal.RecursiveGraphIterator(model.graph):
            if node.op_type == "Slice" and node.domain == "":
                modified |= _name_sizes(node, names)
        return ir.passes.PassResult(model, modified)


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
    given = node.inputs[3].const_value if len(node.inputs) > 3 and node.inputs[3] is not None else None
    cut = range(rank) if given is None else {int(axis) % rank for axis in given.numpy().reshape(-1)}
    dims: list[int | ir.SymbolicDim] = list(result.shape or [ir.SymbolicDim(None)] * rank)
    unknown = [axis for axis in cut if dims[axis] == ir.SymbolicDim(None)]
    for axis in unknown:
        dims[axis] = ir.SymbolicDim(names.unique(f"{result.name}_dim_{axis}"))
    if unknown:
        result.shape = ir.Shape(dims)
    return bool(unknown)
