"""Opens models in onnxruntime as the tests do: on the CPU, silent, with one thread in each test process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime

from opsetta.exporter.running.sessions.session import session_options


def open_session(
    model: onnx.ModelProto | ir.Model | bytes | str,
    *,
    optimized: bool = True,
    optimized_path: str = "",
) -> onnxruntime.InferenceSession:
    """A session of a model, of its bytes, or of a file.

    Args:
        optimized: whether onnxruntime may change the graph; otherwise it runs the nodes as they stand.
        optimized_path: where onnxruntime writes the graph that it runs.
    """
    # A pool of threads takes longer to create than a small model to run.
    options = session_options(threads=1)
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if optimized_path:
        options.optimized_model_filepath = optimized_path
    if isinstance(model, ir.Model):
        model = ir.to_proto(model)
    if isinstance(model, onnx.ModelProto):
        model = model.SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_onnxruntime(
    model: onnx.ModelProto | ir.Model | bytes | str, feed: Mapping[str, Any], *, optimized: bool = True
) -> list[Any]:
    """The outputs of a model; inputs that it does not have are left out of the feed."""
    session = open_session(model, optimized=optimized)
    names = {value.name for value in session.get_inputs()}
    return session.run(None, {name: array for name, array in feed.items() if name in names})
