"""Forms for consumers without batches, in which a leading dimension of size 1 keeps the batch as data."""

from typing import Any

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from ..support import integers
from .arithmetic import register_form_of_operands
from .shapes import Regions, register_slice_form
from .sizes import is_stored, static_shape


def _emit_lifted(g: GraphContext, op_type: str, operands: list[Value]) -> Value:
    """Computed operands get a leading dimension of size 1 by a Reshape, and the result loses it.

    Such a consumer takes a dimension of every operand for the batch if it takes one of another operand for
    it. A Reshape that changes the size of that dimension separates the values.
    """
    sizes = [static_shape(g, operand) for operand in operands]
    rank = max(map(len, sizes))
    if op_type == "MatMul":
        if min(map(len, sizes)) < 2:
            raise g.refuse("an operand is a vector")
        result_shape = [*np.broadcast_shapes(*(shape[:-2] for shape in sizes)), sizes[0][-2], sizes[1][-1]]
    else:
        result_shape = list(np.broadcast_shapes(*sizes))
    lifted = [
        operand if is_stored(operand) else g.op("Reshape", operand, [1] * (rank + 1 - len(shape)) + shape)
        for operand, shape in zip(operands, sizes, strict=True)
    ]
    return g.op("Reshape", g.op(op_type, *lifted), [int(size) for size in result_shape])


for _op_type in ("Add", "Div", "MatMul", "Max", "Min", "Mul", "Pow", "Sub"):
    register_form_of_operands(_op_type, "lifted", _emit_lifted)


@onnx_symbolic("form::Concat.lifted")
def lifted_concat(
    g: GraphContext, inputs: list[Value], axis: int, result_shape: list[int] | None = None
) -> Value:
    """Operands with a leading dimension of size 1, which the result loses, as in arithmetic."""
    if result_shape is None:
        raise g.refuse("the sizes are not known")
    dim = g.axis(axis, len(result_shape))
    lifted = [g.op("Reshape", operand, [1, *static_shape(g, operand)]) for operand in inputs]
    return g.op("Reshape", g.op("Concat", *lifted, axis=dim + 1), result_shape)


@onnx_symbolic("form::Expand.lifted")
def lifted_expand(
    g: GraphContext, input: Value, shape: Value, result_shape: list[int] | None = None
) -> Value:
    """Data with a leading dimension of size 1, which the result loses, as in arithmetic."""
    sizes = static_shape(g, input)
    if result_shape is None:
        raise g.refuse("the sizes are not known")
    leading = [1] * (len(result_shape) + 1 - len(sizes))
    data = g.op("Reshape", input, [*leading, *sizes])
    return g.op("Reshape", g.op("Expand", data, [1, *result_shape]), result_shape)


@register_slice_form("lifted")
def lifted_slice(g: GraphContext, data: Value, regions: Regions) -> Value:
    """Data with a leading dimension of size 1, which the part loses, as in arithmetic."""
    sizes = static_shape(g, data)
    if any(region.step != 1 or not region for region in regions.values()):
        raise g.refuse("it has steps, or no elements")
    part = g.op(
        "Slice",
        _add_leading_one(g, data),
        starts=[region.start for region in regions.values()],
        ends=[region.stop for region in regions.values()],
        axes=[axis + 1 for axis in regions],
    )
    shape = [len(regions[axis]) if axis in regions else size for axis, size in enumerate(sizes)]
    return g.op("Reshape", part, shape)


def _add_leading_one(g: GraphContext, data: Value) -> Value:
    """Data with a leading dimension of size 1.

    Behind a dimension of size 1 it would leave one where the consumer may look for the batch.
    """
    sizes = static_shape(g, data)
    if sizes[0] == 1:
        raise g.refuse("the first size is 1")
    return g.op("Reshape", data, [1, *sizes])


def _register_lifted_reduction(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.lifted")
    def lifted_reduction(
        g: GraphContext,
        data: Value,
        axes: Value | list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
        result_shape: list[int] | None = None,
    ) -> Value:
        """Data with a leading dimension of size 1, which the result loses, as in arithmetic."""
        rank, listed = g.rank(data), integers(g, axes)
        if rank is None or result_shape is None or not listed:
            raise g.refuse("the axes or the sizes are not known")
        shifted = [axis % rank + 1 for axis in listed]
        reduced = g.op(op_type, _add_leading_one(g, data), axes=shifted, keepdims=keepdims)
        return g.op("Reshape", reduced, result_shape)


for _op_type in ("ReduceMax", "ReduceMean", "ReduceMin"):
    _register_lifted_reduction(_op_type)


@onnx_symbolic("form::Conv.planes")
def convolve_planes(
    g: GraphContext,
    X: Value,
    W: Value,
    B: Value | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    """Images as the planes of one volume, or sequences as the rows of one image; the kernel has one plane.

    Unlike channels of one image, planes share the weights.
    """
    sizes, kernel = static_shape(g, X), g.constant_value(W)
    if kernel is None or auto_pad != "NOTSET":
        raise g.refuse("the weights or the padding are not known")
    # Consumers that take volumes know groups only if each is of one channel.
    if len(sizes) > 4 or sizes[0] < 2 or (len(sizes) == 4 and group not in (1, sizes[1])):
        raise g.refuse("there is one image, or it is a volume or has groups of channels")
    attributes: dict[str, Any] = {"kernel_shape": [1, *kernel.shape[2:]], "group": group}
    attributes |= {"dilations": dilations and [1, *dilations], "strides": strides and [1, *strides]}
    if pads is not None:
        half = len(pads) // 2
        attributes["pads"] = [0, *pads[:half], 0, *pads[half:]]
    order = [0, 2, 1, *range(3, len(sizes) + 1)]
    volume = g.op("Transpose", g.op("Reshape", X, [1, *sizes]), perm=order)
    weight = g.constant(np.expand_dims(kernel, 2))
    convolved = g.op("Transpose", g.op("Conv", volume, weight, B, **attributes), perm=order)
    return g.op("Squeeze", convolved, axes=[0])
