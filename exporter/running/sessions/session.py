"""Runs an ONNX model with onnxruntime."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ....registration import InferenceError

if TYPE_CHECKING:
    import onnx_ir as ir
    import onnxruntime

RuntimeValue: TypeAlias = "onnxruntime.OrtValue | np.ndarray | list[object] | dict[object, object]"
"""An input or output of onnxruntime: `OrtValue` for a tensor of numbers, array of strings, list or dict."""
Providers: TypeAlias = "Sequence[str | tuple[str, dict[str, object]]]"
"""Execution providers of onnxruntime, some with their options."""
CPU: Providers = ("CPUExecutionProvider",)
_SMALL_MODEL = 1 << 18
"""Models up to this many bytes run on one thread, because creating a thread pool takes longer than a run."""


class OpenSession:
    """An `onnxruntime.InferenceSession` that runs with values by name.

    Attributes:
        session: the `onnxruntime.InferenceSession`.
        output_names: the names of the model's outputs, in order.
    """

    def __init__(self, session: onnxruntime.InferenceSession, title: str = "the model"):
        """Read the declarations of the outputs.

        Args:
            title: the name of the model in error messages.
        """
        self.session = session
        self._title = title
        outputs = session.get_outputs()
        self.output_names = [output.name for output in outputs]
        types = [item.type for item in (*outputs, *session.get_inputs())]
        # `run_with_ort_values` accepts only tensors of numbers.
        self._has_only_numbers = all(
            type_name.startswith("tensor(") and type_name != "tensor(string)" for type_name in types
        )

    def run(self, inputs: Mapping[str, RuntimeValue]) -> list[RuntimeValue]:
        """Run the model and return its outputs, in the order of the graph.

        Tensors of numbers are returned as OrtValues, without a copy; others as arrays, lists and dicts.

        Args:
            inputs: numpy arrays, or OrtValues, by name.

        Raises:
            InferenceError: onnxruntime refuses the inputs.
        """
        import onnxruntime

        try:
            if not self._has_only_numbers:
                return list(self.session.run(self.output_names, dict(inputs)))
            feed = {
                name: value
                if isinstance(value, onnxruntime.OrtValue)
                else onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(value, order="C"))
                for name, value in inputs.items()
            }
            return list(self.session.run_with_ort_values(self.output_names, feed))
        except Exception as error:
            text = " ".join(str(error).split())
            raise InferenceError(f"onnxruntime could not run {self._title}: {text}") from error


class Session:
    """An onnxruntime session of a model, created at the first use.

    Args:
        threads: the number of threads; by default 1 for a small model, else onnxruntime's choice.
        fuses_quantization: whether onnxruntime may fuse QuantizeLinear and DequantizeLinear with the
            operators between them. The fused kernels round at other points.

    Raises:
        InferenceError: onnxruntime is not installed, or refuses the model or its inputs.
    """

    def __init__(
        self,
        model: ir.Model,
        providers: Providers = CPU,
        *,
        threads: int | None = None,
        fuses_quantization: bool = True,
    ):
        self._model = model
        self._fuses_quantization = fuses_quantization
        self._threads = threads
        self._providers = list(providers)
        self._session: OpenSession | None = None

    def run(self, inputs: Mapping[str, RuntimeValue]) -> list[RuntimeValue]:
        """Run the model and return its outputs in the graph's order, as `OpenSession.run` does."""
        if self._session is None:
            self._session = OpenSession(self._open())
        return self._session.run(inputs)

    def _open(self) -> onnxruntime.InferenceSession:
        with stored_model(self._model) as stored:
            is_small = isinstance(stored, bytes) and len(stored) < _SMALL_MODEL
            options = session_options(1 if is_small and self._threads is None else self._threads)
            # Threads that spin while waiting for the next run would take time from torch.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            if not self._fuses_quantization:
                options.add_session_config_entry("session.disable_quant_qdq", "1")
            return open_session(stored, "the model", self._providers, options)


@contextlib.contextmanager
def stored_model(model: ir.Model) -> Iterator[bytes | str]:
    """Yield a model as the bytes of one message, or as the path of a temporary file if it is too large."""
    # Imported here, because opening an existing file needs neither onnx nor onnx-ir.
    from ...files import writing

    payload = writing.to_bytes(model)
    if payload is not None:
        yield payload
        return
    # A protobuf message is at most 2 GB: larger models need a file with external data.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        writing.save(model, path)
        yield path


def need_onnxruntime() -> None:
    """Check that onnxruntime can be imported.

    Raises:
        InferenceError: onnxruntime is not installed.
    """
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise InferenceError("running a model needs onnxruntime: pip install 'opsetta[runtime]'") from error


def session_options(threads: int | None = None) -> onnxruntime.SessionOptions:
    """Make `onnxruntime.SessionOptions` that print nothing; errors are raised as exceptions.

    Args:
        threads: the number of threads; by default onnxruntime's choice.

    Raises:
        InferenceError: onnxruntime is not installed.
    """
    need_onnxruntime()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Errors are raised; anything printed would disturb the output of commands.
    options.log_severity_level = 4
    # Level 1 is float32: by default onnxruntime also quantizes the input of a product with quantized weights.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if threads is not None:
        options.intra_op_num_threads = options.inter_op_num_threads = threads
    return options


def open_session(
    model: str | bytes,
    title: str,
    providers: Providers = CPU,
    options: onnxruntime.SessionOptions | None = None,
    session_class: type | None = None,
) -> onnxruntime.InferenceSession:
    """Open an `onnxruntime.InferenceSession` of a model's bytes or of a file.

    Args:
        model: the bytes, or the path of the file.
        title: the name of the model in error messages.
        options: the session options; by default `session_options()`.
        session_class: a subclass to use instead of `onnxruntime.InferenceSession`.

    Raises:
        InferenceError: onnxruntime is not installed, or refuses the model.
    """
    options_used = session_options() if options is None else options
    import onnxruntime

    try:
        return (session_class or onnxruntime.InferenceSession)(model, options_used, providers=list(providers))
    except Exception as error:
        raise InferenceError(f"onnxruntime could not load {title}: {' '.join(str(error).split())}") from error


def as_python(value: RuntimeValue) -> Any:
    """Convert a result of `Session.run` to a numpy array (bfloat16 by ml_dtypes); lists and dicts stay."""
    if isinstance(value, (np.ndarray, list, dict)):
        return value
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()
    import ml_dtypes

    # onnxruntime cannot convert bfloat16, which numpy lacks, so the memory is read directly.
    shape = value.shape()
    count = math.prod(shape)
    if not count:
        return np.zeros(shape, ml_dtypes.bfloat16)
    memory = (ctypes.c_uint16 * count).from_address(value.data_ptr())
    return np.array(memory, np.uint16).view(ml_dtypes.bfloat16).reshape(shape)
