"""ONNX pass: folds arithmetic on each channel of a product into the product's weights and bias.

    Conv, ConvTranspose, Gemm or MatMul -> Mul, Div, Add, Sub or BatchNormalization by constants

1. The product has no other reader, and is no output of a graph.
2. Scaled weights must be a constant without another reader; a bias must be constant or absent.
3. The constant has one number, or one for each channel. A MatMul takes no bias, so the offset of a
   BatchNormalization behind it becomes an Add; the `beta` of a Gemm is multiplied into its bias.
4. New weights are computed when they are written, one at a time.
5. A Reshape between a linear layer and the BatchNormalization of matrices keeps the last dimension.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

import numpy as np
import onnx_ir as ir

from ..constants.initializers import Initializers
from ..constants.reused_memory import empty
from ..node_pass import ConstantPass, removable_producer, replace_by_value, replace_node
from ..pass_order import Run
from .scaled_weights import scaled_blocks

_FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
FOLDED = ("Add", "BatchNormalization", "Div", "Mul", "Sub")
"""The operators that the pass removes."""


@dataclasses.dataclass(frozen=True)
class _WeightedProduct:
    """A product with constant weights.

    Attributes:
        channels: the number of output channels.
        axis: the dimension of the result that has the channels.
    """

    node: ir.Node
    weight: ir.Value
    dtype: ir.DataType
    shape: tuple[int, ...]
    channels: int
    axis: int
    rank: int | None

    @property
    def is_scalable(self) -> bool:
        return len(self.weight.uses()) == 1 and not self.weight.is_graph_output()

    @property
    def bias(self) -> ir.Value | None:
        return self.node.inputs[2] if len(self.node.inputs) > 2 else None


class FoldScales(ConstantPass):
    """Folds arithmetic by channel into the weights of products."""

    runs = (
        Run(
            "full",
            after={
                "FuseAttention": "Attention takes the scale of its scores, which would move into weights."
            },
        ),
    )

    def __init__(self, initializers: Initializers, op_types: Collection[str] = FOLDED):
        """Make the pass.

        Args:
            op_types: the operators that are folded, of `FOLDED`.
        """
        super().__init__(initializers)
        self.op_types = op_types

    def rewrite(self, node: ir.Node) -> bool:
        """Fold a node into the product before it."""
        if node.op_type == "BatchNormalization":
            return self._fold_normalization(node)
        folded = self._fold_arithmetic(node)
        if folded is None:
            return False
        self._replace(node, folded)
        return True

    def _replace(self, node: ir.Node, folded: _WeightedProduct) -> None:
        """Let the product's result replace that of a node."""
        result = folded.node.outputs[0]
        # The file may state the shape of the folded node only.
        if result.shape is None:
            result.shape = node.outputs[0].shape
        replace_by_value(node, result)

    def _fold_arithmetic(self, node: ir.Node) -> _WeightedProduct | None:
        a, b = node.inputs
        for operand, constant in ((a, b), (b, a)):
            # `c / x` and `c - x` are no scales of x.
            if constant is a and node.op_type in ("Div", "Sub"):
                return None
            product = self._product(operand, node) if self.initializers.is_constant(constant) else None
            if product is None:
                continue
            assert constant is not None
            if node.op_type in ("Mul", "Div"):
                folded = self._scale(product, constant, node.op_type == "Div")
            else:
                folded = self._shift(product, constant, -1.0 if node.op_type == "Sub" else 1.0)
            return product if folded else None
        return None

    def _fold_normalization(self, node: ir.Node) -> bool:
        """Fold a normalization by constant statistics; behind a MatMul an Add of the offset stays."""
        data = node.inputs[0]
        product = self._product(data, node)
        shape = data.shape if data is not None else None
        reshape = None if product is not None else removable_producer(node, data, "Reshape")
        if reshape is not None:
            product = self._product(reshape.inputs[0], reshape)
        used = [value for value in node.outputs[1:] if value.uses() or value.is_graph_output()]
        if product is None or used or node.attributes.get_int("training_mode", 0) != 0:
            return False
        # Rows of channels stay rows of channels in matrices only: others have channels in dimension 1.
        if (reshape is not None or product.node.op_type == "MatMul") and (
            product.axis != -1 or shape is None or len(shape) != 2 or shape[1] != product.channels
        ):
            return False
        parameters = [value for value in node.inputs[1:] if value is not None]
        if len(parameters) != 4 or not all(map(self.initializers.is_constant, parameters)):
            return False
        epsilon = node.attributes.get_float("epsilon", 1e-5)
        scale, offset, mean, variance = (_array(value).astype(np.float64) for value in parameters)
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + epsilon)
        if factor.shape != (product.channels,):
            return False
        shift = offset - mean * factor
        if product.node.op_type == "MatMul":
            if not self._fold_in(product, factor, None):
                return False
            stem = f"{node.name or node.op_type}_offset"
            addend = self.initializers.make(shift.astype(product.dtype.numpy()), stem)
            replace_node(node, "Add", [data, addend])
            return True
        if not self._fold_in(product, factor, shift):
            return False
        if reshape is None:
            self._replace(node, product)
        else:
            replace_by_value(node, reshape.outputs[0])
        return True

    def _product(self, value: ir.Value | None, reader: ir.Node) -> _WeightedProduct | None:
        """The product that computes a value, if nothing else reads it."""
        node = removable_producer(reader, value, *_PRODUCTS)
        if node is None or len(node.inputs) < 2:
            return None
        weight, rank = node.inputs[1], None
        if weight is None or not self.initializers.is_constant(weight) or weight.const_value is None:
            return None
        dtype, shape = weight.const_value.dtype, tuple(weight.const_value.shape.numpy())
        if dtype not in _FLOATS or len(shape) < 2:
            return None
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is not None and not self.initializers.is_constant(bias):
            return None
        axis = 1
        if node.op_type == "Conv":
            channels, rank = shape[0], len(shape)
        # Its weight is [input channels, output channels / groups, ...].
        elif node.op_type == "ConvTranspose":
            channels, rank = shape[1] * node.attributes.get_int("group", 1), len(shape)
        else:
            is_transposed = node.op_type == "Gemm" and node.attributes.get_int("transB", 0) == 1
            channels, axis = shape[0 if is_transposed else -1], -1
            data = node.inputs[0]
            data_shape = node.outputs[0].shape or (data.shape if data is not None else None)
            rank = 2 if node.op_type == "Gemm" else None if data_shape is None else len(data_shape)
            if node.op_type == "MatMul" and len(shape) != 2:
                return None
        return _WeightedProduct(node, weight, dtype, shape, channels, axis, rank)

    def _scale(self, product: _WeightedProduct, constant: ir.Value, divides: bool) -> bool:
        """Multiply or divide the weights and the bias."""
        numbers = _channel_numbers(product, constant)
        if numbers is None:
            return False
        wide = numbers.astype(np.float64)
        with np.errstate(all="ignore"):
            return self._fold_in(product, 1.0 / wide if divides else wide, None)

    def _shift(self, product: _WeightedProduct, constant: ir.Value, sign: float) -> bool:
        """Add a constant to the bias."""
        numbers = _channel_numbers(product, constant)
        if product.node.op_type == "MatMul" or numbers is None:
            return False
        return self._fold_in(product, None, numbers.astype(np.float64) * sign)

    def _fold_in(
        self, product: _WeightedProduct, factor: np.ndarray | None, shift: np.ndarray | None
    ) -> bool:
        """Multiply weights and bias by a factor, then add to the bias; each number is rounded once."""
        if factor is not None and not (product.is_scalable and np.isfinite(factor).all()):
            return False
        node, numpy_dtype, bias = product.node, product.dtype.numpy(), product.bias
        if factor is not None:
            scale = factor

            def compute(weight: np.ndarray) -> np.ndarray:
                return _multiply_in_float64(*_output_factors(node, weight, scale, product)).reshape(
                    weight.shape
                )

            def blocks(weight: np.ndarray) -> Iterator[np.ndarray]:
                return scaled_blocks(*_output_factors(node, weight, scale, product), _multiply_in_float64)

            weight = self.initializers.derive(
                [product.weight], compute, product.dtype, product.shape, suffix="scaled", blocks=blocks
            )
            node.replace_input_with(1, weight)
        if bias is None and shift is None:
            return True
        total = np.zeros(product.channels) if bias is None else _array(bias).astype(np.float64)
        if factor is not None:
            total = total * factor
        if shift is not None:
            # Gemm multiplies its third input by beta, which must not multiply the added constant.
            beta = node.attributes.pop("beta", None)
            total = total * (1.0 if beta is None else beta.as_float()) + shift
            stem = f"{node.name or node.op_type}_bias"
        else:
            stem = (bias.name if bias is not None else None) or "bias"
        new_bias = self.initializers.make(total.astype(numpy_dtype), stem)
        if len(node.inputs) < 3:
            node.resize_inputs(3)
        node.replace_input_with(2, new_bias)
        return True


