"""Target pass: folds what is done to each channel of a product into the product's weights and bias.

    Conv, ConvTranspose, Gemm or MatMul -> Mul, Div, Add, Sub or BatchNormalization by constants

1. The product has no other reader, and is no output of a graph.
2. Weights that are scaled are a constant without another reader; a bias is a constant or absent.
3. The constant has one number, or one for each channel. A MatMul takes no bias; what Gemm's `beta` scales
   becomes scaled.
4. New weights are computed when they are written, one at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

import numpy as np
import onnx_ir as ir

from ..constants.initializers import Initializers
from ..constants.reused_memory import empty
from ..node_pass import ConstantPass, maker_for, replace_by_value
from .scaled_weights import scaled_blocks

_FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
FOLDED = ("Add", "BatchNormalization", "Div", "Mul", "Sub")
"""The operators that the pass removes."""


@dataclasses.dataclass(frozen=True)
class _Product:
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
    def bias(self) -> ir.Value | None:
        return self.node.inputs[2] if len(self.node.inputs) > 2 else None


class FoldScales(ConstantPass):
    """Folds arithmetic by channel into the weights of products."""

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
            folded = self._fold_normalization(node)
        else:
            folded = self._fold_arithmetic(node)
        if folded is None:
            return False
        result = folded.node.outputs[0]
        if result.shape is None:
            result.shape = node.outputs[0].shape
        replace_by_value(node, result)
        return True

    def _fold_arithmetic(self, node: ir.Node) -> _Product | None:
        a, b = node.inputs
        for operand, other in ((a, b), (b, a)):
            if other is a and node.op_type in ("Div", "Sub"):
                return None
            product = self._product(operand, node) if self.known.is_constant(other) else None
            if product is None:
                continue
            assert other is not None
            if node.op_type in ("Mul", "Div"):
                folded = self._scale(product, other, node.op_type == "Div")
            else:
                folded = self._shift(product, other, -1.0 if node.op_type == "Sub" else 1.0)
            return product if folded else None
        return None

    def _fold_normalization(self, node: ir.Node) -> _Product | None:
        """Fold a normalization by constant statistics; return the product that has it then."""
        product = self._product(node.inputs[0], node)
        used = [value for value in node.outputs[1:] if value.uses() or value.is_graph_output()]
        training = node.attributes.get("training_mode")
        if product is None or used or (training is not None and training.as_int()):
            return None
        if product.node.op_type == "MatMul":
            return None
        parameters = [value for value in node.inputs[1:] if value is not None]
        if len(parameters) != 4 or not all(map(self.known.is_constant, parameters)):
            return None
        epsilon = node.attributes.get("epsilon")
        eps = 1e-5 if epsilon is None else epsilon.as_float()
        scale, offset, mean, variance = (_array(value).astype(np.float64) for value in parameters)
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + eps)
        if factor.shape != (product.channels,):
            return None
        return product if self._fold_in(product, factor, offset - mean * factor) else None

    def _product(self, value: ir.Value | None, reader: ir.Node) -> _Product | None:
        """The product that makes a value, if nothing else reads it."""
        node = maker_for(reader, value, *_PRODUCTS)
        if node is None or len(node.inputs) < 2:
            return None
        weight, rank = node.inputs[1], None
        if weight is None or not self.known.is_constant(weight) or weight.const_value is None:
            return None
        dtype, shape = weight.const_value.dtype, tuple(weight.const_value.shape.numpy())
        if dtype not in _FLOATS or len(shape) < 2:
            return None
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is not None and not self.known.is_constant(bias):
            return None
        axis, group = 1, node.attributes.get("group")
        if node.op_type == "Conv":
            channels, rank = shape[0], len(shape)
        elif node.op_type == "ConvTranspose":
            channels, rank = shape[1] * (1 if group is None else group.as_int()), len(shape)
        else:
            turned = node.op_type == "Gemm" and _integer(node, "transB")
            channels, axis = shape[0 if turned else -1], -1
            data = node.inputs[0]
            known = node.outputs[0].shape or (data.shape if data is not None else None)
            rank = 2 if node.op_type == "Gemm" else None if known is None else len(known)
            if node.op_type == "MatMul" and len(shape) != 2:
                return None
        return _Product(node, weight, dtype, shape, channels, axis, rank)

    def _may_scale(self, product: _Product) -> bool:
        return len(product.weight.uses()) == 1 and not product.weight.is_graph_output()

    def _scale(self, product: _Product, other: ir.Value, divides: bool) -> bool:
        """Multiply or divide the weights and the bias."""
        numbers = _by_channel(product, other)
        if numbers is None:
            return False
        wide = numbers.astype(np.float64)
        with np.errstate(all="ignore"):
            return self._fold_in(product, 1.0 / wide if divides else wide, None)

    def _shift(self, product: _Product, other: ir.Value, sign: float) -> bool:
        """Add a constant to the bias."""
        numbers = _by_channel(product, other)
        if product.node.op_type == "MatMul" or numbers is None:
            return False
        return self._fold_in(product, None, numbers.astype(np.float64) * sign)

    def _fold_in(self, product: _Product, factor: np.ndarray | None, shift: np.ndarray | None) -> bool:
        """Multiply weights and bias by a factor, then add to the bias; each number is rounded once."""
        if factor is not None and not (self._may_scale(product) and np.isfinite(factor).all()):
            return False
        node, kind, bias = product.node, product.dtype.numpy(), product.bias
        if factor is not None:
            scale = factor

            def compute(weight: np.ndarray) -> np.ndarray:
                return _multiplied(*_by_output(node, weight, scale, product)).reshape(weight.shape)

            def blocks(weight: np.ndarray) -> Iterator[np.ndarray]:
                return scaled_blocks(*_by_output(node, weight, scale, product), _multiplied)

            weight = self.known.derive(
                [product.weight], compute, product.dtype, product.shape, suffix="scaled", blocks=blocks
            )
            node.replace_input_with(1, weight)
        if bias is None and shift is None:
            return True
        total = np.zeros(product.channels) if bias is None else _array(bias).astype(np.float64)
        if factor is not None:
            total = total * factor
        if shift is not None:
            # Gemm multiplies its third input by beta, which must not multiply what is added.
            beta = node.attributes.pop("beta", None)
            total = total * (1.0 if beta is None else beta.as_float()) + shift
            stem = f"{node.name or node.op_type}_bias"
        else:
            stem = (bias.name if bias is not None else None) or "bias"
        made = self.known.make(total.astype(kind), stem)
        if len(node.inputs) < 3:
            node.resize_inputs(3)
        node.replace_input_with(2, made)
        return True


def _integer(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    return 0 if attribute is None else attribute.as_int()


def _array(value: ir.Value) -> np.ndarray:
    assert value.const_value is not None
    array: np.ndarray = value.const_value.numpy()
    return array


def _by_channel(product: _Product, other: ir.Value) -> np.ndarray | None:
    """The numbers of a constant: one, or one for each channel; None if it has others or raises the rank."""
    assert other.const_value is not None
    shape = tuple(other.const_value.shape.numpy())
    if other.const_value.dtype != product.dtype:
        return None
    if product.node.op_type in ("Conv", "ConvTranspose") or product.rank is not None:
        if product.rank is None or len(shape) > product.rank:
            return None
    elif len(shape) > 1:
        return None
    behind = 0 if product.axis == -1 else (product.rank or 2) - 2
    at = len(shape) - 1 - behind
    if any(size != 1 for axis, size in enumerate(shape) if axis != at):
        return None
    numbers = _array(other).reshape(-1)
    return numbers if numbers.size in (1, product.channels) else None


def _by_output(
    node: ir.Node, weight: np.ndarray, factor: np.ndarray, product: _Product
) -> tuple[np.ndarray, np.ndarray]:
    """The weights and the factors of their output channels, in shapes that broadcast."""
    if factor.size == 1:
        return weight, factor.reshape(())
    if node.op_type == "Conv" or (node.op_type == "Gemm" and _integer(node, "transB")):
        return weight, factor.reshape(-1, *[1] * (weight.ndim - 1))
    if node.op_type == "ConvTranspose":
        groups = product.channels // weight.shape[1]
        apart = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
        return apart, factor.reshape(groups, 1, -1, 1)
    return weight, factor


def _multiplied(weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """The product of weights and factors, computed as float64 and rounded once, without a copy in float64."""
    result = empty(weight.shape, weight.dtype)
    value_of_result: np.ndarray = np.multiply(weight, factor, out=result, dtype=np.float64, casting="unsafe")
    return value_of_result
