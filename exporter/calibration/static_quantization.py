"""Quantizes weights and activations with onnxruntime's calibrators and quantizers."""

from __future__ import annotations

import dataclasses
import io
import logging
import pathlib
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
from onnx_ir.passes.common import IdentityEliminationPass

from ...passes.realizers import EqualizeChannels, FoldBatchNorm
from ...registration import InferenceError, OpsettaError, UsageError
from ...registration.printable import one_line
from ..editing.rewrite import rewrite
from ..files.reading import ModelFolder, bounds_of, read_model, to_ir
from ..files.writing import save
from .accuracy import OutputAccuracy, TensorLoss, output_accuracy, tensor_losses
from .batches import Batches

if TYPE_CHECKING:
    from onnxruntime.quantization import QuantType


FORMATS = ("qdq", "qoperator")
ACTIVATIONS = ("int8", "uint8", "int16", "uint16")
METHODS = ("minmax", "entropy", "percentile")
_PER_CHANNEL_OPSET = 13
"""The first opset whose DequantizeLinear has an axis."""
_16_BIT_OPSET = 21
"""The first opset whose QuantizeLinear has 16-bit types; below, it is the operator of com.microsoft."""
_LEAST_OPSET = 11
"""onnxruntime's quantizers write no lower opset."""


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
        ):
            if value not in choices:
                raise UsageError(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not '{value}'")
        if opset is None or opset < _LEAST_OPSET:
            raise UsageError(f"quantization needs opset {_LEAST_OPSET} or higher, and the model has {opset}")
        if self.per_channel and opset < _PER_CHANNEL_OPSET:
            raise UsageError(
                f"scales per channel need opset {_PER_CHANNEL_OPSET} or higher, and the model has {opset}"
            )
        names = {name for node in model.graph for name in (node.name, node.op_type)}
        unknown = [name for name in self.exclude if name not in names]
        if unknown:
            raise UsageError(f"the model has no operator or node {', '.join(unknown)}")


@dataclasses.dataclass(frozen=True)
class QuantizationReport:
    """What a quantized model loses on batches that it was not calibrated with.

    Attributes:
        outputs: the error of each output.
        tensors: the losses of tensors, the worst first; empty for the form "qoperator".
        calibrated, measured: numbers of batches.
    """

    outputs: tuple[OutputAccuracy, ...]
    tensors: tuple[TensorLoss, ...]
    calibrated: int
    measured: int


def quantize_model(
    model: ir.Model, scheme: QuantizationScheme, batches: Batches, held_out: Batches, trusted: bool
) -> tuple[ir.Model, QuantizationReport]:
    """A quantized copy of a model with its batch norms folded, and its errors.

    Raises:
        UsageError: the scheme does not fit the model.
        InferenceError: onnxruntime is not installed, or cannot run or quantize the model.
    """
    opset = model.graph.opset_imports.get("", model.graph.opset_imports.get("ai.onnx"))
    scheme.check(model, opset)
    passes = [FoldBatchNorm(), EqualizeChannels()] if scheme.equalize else [FoldBatchNorm()]
    folded = rewrite(model, passes, trusted)
    # onnxruntime finds nodes to exclude by their names.
    for position, node in enumerate(folded.graph):
        node.name = node.name or f"{node.op_type}_{position}"
    if scheme.form == "qoperator":
        _separate_operands_of_where(folded.graph)
    with tempfile.TemporaryDirectory(prefix="opsetta-") as name:
        folder = pathlib.Path(name)
        original, quantized = folder / "float.onnx", folder / "quantized.onnx"
        save(folded, original)
        with _quiet_quantizer():
            _quantize_file(original, quantized, folded.graph, scheme, batches)
        bounds = bounds_of(True)
        message = read_model(quantized, bounds)
        # The quantizer removes values, but not their entries in value_info.
        message.graph.ClearField("value_info")
        result = to_ir(message, ModelFolder.of(quantized), bounds)
        # The temporary files go away, so the weights are read now.
        ir.external_data.load_to_model(result)
        IdentityEliminationPass()(result)
        outputs = output_accuracy(folded, result, held_out)
        tensors: tuple[TensorLoss, ...] = ()
        if scheme.form == "qdq":
            with _quiet_quantizer():
                tensors = tensor_losses(original, quantized, folder, held_out)
    result.producer_name, result.producer_version = model.producer_name, model.producer_version
    return result, QuantizationReport(outputs, tensors, len(batches), len(held_out))


def _separate_operands_of_where(graph: ir.Graph) -> None:
    """Read the float operands of each Where through Identity.

    onnxruntime copies Where also where its operand is a result that became an integer, and then writes no
    float value for it. For Identity, it writes one.
    """
    for node in [node for node in graph if node.op_type == "Where" and not node.domain]:
        for index, value in enumerate(node.inputs):
            if index and value is not None and value.producer() is not None:
                identity = ir.node("Identity", [value], name=f"{node.name}_operand_{index}")
                identity.outputs[0].type, identity.outputs[0].shape = value.type, value.shape
                graph.insert_before(node, identity)
                node.replace_input_with(index, identity.outputs[0])


def _quantize_file(
    original: pathlib.Path,
    quantized: pathlib.Path,
    graph: ir.Graph,
    scheme: QuantizationScheme,
    batches: Batches,
) -> None:
    opset = graph.opset_imports[""]
    from onnxruntime import quantization

    types: dict[str, QuantType] = {
        entry: getattr(quantization.QuantType, f"Q{entry.replace('int', 'Int').replace('uI', 'UI')}")
        for entry in (scheme.activations, scheme.weights)
    }
    method = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}[scheme.method]

    remaining = iter(batches)
    # onnxruntime takes readers of this class only, and asks for the batches one by one.
    members = {"get_next": lambda reader: next(remaining, None)}
    reader = type("Reader", (quantization.CalibrationDataReader,), members)()
    try:
        quantization.quantize_static(
            original,
            quantized,
            reader,
            quant_format=quantization.QuantFormat.QDQ
            if scheme.form == "qdq"
            else quantization.QuantFormat.QOperator,
            per_channel=scheme.per_channel,
            activation_type=types[scheme.activations],
            weight_type=types[scheme.weights],
            reduce_range=scheme.reduce_range,
            nodes_to_exclude=[
                str(node.name) for node in graph if {node.op_type, node.name}.intersection(scheme.exclude)
            ],
            calibrate_method=getattr(quantization.CalibrationMethod, method),
            extra_options={
                "ActivationSymmetric": scheme.symmetric,
                "WeightSymmetric": scheme.weights == "int8",
                "UseQDQContribOps": scheme.activations.endswith("16") and opset < _16_BIT_OPSET,
            },
        )
    except OpsettaError:
        raise
    # onnxruntime's quantizers raise errors of many types.
    except Exception as error:
        raise InferenceError(f"onnxruntime cannot quantize the model: {one_line(error)}") from error


@contextmanager
def _quiet_quantizer() -> Iterator[None]:
    """Silence what onnxruntime's quantizers print and log: progress, and advice that is followed already."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(level)
