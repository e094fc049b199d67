"""Writes Flatten as Reshape, and Reshape as Flatten."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ....registration.arguments import graphs_of
from ....registration.schemas import operator_schema
from ...onnx_graph.simplification.unused_nodes import RemoveUnused
from ..rewriting import Rewriter, attribute, constant_of, is_onnx


class FlattenToReshape(ir.passes.InPlacePass):
    """Writes Flatten as Reshape to a constant shape.

    At most one of the two sizes may be unknown; it is written as -1. Other Flattens stay.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        rewriter = Rewriter(model)
        modified = False
        for graph in graphs_of(model.graph):
            for node in list(graph):
                sizes = _flattened_sizes(node) if is_onnx(node, "Flatten") else None
                if sizes is not None:
                    with rewriter.before(node) as g:
                        result = g.op("Reshape", node.inputs[0], g.constant(np.array(sizes, np.int64)))
                    rewriter.replace(node, [result])
                    modified = True
        return ir.passes.PassResult(model, modified)


class ReshapeToFlatten(ir.passes.InPlacePass):
    """Writes Reshape as Flatten where both give the same matrix, whatever the unknown sizes are."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        rewriter = Rewriter(model)
        modified = False
        schema = operator_schema("Flatten", rewriter.opset)
        for graph in graphs_of(model.graph):
            for node in list(graph):
                axis = _flattening_axis(node) if is_onnx(node, "Reshape") else None
                value = node.inputs[0]
                if (
                    axis is None
                    or value is None
                    or schema is None
                    or value.dtype not in schema.inputs[0].dtypes
                ):
                    continue
                with rewriter.before(node) as g:
                    result = g.op("Flatten", value, axis=axis)
                rewriter.replace(node, [result])
                modified = True
        if modified:
            RemoveUnused()(model)
        return ir.passes.PassResult(model, modified)


def _sizes(value: ir.Value | None) -> list[int | None] | None:
    if value is None or value.shape is None:
        return None
    return [dim if isinstance(dim, int) else None for dim in value.shape]


def _product(sizes: list[int | None]) -> int | None:
    known_sizes = [size for size in sizes if size is not None]
    if len(known_sizes) < len(sizes):
        return None
    return math.prod(known_sizes)


def _flattened_sizes(node: ir.Node) -> list[int] | None:
    """The shape that a Flatten gives, with -1 for one size that is not known."""
    sizes = _sizes(node.inputs[0])
    if sizes is None:
        return None
    axis = attribute(node, "axis", 1)
    axis += len(sizes) if axis < 0 else 0
    matrix_sizes = [_product(sizes[:axis]), _product(sizes[axis:])]
    if matrix_sizes.count(None):
        # Reshape copies a size of 0, and cannot tell the other one from it.
        if matrix_sizes.count(None) == 2 or 0 in matrix_sizes:
            return None
    elif 0 in matrix_sizes:
        return None
    return [-1 if size is None else size for size in matrix_sizes]


def _flattening_axis(node: ir.Node) -> int | None:
    """The axis of the Flatten that gives what a Reshape gives."""
    sizes = _sizes(node.inputs[0])
    tensor = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if sizes is None or tensor is None or attribute(node, "allowzero", 0):
        return None
    requested_sizes = tensor.numpy().tolist()
    if len(requested_sizes) != 2 or len(sizes) < 1:
        return None
    # This copies the first size and joins the others, whatever they are.
    if requested_sizes == [0, -1]:
        return 1
    first: int | None = sizes[0] if requested_sizes[0] == 0 else requested_sizes[0]
    second: int | None = (
        requested_sizes[1] if requested_sizes[1] != 0 else (sizes[1] if len(sizes) > 1 else None)
    )
    for axis in range(len(sizes) + 1):
        matrix_sizes = (_product(sizes[:axis]), _product(sizes[axis:]))
        if 0 in matrix_sizes:
            continue
        # A size of -1 is inferred, and one of 0 copied; the other size must then be known to agree.
        is_same = matrix_sizes == (first, second)
        infers_first = first == -1 and matrix_sizes[1] is not None and matrix_sizes[1] == second
        infers_second = second == -1 and matrix_sizes[0] is not None and matrix_sizes[0] == first
        copies_first = (
            requested_sizes[0] == 0
            and axis == 1
            and matrix_sizes[1] is not None
            and matrix_sizes[1] == second
        )
        if (is_same and None not in matrix_sizes) or copies_first or infers_first or infers_second:
            return axis
    return None
