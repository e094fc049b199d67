"""Windows of images and volumes in the operators that a consumer knows."""

import itertools
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration import GraphContext, Value, onnx_symbolic
from ....registration.dtypes import FLOATS
from .sizes import all_static


@onnx_symbolic("form::Transpose.convolution")
def windows_as_convolution(g: GraphContext, data: Value, perm: list[int] | None = None) -> Value:
    """Windows of an image, as a convolution that copies each element of a window into a channel of its own.

    The positions are in the order (row of the window, row, column of the window, column). The Transpose moves
    the window to the front.
    """
    gather = _producer(data, "Gather")
    if gather is None or perm != [0, 1, 2, 4, 3, 5] or gather.attributes.get_int("axis", 0) != 2:
        raise g.refuse("it does not reorder windows of an image")
    # The rows and columns of the image are one dimension for the Gather.
    reshape, indices = _producer(gather.inputs[0], "Reshape"), gather.inputs[1]
    positions = None if indices is None else g.constant_value(indices)
    image = None if reshape is None else reshape.inputs[0]
    shape = None if image is None else g.shape(image)
    if image is None or shape is None or len(shape) != 4 or not all_static(shape):
        raise g.refuse("the sizes of the image are unknown")
    if positions is None or positions.ndim != 4 or g.dtype(image) not in FLOATS or 0 in positions.shape:
        raise g.refuse("the positions are not those of windows of rows and columns")
    batch, channels, height, width = shape
    rows = _steps(positions[:, :, 0, 0] // width, height)
    columns = _steps(positions[0, 0] % width, width)
    if rows is None or columns is None:
        raise g.refuse("the windows do not cover the image")
    if not np.array_equal(_grid(rows)[:, :, None, None] * width + _grid(columns), positions):
        raise g.refuse("the positions are not those of windows at equal distances")
    dilations, strides, kernel, counts = zip(rows, columns, strict=True)
    weight = np.zeros((channels, *kernel, *kernel), np.float32)
    for row, column in itertools.product(*map(range, kernel)):
        weight[:, row, column, row, column] = 1
    copied = g.op(
        "Conv",
        image,
        g.constant(weight.reshape(-1, 1, *kernel), g.dtype(image)),
        group=channels,
        strides=[*strides],
        dilations=[*dilations],
    )
    return g.op("Reshape", copied, [batch, channels, *kernel, *counts])


def _steps(positions: np.ndarray, size: int) -> tuple[int, int, int, int] | None:
    """The dilation, stride, length and number of windows; None if a convolution has more windows."""
    length, count = positions.shape
    dilation = max(int(positions[1, 0]), 1) if length > 1 else 1
    stride = max(int(positions[0, 1]), 1) if count > 1 else size
    is_whole = (size - (length - 1) * dilation - 1) // stride + 1 == count
    return (dilation, stride, length, count) if is_whole else None


def _grid(steps: tuple[int, int, int, int]) -> np.ndarray:
    dilation, stride, length, count = steps
    return np.arange(length)[:, None] * dilation + np.arange(count) * stride


def _producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and not node.domain and node.op_type == op_type else None


def _register_volumes(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.two_dimensions")
    def pool_planes(
        g: GraphContext,
        X: Value,
        kernel_shape: list[int],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        pads: list[int] | None = None,
        strides: list[int] | None = None,
        dilations: list[int] | None = None,
        result_shape: list[int] | None = None,
        **attributes: Any,
    ) -> Value:
        """Volumes as images: the planes first, and then the depth of the pooled planes, which are rows.

        A maximum, a sum and the number of elements of a window are those of its planes, together. Sequences
        whose sides have unequal pads are images of one row.
        """
        shape = g.shape(X)
        if g.rank(X) == 3 and auto_pad == "NOTSET" and pads and pads[0] != pads[1]:
            of_row: dict[str, Any] = {"strides": [1, *(strides or [1])], "pads": [0, pads[0], 0, pads[1]]}
            if dilations is not None:
                of_row["dilations"] = [1, *dilations]
            row = g.op("Unsqueeze", X, axes=[2])
            kernel = [1, *kernel_shape]
            pooled = g.op(op_type, row, kernel_shape=kernel, ceil_mode=ceil_mode, **of_row, **attributes)
            return g.op("Squeeze", pooled, axes=[2])
        if shape is None or len(shape) != 5 or not all_static(shape) or auto_pad != "NOTSET":
            raise g.refuse("only a known padding of volumes of known sizes becomes one of images")
        if result_shape is None or (ceil_mode and pads and any(pads)):
            # Runtimes differ in whether a window may begin behind the image.
            raise g.refuse("the sizes of the result are unknown, or rounded up with a padding")
        batch, channels, depth, height, width = shape
        padding, steps, spread = pads or [0] * 6, strides or [1] * 3, dilations or [1] * 3
        if spread != [1, 1, 1]:
            attributes["dilations"] = spread[1:]
        planes = g.op(
            op_type,
            g.op("Reshape", X, [batch, channels * depth, height, width]),
            kernel_shape=kernel_shape[1:],
            ceil_mode=ceil_mode,
            pads=[*padding[1:3], *padding[4:]],
            strides=steps[1:],
            **attributes,
        )
        if spread != [1, 1, 1]:
            attributes["dilations"] = [spread[0], 1]
        rows = g.op(
            op_type,
            g.op("Reshape", planes, [batch, channels, depth, math.prod(result_shape[3:])]),
            kernel_shape=[kernel_shape[0], 1],
            ceil_mode=ceil_mode,
            pads=[padding[0], 0, padding[3], 0],
            strides=[steps[0], 1],
            **attributes,
        )
        return g.op("Reshape", rows, result_shape)


for _op_type in ("AveragePool", "MaxPool"):
    _register_volumes(_op_type)


def _register_global_pooling(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.two_dimensions")
    def pool_volume(g: GraphContext, X: Value) -> Value:
        """Volumes as images, of which the planes are rows."""
        shape = g.shape(X)
        if shape is None or len(shape) != 5 or not all_static(shape) or 0 in shape:
            raise g.refuse("only volumes of known sizes become images")
        batch, channels, depth, height, width = shape
        pooled = g.op(op_type, g.op("Reshape", X, [batch, channels, depth, height * width]))
        return g.op("Reshape", pooled, [batch, channels, 1, 1, 1])


for _op_type in ("GlobalAveragePool", "GlobalMaxPool"):
    _register_global_pooling(_op_type)


def _register_dense_kernels(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.dense_kernel")
    def convolve_without_dilations(
        g: GraphContext,
        X: Value,
        W: Value,
        B: Value | None = None,
        dilations: list[int] | None = None,
        kernel_shape: list[int] | None = None,
        **arguments: Any,
    ) -> Value:
        """A kernel with zeros between its elements instead of dilations."""
        kernel, steps = g.constant_value(W), dilations or []
        if kernel is None or all(step == 1 for step in steps):
            raise g.refuse("the kernel is computed or has no dilations")
        sizes = [(size - 1) * step + 1 for size, step in zip(kernel.shape[2:], steps, strict=True)]
        dense = np.zeros((*kernel.shape[:2], *sizes), kernel.dtype)
        regions = [slice(None)] * 2 + [slice(None, None, step) for step in steps]
        dense[tuple(regions)] = kernel
        result: Value = g.op(op_type, X, g.constant(dense), B, kernel_shape=sizes, **arguments)
        return result


for _op_type in ("Conv", "ConvTranspose"):
    _register_dense_kernels(_op_type)
