"""Runs an ONNX model with onnxruntime."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...registration import InferenceError
from ..files import writing


class Session:
    """An onnxruntime session of a model, created at the first use.

    Args:
        threads: as for `session_options`.

    Raises:
        InferenceError: onnxruntime is not installed, or refuses the model or its inputs.
    """

    def __init__(
        self,
        model: ir.Model,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        *,
        threads: int | None = None,
    ):
        self._model = model
        self._threads = threads
        self._providers = list(providers)
        self._session: Any = None

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Run the model and return its outputs in the graph's order.

        Output tensors are OrtValues; onnxruntime returns sequences and maps as lists and dicts. Inputs are
        numpy arrays, or OrtValues for element types that numpy lacks.
        """
        session = self._loaded()
        import onnxruntime

        feed = {
            name: item
            if isinstance(item, onnxruntime.OrtValue)
            else onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(item, order="C"))
            for name, item in inputs.items()
        }
        names = [output.name for output in session.get_outputs()]
        try:
            if all(output.type.startswith("tensor(") for output in session.get_outputs()):
                return session.run_with_ort_values(names, feed)
            return session.run(names, {name: value.numpy() for name, value in feed.items()})
        except Exception as error:
            raise InferenceError(f"onnxruntime could not run the model: {error}") from error

    def _loaded(self) -> Any:
        if self._session is not None:
            return self._session
        payload = writing.to_bytes(self._model)
        if payload is not None:
            self._session = open_session(
                payload, "the model", self._providers, session_options(self._threads)
            )
        else:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "model.onnx")
                writing.save(self._model, path)
                options = session_options(self._threads)
                self._session = open_session(path, "the model", self._providers, options)
        return self._session


def session_options(threads: int | None = None) -> Any:
    """New `onnxruntime.SessionOptions` that print nothing: errors come back as exceptions.

    Args:
        threads: how many a run uses; by default as many as onnxruntime chooses.

    Raises:
        InferenceError: onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise InferenceError("running a model needs onnxruntime: pip install 'opsetta[runtime]'") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = options.inter_op_num_threads = threads
    return options


def open_session(
    model: str | bytes,
    title: str,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    options: Any = None,
) -> Any:
    """An `onnxruntime.InferenceSession` of the bytes of a model, or of a file.

    Args:
        title: what an error calls the model.
        options: by default `session_options()`.

    Raises:
        InferenceError: onnxruntime is not installed, or refuses the model.
    """
    used = session_options() if options is None else options
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(model, used, providers=list(providers))
    except Exception as error:
        raise InferenceError(f"onnxruntime could not load {title}: {' '.join(str(error).split())}") from error


def as_python(value: Any) -> Any:
    """Convert a result of `Session.run` to a numpy array; lists and dicts stay."""
    return value.numpy() if hasattr(value, "numpy") else value
