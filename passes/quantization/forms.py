"""The nodes that read a quantized weight, at each opset."""

from __future__ import annotations

import enum
from collections.abc import Callable

import onnx_ir as ir

from ...registration import DataType, GraphContext
from ...registration.runtimes import has_kernel
from ...registration.schemas import operator_schema
from .blocks import Scheme
from .quantized_weight import QuantizedWeight

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""


class Form(enum.Enum):
    """How the weight of a product is stored and read; the value is its name in summaries."""

    BLOCKS = "DequantizeLinear with a scale per block"
    CHANNELS = "DequantizeLinear with a scale per channel"
    ARITHMETIC = "Cast and Mul with a scale per block"
    MATMUL_N_BITS = "MatMulNBits with a scale per block"


def form_of(scheme: Scheme, opset: int, domains: tuple[str, ...] = ()) -> Form:
    """The form at an opset: DequantizeLinear where its schema and runtimes take elements of this type.

    Args:
        domains: operator domains that the target takes besides ONNX's own.
    """
    if MICROSOFT in domains:
        return Form.MATMUL_N_BITS
    schema = operator_schema("DequantizeLinear", opset)
    element = DataType[f"{'' if scheme.symmetric else 'U'}INT{scheme.bits}"]
    is_taken = schema is not None and element in schema.inputs[0].dtypes and "axis" in schema.attributes
    if schema is None or not is_taken or not has_kernel("DequantizeLinear", element, opset):
        return Form.ARITHMETIC
    return Form.BLOCKS if "block_size" in schema.attributes else Form.CHANNELS


class QuantizedStorage:
    """The initializers of one quantized weight. Each is added when a form first needs it.

    Args:
        add: adds an initializer to the model, from its name and contents.
    """

    def __init__(self, weight: QuantizedWeight, add: Callable[[str, ir.TensorProtocol], ir.Value]):
        self.weight = weight
        self._add = add
        self._initializers: dict[str, ir.Value] = {}

    def emit_dequantize(self, g: GraphContext) -> ir.Value:
        """The matrix by DequantizeLinear, in the shape of the initializer."""
        weight, scheme = self.weight, self.weight.scheme
        schema = operator_schema("DequantizeLinear", g.opset)
        assert schema is not None
        # Before opset 19 scales are FLOAT only.
        takes = weight.dtype in schema.inputs[1].dtypes
        elements = self._value("quantized", weight.elements)
        scales = self._scales(g, weight.dtype if takes else DataType.FLOAT, oriented=True)
        zeros = None
        if not scheme.symmetric:
            zeros = self._value("zero_point", lambda: weight.zeros(oriented=True))
        block = {} if weight.per_channel else {"block_size": weight.block_size}
        axis = 1 - weight.axis if weight.per_channel else weight.axis
        result = g.op("DequantizeLinear", elements, scales, zeros, outputs=1, axis=axis, **block)
        return result if takes else g.op("Cast", result, to=weight.dtype)

    def emit_arithmetic(self, g: GraphContext) -> ir.Value:
        """The matrix by arithmetic on bytes, in the shape of the initializer."""
        weight = self.weight
        padded = self._arithmetic(g, self._bytes(), self._scales(g, weight.dtype), self._zeros())
        shape = [weight.rows, weight.blocks * weight.block_size]
        matrix = self._remove_padding(g, g.op("Reshape", padded, shape), 1)
        return matrix if weight.axis == 1 else g.op("Transpose", matrix, perm=[1, 0])

    def emit_gather(self, g: GraphContext, indices: ir.Value, rank: int) -> ir.Value:
        """The rows at some indices; only these are computed.

        Args:
            rank: of the indices.
        """
        weight = self.weight
        zeros = self._zeros()
        rows = self._arithmetic(
            g,
            g.op("Gather", self._bytes(), indices, axis=0),
            g.op("Gather", self._scales(g, weight.dtype), indices, axis=0),
            None if zeros is None else g.op("Gather", zeros, indices, axis=0),
            rank,
        )
        shape = [0] * rank + [weight.blocks * weight.block_size]
        return self._remove_padding(g, g.op("Reshape", rows, shape), rank)

    def emit_product(self, g: GraphContext, x: ir.Value) -> ir.Value:
        """The product of a value and the matrix by MatMulNBits."""
        weight = self.weight
        zeros = None if weight.scheme.symmetric else self._value("zero_points", weight.zero_bytes)
        inputs = [x, self._bytes(), self._scales(g, weight.dtype), *([] if zeros is None else [zeros])]
        attributes = {
            "K": weight.columns,
            "N": weight.rows,
            "bits": weight.scheme.bits,
            "block_size": weight.block_size,
        }
        result = g.op(f"{MICROSOFT}::MatMulNBits", *inputs, outputs=1, **attributes)
        result.type = ir.TensorType(weight.dtype)
        return result

    def _arithmetic(
        self, g: GraphContext, data: ir.Value, scales: ir.Value, zeros: ir.Value | None, rank: int = 1
    ) -> ir.Value:
        """`(codes - zeros) * scales` of blocks `[…, blocks, block size]`.

        Args:
            rank: the dimensions before the blocks.
        """
        weight = self.weight
        # Arithmetic in the floating-point type of the weight exists at every opset.
        codes = g.op("Cast", data, to=weight.dtype)
        if weight.scheme.bits == 4:
            # ONNX has no shift of floats: the high four bits are the whole part of a division by 16.
            high = g.op("Floor", g.op("Mul", codes, 1 / 16))
            low = g.op("Sub", codes, g.op("Mul", high, 16.0))
            pair = [g.op("Unsqueeze", part, axes=[rank + 2]) for part in (low, high)]
            shape = [0] * (rank + 1) + [weight.block_size]
            codes = g.op("Reshape", g.op("Concat", *pair, axis=rank + 2), shape)
        if zeros is None:
            centered = g.op("Sub", codes, float(weight.scheme.middle))
        else:
            zero = g.op("Cast", g.op("Unsqueeze", zeros, axes=[rank + 1]), to=weight.dtype)
            centered = g.op("Sub", codes, zero)
        return g.op("Mul", centered, g.op("Unsqueeze", scales, axes=[rank + 1]))

    def _remove_padding(self, g: GraphContext, value: ir.Value, axis: int) -> ir.Value:
        """The value without the padding of rows to whole blocks."""
        weight = self.weight
        if weight.columns == weight.blocks * weight.block_size:
            return value
        return g.op("Slice", value, starts=[0], ends=[weight.columns], axes=[axis])

    def _bytes(self) -> ir.Value:
        return self._value("quantized_bytes", self.weight.rows_of_bytes)

    def _zeros(self) -> ir.Value | None:
        if self.weight.scheme.symmetric:
            return None
        return self._value("zero_point_bytes", lambda: self.weight.zeros(oriented=False))

    def _scales(self, g: GraphContext, dtype: ir.DataType, *, oriented: bool = False) -> ir.Value:
        key = "scale" if oriented else "scales"
        is_ggml = self.weight.scheme.is_ggml
        stored_dtype = self.weight.scale_dtype if is_ggml else dtype
        scales = self._value(key, lambda: self.weight.scales(stored_dtype, oriented=oriented))
        # The scales of Q4_0 stay FLOAT16 in the file.
        return scales if stored_dtype == dtype else g.op("Cast", scales, to=dtype)

    def _value(self, suffix: str, tensor: Callable[[], ir.TensorProtocol]) -> ir.Value:
        if suffix not in self._initializers:
            self._initializers[suffix] = self._add(f"{self.weight.name}_{suffix}", tensor())
        return self._initializers[suffix]
