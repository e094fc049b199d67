"""How weights and activations are quantized: the choices of a caller, and what an opset can express."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import onnx_ir as ir

from ...registration import UsageError

FORMATS = ("qdq", "qoperator")
ACTIVATIONS = ("int8", "uint8", "int16", "uint16")
METHODS = ("minmax", "entropy", "percentile")
ROUNDINGS = ("calibrated", "nearest")
LOSSES = ("labels", "error")
_PER_CHANNEL_OPSET = 13
"""The first opset whose DequantizeLinear has an axis."""
FIRST_16_BIT_OPSET = 21
"""The first opset whose QuantizeLinear has 16-bit types; below, it is the operator of com.microsoft."""
_HALF_PRECISION_OPSET = 19
"""The first opset whose QuantizeLinear and DequantizeLinear have the type FLOAT16."""
_LEAST_OPSET = 11
"""onnxruntime's quantizers write no lower opset."""

_OF_QUANTIZED_ACTIVATIONS = (
    "QuantizeLinear",
    "DynamicQuantize",
    "QLinear",
    "QGemm",
    "QAttention",
    "ConvInteger",
)
"""How the names of operators begin that only models with quantized activations have."""


@dataclasses.dataclass(frozen=True)
class QuantizationScheme:
    """How weights and activations are quantized.

    Attributes:
        form: "qdq" writes pairs of QuantizeLinear and DequantizeLinear, "qoperator" operators of integers.
        activations: the type of activations, "int8", "uint8", "int16" or "uint16".
        weights: the type of weights, "int8" or "uint8".
        per_channel: whether each output channel of a weight has its own scale.
        symmetric: whether the zero points of activations are 0, or the middle of an unsigned type.
        method: how ranges are chosen, "minmax", "entropy" or "percentile".
        exclude: operators and nodes that stay in float, by name.
        equalize: whether the ranges of weights are equalized between convolutions, see `EqualizeChannels`.
        reduce_range: whether weights have 7 bits, for processors whose sums of two products have 16 bits.
        weight_rounding: "calibrated" chooses the integers of weights so that products with the calibration
            data change least, "nearest" takes the nearest ones.
        max_loss: the most that may be lost on batches that are not used for calibration; the nodes that lose
            most stay in float. None for no limit.
        loss: what `max_loss` limits: "labels", the share of samples with another largest entry, or "error",
            the relative error. Outputs without such entries have an error in any case.
    """

    form: str = "qdq"
    activations: str = "int8"
    weights: str = "int8"
    per_channel: bool = False
    symmetric: bool = False
    method: str = "minmax"
    exclude: Collection[str] = ()
    equalize: bool = False
    reduce_range: bool = False
    weight_rounding: str = "calibrated"
    max_loss: float | None = None
    loss: str = "labels"

    @classmethod
    def of(cls, fields: Mapping[str, Any], preferred: Mapping[str, Any]) -> QuantizationScheme:
        """A scheme with some fields; the others are those that a target prefers, or the defaults.

        Raises:
            UsageError: there is no such field.
        """
        unknown = fields.keys() - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise UsageError(f"quantize has no argument {', '.join(sorted(unknown))}")
        return cls(**{**{name: value for name, value in preferred.items() if value is not None}, **fields})

    @property
    def limits_of_weights(self) -> tuple[int, int]:
        """The least and the largest integer of a weight, as onnxruntime's quantizers write them."""
        if self.weights == "int8":
            return (-64, 64) if self.reduce_range else (-127, 127)
        return 0, 127 if self.reduce_range else 255

    def check(self, model: ir.Model, opset: int | None) -> None:
        """Refuse a scheme that is unknown, or that the opset of a model cannot express.

        Raises:
            UsageError: likewise.
        """
        for name, value, choices in (
            ("format", self.form, FORMATS),
            ("activations", self.activations, ACTIVATIONS),
            ("weights", self.weights, ACTIVATIONS[:2]),
            ("method", self.method, METHODS),
            ("weight_rounding", self.weight_rounding, ROUNDINGS),
            ("loss", self.loss, LOSSES),
        ):
            if value not in choices:
                raise UsageError(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not '{value}'")
        if self.max_loss is None and self.loss != LOSSES[0]:
            raise UsageError(f"loss={self.loss!r} says what max_loss limits: pass max_loss, too")
        if self.max_loss is not None and not self.max_loss >= 0:
            raise UsageError(f"max_loss must be 0 or more, not {self.max_loss}")
        if opset is None or opset < _LEAST_OPSET:
            raise UsageError(f"quantization needs opset {_LEAST_OPSET} or higher, and the model has {opset}")
        if self.per_channel and opset < _PER_CHANNEL_OPSET:
            raise UsageError(
                f"scales per channel need opset {_PER_CHANNEL_OPSET} or higher, and the model has {opset}"
            )
        if self.form == "qoperator" and self.activations.endswith("16"):
            raise UsageError("integer operators have no activations of 16 bits: use the format qdq")
        for node in model.graph:
            if node.op_type.startswith(_OF_QUANTIZED_ACTIVATIONS):
                raise UsageError(
                    f"activations of the model are quantized already, by {node.op_type}: pass the float model"
                )
        names = {name for node in model.graph for name in (node.name, node.op_type)}
        unknown = [name for name in self.exclude if name not in names]
        if unknown:
            raise UsageError(f"the model has no operator or node {', '.join(unknown)}")

    def check_types(self, nodes: Iterable[ir.Node], opset: int | None) -> None:
        """Refuse nodes of half precision where no operator quantizes it.

        Args:
            nodes: those to quantize.

        Raises:
            UsageError: likewise.
        """
        if self.form == "qdq" and opset is not None and opset >= _HALF_PRECISION_OPSET:
            return
        for node in nodes:
            if any(value is not None and value.dtype == ir.DataType.FLOAT16 for value in node.inputs):
                raise UsageError(
                    f"{node.op_type} ('{node.name}') computes in half precision, which is quantized only in "
                    f"the format qdq from opset {_HALF_PRECISION_OPSET} on: pass the float32 model"
                )