def _array(value: ir.Value) -> np.ndarray:
    assert value.const_value is not None
    return value.const_value.numpy()


def _channel_numbers(product: _WeightedProduct, constant: ir.Value) -> np.ndarray | None:
    """The numbers of a constant: one, or one for each channel; None if it has others or raises the rank."""
    assert constant.const_value is not None
    shape = tuple(constant.const_value.shape.numpy())
    if constant.const_value.dtype != product.dtype:
        return None
    if product.node.op_type in ("Conv", "ConvTranspose") or product.rank is not None:
        if product.rank is None or len(shape) > product.rank:
            return None
    # The constant might raise the rank, which is unknown.
    elif len(shape) > 1:
        return None
    trailing_axes = 0 if product.axis == -1 else (product.rank or 2) - 2
    channel_axis = len(shape) - 1 - trailing_axes
    if any(size != 1 for axis, size in enumerate(shape) if axis != channel_axis):
        return None
    numbers = _array(constant).reshape(-1)
    return numbers if numbers.size in (1, product.channels) else None


def _output_factors(
    node: ir.Node, weight: np.ndarray, factor: np.ndarray, product: _WeightedProduct
) -> tuple[np.ndarray, np.ndarray]:
    """The weights and the factors of their output channels, in shapes that broadcast."""
    if factor.size == 1:
        return weight, factor.reshape(())
    if node.op_type == "Conv" or (node.op_type == "Gemm" and node.attributes.get_int("transB", 0) == 1):
        return weight, factor.reshape(-1, *[1] * (weight.ndim - 1))
    if node.op_type == "ConvTranspose":
        # Each group has its own output channels, so they must be separated first.
        groups = product.channels // weight.shape[1]
        grouped = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
        return grouped, factor.reshape(groups, 1, -1, 1)
    return weight, factor


def _multiply_in_float64(weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """The product of weights and factors, computed as float64 and rounded once, without a copy in float64."""
    result = empty(weight.shape, weight.dtype)
    scaled: np.ndarray = np.multiply(weight, factor, out=result, dtype=np.float64, casting="unsafe")
    return scaled
