"""`quantize_weights`: stores the weights of a finished model in 4 or 8 bits."""

from __future__ import annotations

import os

import numpy as np
import onnx
import onnx_ir as ir

from ..passes.quantization import Error, Quantization, QuantizeWeights, scheme_of
from ..registration import UsageError
from .devices.targets.load_target import load_target
from .devices.targets.target import Target
from .devices.targets.target_problems import check_model
from .onnx_model import OnnxModel
from .program import Program
from .realizing import realize

_COMPARED_BYTES = 2_000_000_000
"""Models with more bytes of weights are run for comparison only if that is asked for."""


def quantize_weights(
    model: Program | OnnxModel | ir.Model | onnx.ModelProto,
    dtype: str,
    *,
    block_size: int = 32,
    symmetric: bool = True,
    embeddings: bool = False,
    lm_head: bool = True,
    target: str | os.PathLike[str] | Target | None = None,
) -> OnnxModel:
    """Store the weights of a model's matrix products in 8 or 4 bits; see docs/quantization.md.

    Weights are quantized one at a time, when the result is saved or run.

    Args:
        model: an exported program, an ONNX model, or its `onnx_ir` or protobuf form. It is not changed.
        dtype: `"int8"`, `"int4"`, or `"q4_0"`: the numbers of GGML's type Q4_0, 4 bits and a FLOAT16 scale
            for 32 elements.
        block_size: elements that share a scale, a power of two from 16 on.
        symmetric: whether zero is in the middle of each block's range; else blocks have zero points.
        embeddings: whether to quantize tables that rows are gathered from, too.
        lm_head: whether to quantize products whose results are outputs of the model. A weight that is also a
            table needs `embeddings` as well.
        target: the runtime or device, by default that of `model`. For onnxruntime, products become
            MatMulNBits.

    Returns:
        The new model; its `quantization` has sizes and errors.

    Raises:
        UsageError: an argument has an unknown value, or no weight of the model can be quantized.
        GraphError: the model has parts that no pass rewrites.
        TargetError: lists everything that the target does not support.
    """
    scheme = scheme_of(dtype, block_size, symmetric)
    # A model that was lowered for a target stays one for that target.
    requested_target = getattr(model, "target", None) if target is None else target
    resolved_target = None if requested_target is None else load_target(requested_target)
    quantizer = QuantizeWeights(
        scheme,
        embeddings=embeddings,
        head=lm_head,
        domains=() if resolved_target is None else resolved_target.domains,
    )
    source_model = ir.from_proto(model) if isinstance(model, onnx.ModelProto) else model
    before = initializer_bytes(source_model if isinstance(source_model, ir.Model) else source_model.model)
    quantized = realize(source_model, [quantizer])
    if not quantizer.weights:
        raise UsageError(
            "the model has no weight to quantize: MatMul and Gemm (with embeddings=True also Gather) have "
            "none that would become smaller"
        )
    if resolved_target is not None:
        check_model(quantized.model, resolved_target)
        quantized.target = resolved_target
    after = initializer_bytes(quantized.model)
    quantized.quantization = Quantization(tuple(quantizer.weights), quantizer.form.value, before, after)
    return quantized


def initializer_bytes(model: ir.Model) -> int:
    """The bytes of all initializers."""
    return sum(
        value.const_value.nbytes
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    )


def has_example(model: Program | OnnxModel) -> bool:
    """Whether a model was captured from PyTorch with an example, and not read from a file."""
    if not isinstance(model, Program) or model.interface.input_specification is None:
        return False
    return model._capture.example is not None


def is_compared(program: Program, requested: bool) -> bool:
    """Whether a program and its quantized form are run for comparison: small ones, or all if asked for."""
    return requested or initializer_bytes(program.model) <= _COMPARED_BYTES


def output_error(model: OnnxModel, program: Program) -> Error:
    """The error of a quantized model's floating-point outputs for the example of the program; runs both.

    Raises:
        OpsettaError: the program has no example.
        InferenceError: onnxruntime refuses a model.
    """
    feed = program._calls.input_values(program.input_names, *program._calls.arguments(None, None))[1]
    expected = OnnxModel(program.model).run(feed)
    pairs = [
        (actual, reference)
        for actual, reference in zip(model.run(feed), expected, strict=True)
        # Indices and counts have no meaningful distance.
        if isinstance(reference, np.ndarray) and reference.dtype.kind == "f"
    ]
    return Error.between([actual for actual, _ in pairs], [reference for _, reference in pairs])
