"""The runtimes that can run a model here: onnxruntime, onnx's reference implementation, and OpenVINO."""

from __future__ import annotations

import functools
from collections.abc import Callable

import onnx_ir as ir

from ....registration import InferenceError, UsageError
from ..model_inputs import Feed
from .session import Providers, RuntimeValue, Session, as_python, stored_model

Execute = Callable[[Feed], list[RuntimeValue]]
"""Takes onnxruntime values by input name; returns the outputs in order."""


def runner_in(runtime: str, model: ir.Model, providers: Providers, *, threads: int | None) -> Execute:
    """Return a function that runs a model in a runtime; the model is loaded at the first call.

    The function raises InferenceError if the runtime is not installed, or cannot load or run the model.

    Args:
        runtime: a name in `RUNTIMES`.
        providers, threads: see `Session`; used only by onnxruntime.

    Raises:
        UsageError: the runtime is unknown.
    """
    if runtime == "onnxruntime":
        return Session(model, providers, threads=threads).run
    if runtime not in RUNTIMES:
        raise UsageError(f"there is no runtime '{runtime}': it must be one of {', '.join(RUNTIMES)}")

    @functools.cache
    def open_once() -> Execute:
        with stored_model(model) as stored:
            return _OTHER_RUNTIMES[runtime](stored)

    def execute(feed: Feed) -> list[RuntimeValue]:
        # Every runtime has its own error classes, and some raise Python's for missing operators.
        try:
            return open_once()({name: as_python(value) for name, value in feed.items()})
        except InferenceError:
            raise
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise InferenceError(f"{runtime} could not run the model: {text}") from error

    return execute


def _open_reference(stored: bytes | str) -> Execute:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(stored)
    return lambda feed: list(evaluator.run(None, dict(feed)))


def _open_openvino(stored: bytes | str) -> Execute:
    try:
        import openvino
    except ImportError as error:
        raise InferenceError("running a model in OpenVINO needs it: pip install openvino") from error
    core = openvino.Core()
    # By default OpenVINO computes in the processor's fastest type, which may be half precision.
    settings = {"EXECUTION_MODE_HINT": "ACCURACY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(stored), "CPU", settings)

    def execute(feed: Feed) -> list[RuntimeValue]:
        results = compiled.create_infer_request().infer(feed)
        return [results[position] for position in range(len(compiled.outputs))]

    return execute


_OTHER_RUNTIMES: dict[str, Callable[[bytes | str], Execute]] = {
    "reference": _open_reference,
    "openvino": _open_openvino,
}
RUNTIMES = ("onnxruntime", *_OTHER_RUNTIMES)
"""Names of the runtimes; `reference` is `onnx.reference`."""
