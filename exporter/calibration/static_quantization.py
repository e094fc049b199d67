"""Quantizes weights and activations, and measures what is lost."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import tempfile

import onnx_ir as ir

from ...passes.realizers import EqualizeChannels, FoldBatchNorm
from ...registration import UsageError
from ...registration.warning import warn
from ..editing.rewrite import rewrite
from .accuracy import Checks, OutputAccuracy, TensorLoss
from .batches import Batches
from .calibrated_model import CalibratedModel
from .loss_limit import limit_loss, losses_by_tensor
from .scheme import QuantizationScheme


@dataclasses.dataclass(frozen=True)
class QuantizationReport:
    """What a quantized model loses on batches that it was not calibrated with.

    Attributes:
        outputs: the error of each output.
        tensors: the losses of tensors, the worst first; for the form "qoperator", those of the QDQ form.
        calibrated, measured: numbers of batches.
        float_nodes: names of the nodes that stay in float because of `max_loss`.
        weight_bytes: the size of the weights.
        smallest_weight_bytes: the size without `max_loss`.
    """

    outputs: tuple[OutputAccuracy, ...]
    tensors: tuple[TensorLoss, ...]
    calibrated: int
    measured: int
    float_nodes: tuple[str, ...]
    weight_bytes: int
    smallest_weight_bytes: int


def quantize_model(
    model: ir.Model, scheme: QuantizationScheme, batches: Batches, held_out: Batches, trusted: bool
) -> tuple[ir.Model, QuantizationReport]:
    """A quantized copy of a model with its batch norms folded, and its errors.

    Raises:
        UsageError: the scheme does not fit the model, or `max_loss` cannot be reached.
        InferenceError: onnxruntime is not installed, or cannot run or quantize the model.
    """
    opset = model.graph.opset_imports.get("", model.graph.opset_imports.get("ai.onnx"))
    scheme.check(model, opset)
    passes = [FoldBatchNorm(), EqualizeChannels()] if scheme.equalize else [FoldBatchNorm()]
    folded = rewrite(model, passes, trusted)
    with tempfile.TemporaryDirectory(prefix="opsetta-") as name:
        calibrated = CalibratedModel(folded, scheme, batches, pathlib.Path(name))
        scheme.check_types(calibrated.quantizable_nodes(), opset)
        check = Checks(folded, held_out)
        result = calibrated.quantize(scheme.form)
        if not any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in result.graph):
            raise UsageError(
                "onnxruntime's tool quantizes no operator of the model: those in sub-graphs and of other "
                "domains stay in float; `opsetta convert --standard` replaces operators of com.microsoft"
            )
        outputs = check.outputs_of(result)
        smallest_bytes = _weight_bytes(result)
        result, outputs, float_nodes = limit_loss(calibrated, scheme, check, result, outputs)
        tensors = losses_by_tensor(calibrated, scheme, held_out, float_nodes)
    infinite = [f"'{output.name}'" for output in outputs if not math.isfinite(output.relative_error)]
    if infinite:
        warn(
            f"the quantized model gives numbers that are not finite in {', '.join(infinite)}; often a small "
            "number became 0 before a logarithm or a division. max_loss=0.05 with loss='error' keeps such "
            "nodes in float (--max-loss 0.05 --loss error)"
        )
    result.producer_name, result.producer_version = model.producer_name, model.producer_version
    counts = len(batches), len(held_out)
    sizes = _weight_bytes(result), smallest_bytes
    return result, QuantizationReport(outputs, tensors, *counts, float_nodes, *sizes)


def _weight_bytes(model: ir.Model) -> int:
    tensors = [value.const_value for value in model.graph.initializers.values()]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)
