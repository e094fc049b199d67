"""Writes Flatten as Reshape, and Reshape as Flatten."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ...registration.schemas import operator_schema
from .rewriting import Rewriter, attribute, constant_of, graphs_of, is_onnx, remove_unused


class FlattenToReshape(ir.passes.InPlacePass):
    """Writes Flatten as Reshape to a constant shape.

    At most one of the two sizes may be unknown; it is written as -1. Other Flattens stay.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        rewriter = Rewriter(model)
        modified = False
        for graph in graphs_of(model):
            for node in list(graph):
                target = _flattened(node) if is_onnx(node, "Flatten") else None
                if target is not None:
                    with rewriter.before(node) as g:
                        result = g.op("Reshape", node.inputs[0], g.constant(np.array(target, np.int64)))
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
        for graph in graphs_of(model):
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
            remove_unused(model)
        return ir.passes.PassResult(model, modified)


def _sizes(value: ir.Value | None) -> list[int | None] | None:
    if value is None or value.shape is None:
        return None
    return [dim if isinstance(dim, int) else None for dim in value.shape]


def _product(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    return math.prod(known)


def _flattened(node: ir.Node) -> list[int] | None:
    """The shape that a Flatten gives, with -1 for one size that is not known."""
    sizes = _sizes(node.inputs[0])
    if sizes is None:
        return None
    axis = attribute(node, "axis", 1)
    axis += len(sizes) if axis < 0 else 0
    parts = [_product(sizes[:axis]), _product(sizes[axis:])]
    if parts.count(None):
        # Reshape copies a size of 0, and cannot tell the other one from it.
        if parts.count(None) == 2 or 0 in parts:
            return None
    elif 0 in parts:
        return None
    return [-1 if part is None else part for part in parts]


def _flattening_axis(node: ir.Node) -> int | None:
    """The axis of the Flatten that gives what a Reshape gives."""
    sizes = _sizes(node.inputs[0])
    tensor = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if sizes is None or tensor is None or attribute(node, "allowzero", 0):
        return None
    target = tensor.numpy().tolist()
    if len(target) != 2 or len(sizes) < 1:
        return None
    if target == [0, -1]:
        return 1
    first: int | None = sizes[0] if target[0] == 0 else target[0]
    second: int | None = target[1] if target[1] != 0 else (sizes[1] if len(sizes) > 1 else None)
    for axis in range(len(sizes) + 1):
        parts = (_product(sizes[:axis]), _product(sizes[axis:]))
        if 0 in parts:
            continue
        whole = parts == (first, second)
        rest_first = first == -1 and parts[1] is not None and parts[1] == second
        rest_second = second == -1 and parts[0] is not None and parts[0] == first
        copied = target[0] == 0 and axis == 1 and parts[1] is not None and parts[1] == second
        if (whole and None not in parts) or copied or rest_first or rest_second:
            return axis
    return None
