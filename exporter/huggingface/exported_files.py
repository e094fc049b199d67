"""The files that `export_huggingface` wrote."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from ...passes.quantization import Error, Quantization

if TYPE_CHECKING:
    from ..running.comparisons.verification import VerificationReport


@dataclasses.dataclass(frozen=True)
class ExportedGraph:
    """One ONNX file of a model.

    Attributes:
        path: of the file.
        opset: of the file.
        nodes: the number of its nodes.
        weight_bytes: the bytes of its weights.
        inputs, outputs: their names, in order.
        report: the comparison with eager PyTorch, if it was asked for.
        quantization: what was quantized, if it was asked for.
        output_error: that of the quantized outputs for the example inputs, if both models ran.
    """

    path: pathlib.Path
    opset: int
    nodes: int
    weight_bytes: int
    inputs: list[str]
    outputs: list[str]
    report: VerificationReport | None = None
    quantization: Quantization | None = None
    output_error: Error | None = None


@dataclasses.dataclass(frozen=True)
class HuggingFaceExport:
    """The files that `export_huggingface` wrote.

    Attributes:
        folder: where it is.
        task: the name of the task.
        graphs: the ONNX files.
        copied: names of the files of tokenizers, processors and configurations.
        weights_loaded: whether transformers loaded the weights into memory, because the checkpoint has other
            names than the model or lacks tensors.
    """

    folder: pathlib.Path
    task: str
    graphs: list[ExportedGraph]
    copied: list[str]
    weights_loaded: bool
