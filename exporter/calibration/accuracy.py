"""Compares a quantized model with its float model: outputs on held-out batches, and each tensor."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import onnx_ir as ir

from ..running.runner import Runner
from .batches import Batches

_MOST_BATCHES = 4
"""Batches for the errors of tensors, whose values are all kept in memory."""


@dataclasses.dataclass(frozen=True)
class OutputAccuracy:
    """The error of an output over the held-out batches.

    Attributes:
        name: the output.
        relative_error: the norm of the difference, divided by the norm of the float output.
        agreement: the share of samples with the same largest entry on the last axis; None for outputs
            without such an axis.
    """

    name: str
    relative_error: float
    agreement: float | None

    def loss(self, measure: str) -> float:
        """What is lost: for "labels" the share of samples whose largest entry changed, else the error."""
        if measure == "error" or self.agreement is None:
            return self.relative_error
        return 1 - self.agreement


@dataclasses.dataclass(frozen=True)
class TensorLoss:
    """What is lost at one tensor.

    Attributes:
        name: the tensor.
        operator: the operator that computes it; "" for inputs.
        own_decibels: the ratio of signal to noise of its own quantization; small numbers are bad.
        total_decibels: the same against the float model, with the noise of all layers before it.
    """

    name: str
    operator: str
    own_decibels: float
    total_decibels: float


class Checks:
    """The results of a float model on held-out batches, which quantized models are compared with.

    Raises:
        InferenceError: onnxruntime refuses the model.
    """

    def __init__(self, original: ir.Model, batches: Batches):
        self.batches = batches
        runner = Runner.of_model(original)
        self._names = runner.output_names
        self._expected = [runner.arrays(batch) for batch in batches]

    def outputs_of(self, quantized: ir.Model) -> tuple[OutputAccuracy, ...]:
        """The errors of all floating-point outputs.

        Raises:
            InferenceError: onnxruntime refuses the model.
        """
        runner = Runner.of_model(quantized)
        results = [runner.arrays(batch) for batch in self.batches]
        accuracies = []
        for position, name in enumerate(self._names):
            pairs = [(a[position], b[position]) for a, b in zip(self._expected, results, strict=True)]
            if not all(
                isinstance(a, np.ndarray) and a.dtype.kind == "f" and a.shape == b.shape for a, b in pairs
            ):
                continue
            noise = sum(float(np.square(a - b, dtype=np.float64).sum()) for a, b in pairs)
            signal = sum(float(np.square(a, dtype=np.float64).sum()) for a, _ in pairs)
            error = float(np.sqrt(noise / signal)) if signal else float(np.sqrt(noise))
            agreement = None
            if all(a.ndim and a.shape[-1] > 1 and a.size for a, _ in pairs):
                equal = [np.ravel(a.argmax(-1) == b.argmax(-1)) for a, b in pairs]
                agreement = float(np.concatenate(equal).mean())
            accuracies.append(OutputAccuracy(name, error, agreement))
        return tuple(accuracies)


def tensor_losses(
    original: pathlib.Path, quantized: pathlib.Path, batches: Batches
) -> tuple[TensorLoss, ...]:
    """The losses of the tensors of a QDQ file, by onnxruntime's own tool; the worst come first.

    Files with more outputs are written beside the quantized one.
    """
    import onnx
    from onnxruntime.quantization import qdq_loss_debug as loss

    values = []
    for path in (original, quantized):
        augmented = quantized.parent / f"augmented_{path.name}"
        loss.modify_model_output_intermediate_tensors(str(path), str(augmented))
        values.append(loss.collect_activations(str(augmented), iter(batches[:_MOST_BATCHES])))
    matching = loss.create_activation_matching(values[1], values[0])
    # A tensor that only the quantized model has, such as a fused sum, has nothing to compare with.
    matching = {name: match for name, match in matching.items() if match.get("float") is not None}
    errors = loss.compute_activation_error(matching)
    operators = {
        name: node.op_type
        for node in onnx.load(original, load_external_data=False).graph.node
        for name in node.output
    }
    # A Relu is folded into the quantization of its input, so the input's values before the Relu say nothing
    # about the loss: the noise of one tensor is at most that of the whole model.
    losses = [
        TensorLoss(
            name,
            operators.get(name, ""),
            max(float(error["qdq_err"]), float(error["xmodel_err"])),
            float(error["xmodel_err"]),
        )
        for name, error in errors.items()
    ]
    return tuple(sorted(losses, key=lambda entry: entry.own_decibels))
