"""Rounds weights so that products with the calibration data change least.

The nearest integer gives the smallest error of a weight, but not of the product, in which the errors of
several weights add up. So the inputs of a product are taken one by one. Where inputs are correlated in the
data, the weights of later inputs make up for the errors of the earlier ones. This is the method of Frantar et
al., "GPTQ" (arXiv:2210.17323). The scales stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from ..running.runner import Runner
from .batches import Batches

_SAMPLES = 8192
"""The most samples of a product's inputs, such as the positions of images: their number costs time."""
_MOST_INPUTS = 6144
"""Weights of larger products are rounded to the nearest: the costs grow with the third power."""
_MOMENT_BYTES = 1 << 30
"""The moments that are kept at once. For those of further products, the model runs once more."""
_BLOCK = 128
"""The number of inputs that are rounded before their errors change the weights of all later inputs.

Matrices of this size are inverted as a whole.
"""
_DAMPING = 0.1
"""Added to the square of each input, as a share of the mean one.

The paper adds 0.01. But its activations are not quantized: 0.1 gave smaller errors with activations of 8 bits
and few samples.
"""


@dataclasses.dataclass(frozen=True)
class Product:
    """A product of data and a constant weight, as a matrix for each group of its channels.

    Attributes:
        node: a Conv, a Gemm or a MatMul.
        weight: the weight.
        groups: the groups of a Conv, else 1.
        is_transposed: whether the outputs are on the last axis of the weight, not on the first.
    """

    node: ir.Node
    weight: ir.Value
    groups: int
    is_transposed: bool

    def rows(self, array: np.ndarray) -> np.ndarray:
        """A weight, or what has its shape, as [groups, outputs, inputs]."""
        matrix = array.T if self.is_transposed else array
        return matrix.reshape(self.groups, len(matrix) // self.groups, -1)

    def array(self, rows: np.ndarray) -> np.ndarray:
        """The inverse of `rows`."""
        shape = _array(self.weight).shape
        return rows.reshape(shape[::-1]).T if self.is_transposed else rows.reshape(shape)

    def samples(self, data: np.ndarray, count: int) -> np.ndarray:
        """At most so many samples of the inputs, [groups, samples, inputs], evenly chosen from the data."""
        if self.node.op_type != "Conv":
            flat = data.reshape(1, -1, data.shape[-1])
            return flat[:, :: -(-flat.shape[1] // count)]
        kernel = _array(self.weight).shape[2:]
        rank = len(kernel)
        attributes = self.node.attributes
        pads = attributes.get_ints("pads", [0] * 2 * rank)
        strides, dilations = (attributes.get_ints(name, [1] * rank) for name in ("strides", "dilations"))
        padded = np.pad(data, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
        reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
        windows = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, rank + 2)))
        every = slice(None)
        strided = (every, every, *(slice(None, None, step) for step in (*strides, *dilations)))
        windows = windows[strided]
        # [batch, channels, *positions, *kernel]: the positions become samples.
        positions = np.indices((windows.shape[0], *windows.shape[2 : 2 + rank])).reshape(1 + rank, -1)
        chosen = positions[:, :: -(-positions.shape[1] // count)]
        index = (chosen[0], every, *chosen[1:])
        columns = windows[index]
        grouped: np.ndarray = columns.reshape(len(columns), self.groups, -1).swapaxes(0, 1)
        return grouped


def products_of(model: ir.Model) -> list[Product]:
    """The convolutions and products with matrices whose constant weights no other node reads."""
    products = []
    for node in model.graph:
        if node.op_type not in ("Conv", "Gemm", "MatMul") or node.domain or len(node.inputs) < 2:
            continue
        (data, weight), attributes = node.inputs[:2], node.attributes
        if data is None or data.const_value is not None:
            continue
        if weight is None or weight.const_value is None or len(weight.uses()) > 1:
            continue
        is_conv, rank = node.op_type == "Conv", len(weight.const_value.shape)
        if (
            (rank < 3 if is_conv else rank != 2)
            or attributes.get_string("auto_pad", "NOTSET") != "NOTSET"
            or attributes.get_int("transA", 0) != 0
        ):
            continue
        groups = attributes.get_int("group", 1) if is_conv else 1
        product = Product(node, weight, groups, not is_conv and not attributes.get_int("transB", 0))
        if product.rows(_array(weight)).shape[2] <= _MOST_INPUTS:
            products.append(product)
    return products


class WeightRounder:
    """Rounds the weights of a model's products again after onnxruntime's quantizers.

    Args:
        model: the float model.
        limits: the least and the largest integer of a weight.
    """

    def __init__(self, model: ir.Model, batches: Batches, limits: tuple[int, int]):
        self._model, self._batches, self._limits = model, batches, limits
        self._products = products_of(model)
        self._integers: dict[tuple[str, bytes], np.ndarray] = {}

    def round(self, quantized: ir.Model) -> None:
        """Replace the integers of weights by those that change the results of products least.

        Raises:
            InferenceError: onnxruntime refuses the float model.
        """
        from onnxruntime.quantization.quant_utils import TENSOR_NAME_QUANT_SUFFIX

        initializers = quantized.graph.initializers
        waiting: list[tuple[Product, ir.Value, tuple[str, bytes]]] = []
        for product in self._products:
            name = str(product.weight.name)
            value = initializers.get(name + TENSOR_NAME_QUANT_SUFFIX)
            if value is None or value.const_value is None:
                continue
            # The same weight is quantized in the same way when other nodes stay in float.
            key = name, _array(initializers[f"{name}_scale"]).tobytes()
            if key not in self._integers:
                waiting.append((product, value, key))
                continue
            value.const_value = ir.tensor(self._integers[key], name=value.name)
        while waiting:
            size, count = 0, 0
            while count < len(waiting) and (not count or size <= _MOMENT_BYTES):
                groups, _, inputs = waiting[count][0].rows(_array(waiting[count][0].weight)).shape
                size, count = size + 4 * groups * inputs**2, count + 1
            moments = input_moments(
                self._model, [product for product, _, _ in waiting[:count]], self._batches
            )
            for product, value, key in waiting[:count]:
                name, nearest = key[0], _array(value)
                scale, zero_point = (
                    product.rows(np.broadcast_to(_column(_array(initializers[part]), product), nearest.shape))
                    for part in (f"{name}_scale", f"{name}_zero_point")
                )
                steps = product.rows(_array(product.weight)).astype(np.float32) / scale + zero_point
                rows = round_rows(
                    steps, product.rows(nearest).astype(np.float32), moments[name], self._limits
                )
                self._integers[key] = product.array(rows).astype(nearest.dtype)
                value.const_value = ir.tensor(self._integers[key], name=value.name)
            waiting = waiting[count:]


def _array(value: ir.Value) -> np.ndarray:
    """The contents of an initializer."""
    if value.const_value is None:
        raise ValueError(f"'{value.name}' is no constant")
    return value.const_value.numpy()


def input_moments(model: ir.Model, products: Collection[Product], batches: Batches) -> dict[str, np.ndarray]:
    """The second moments of the inputs of products, summed over samples, by the names of weights.

    They are of shape [groups, inputs, inputs]: an entry is the sum of the products of two inputs.

    Raises:
        InferenceError: onnxruntime refuses the model.
    """
    names = list(dict.fromkeys(str(p.node.inputs[0].name) for p in products if p.node.inputs[0] is not None))
    # The further outputs must not appear in the caller's model.
    observed = model.clone()
    values = ir.convenience.create_value_mapping(observed.graph)
    observed.graph.outputs.clear()
    observed.graph.outputs.extend(values[name] for name in names)
    runner = Runner.of_model(observed)
    most_samples = -(-_SAMPLES // len(batches))
    moments: dict[str, np.ndarray] = {}
    for batch in batches:
        data = dict(zip(names, runner.arrays(batch), strict=True))
        for product in products:
            source = product.node.inputs[0]
            if source is not None and (array := data[str(source.name)]).size:
                samples = product.samples(array, most_samples).astype(np.float32)
                name, moment = str(product.weight.name), samples.swapaxes(1, 2) @ samples
                moments[name] = moments[name] + moment if name in moments else moment
    return moments


def _column(parameter: np.ndarray, product: Product) -> np.ndarray:
    """A number, or a parameter for each output, in a shape that broadcasts to the weight."""
    if parameter.size == 1:
        return parameter.reshape(())
    return (
        parameter
        if product.is_transposed
        else parameter.reshape(-1, *[1] * (_array(product.weight).ndim - 1))
    )


def factor_of_inverse(matrices: np.ndarray) -> np.ndarray:
    """The upper triangles U with inverses U.T @ U of symmetric positive definite matrices, `[groups, n, n]`.

    A factor from the last row on is the inverse of U: only a triangle is inverted.
    """
    triangles = np.linalg.cholesky(matrices[:, ::-1, ::-1])[:, ::-1, ::-1]
    return _inverse_of_upper(triangles)


def _inverse_of_upper(triangles: np.ndarray) -> np.ndarray:
    """The inverses of upper triangles, `[groups, n, n]`; numpy's own does not use the zeros."""
    half = triangles.shape[1] // 2
    if half < _BLOCK:
        return np.linalg.inv(triangles)
    inverse = np.zeros_like(triangles)
    first = inverse[:, :half, :half] = _inverse_of_upper(triangles[:, :half, :half])
    second = inverse[:, half:, half:] = _inverse_of_upper(triangles[:, half:, half:])
    inverse[:, :half, half:] = -first @ (triangles[:, :half, half:] @ second)
    return inverse


def round_rows(
    steps: np.ndarray, nearest: np.ndarray, moments: np.ndarray, limits: tuple[int, int]
) -> np.ndarray:
    """Integers for rows of weights.

    Args:
        steps: the weights divided by their scales, plus their zero points, [groups, outputs, inputs].
        nearest: the nearest integers, which rows keep whose products would not change less.
        moments: as from `input_moments`.
    """
    count = steps.shape[2]
    variances = np.diagonal(moments, axis1=1, axis2=2)
    if not np.isfinite(moments).all() or not variances.any():
        return nearest
    # The inputs of the largest numbers come first, as long as many others can make up for them.
    order = np.argsort(-variances, axis=1, kind="stable")
    columns = order[:, None, :]
    means = variances.mean(1)[:, None, None]
    damped = moments + np.where(means > 0, _DAMPING * means, 1) * np.eye(count, dtype=moments.dtype)
    ordered = np.take_along_axis(np.take_along_axis(damped, columns, 2), order[:, :, None], 1)
    factor = factor_of_inverse(ordered)
    remaining = np.take_along_axis(steps, np.broadcast_to(columns, steps.shape), 2)
    integers, errors = np.empty_like(remaining), np.empty_like(remaining)
    for start in range(0, count, _BLOCK):
        end = min(start + _BLOCK, count)
        for index in range(start, end):
            column = remaining[:, :, index]
            integers[:, :, index] = np.clip(np.rint(column), *limits)
            errors[:, :, index] = (column - integers[:, :, index]) / factor[:, None, index, index]
            later = errors[:, :, index, None] * factor[:, None, index, index + 1 : end]
            remaining[:, :, index + 1 : end] -= later
        remaining[:, :, end:] -= errors[:, :, start:end] @ factor[:, start:end, end:]
    inverse = np.broadcast_to(np.argsort(order, axis=1)[:, None, :], steps.shape)
    rounded = np.take_along_axis(integers, inverse, 2)

    def change(candidate: np.ndarray) -> np.ndarray:
        difference = candidate - steps
        return np.asarray(((difference @ damped) * difference).sum(2, keepdims=True))

    return np.where(change(rounded) < change(nearest), rounded, nearest)
