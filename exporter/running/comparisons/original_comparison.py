"""Compares a converted model with the model that it was converted from."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ....registration import InferenceError, VerificationError
from ..runner import Runner
from ..sessions.session import Session, as_python
from .verification import VerificationReport


def compare_with_original(
    converted: Runner,
    original: ir.Model,
    values: Mapping[str, object],
    rtol: float | None,
    atol: float | None,
) -> VerificationReport:
    """Run both models in onnxruntime on values by input name, and compare the results.

    If the results differ and the original has QuantizeLinear nodes, it runs again without onnxruntime's
    fusions of these nodes, because fused kernels round at other points than the nodes.

    Raises:
        VerificationError: an output is outside tolerance.
        InferenceError: onnxruntime is not installed, or refuses one of the models.
    """
    feed = converted.inputs.feed(values)
    try:
        expected = Runner.of_model(original).arrays(values)
    except InferenceError as error:
        raise InferenceError(f"the original does not run, so nothing is compared: {error}") from error
    try:
        return converted.verify(feed, expected, rtol, atol, expected_by="the original")
    except VerificationError:
        if not any(node.op_type == "QuantizeLinear" for node in original.graph.all_nodes()):
            raise
    unfused = [as_python(value) for value in Session(original, fuses_quantization=False).run(feed)]
    return converted.verify(feed, unfused, rtol, atol, expected_by="the original")
