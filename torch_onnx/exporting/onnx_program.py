"""`ONNXProgram`: the result of `export`, with the methods of `torch.onnx.ONNXProgram`."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import torch

from ...exporter.files import writing
from ...exporter.program import Program
from ...exporter.running.model_inputs import ModelInputs, inputs_of_model
from ...exporter.running.sessions import torch_values
from ...exporter.running.sessions.session import OpenSession, open_session
from ...registration import UsageError
from ...registration.warning import warn
from . import model_edits

Finish = Callable[[ir.Model], None]


class ONNXProgram(torch.onnx.ONNXProgram):
    """An exported model that is called with torch tensors.

    It is a `torch.onnx.ONNXProgram` with the same methods, and needs no onnxscript.

    Attributes:
        model: the ONNX model, an `onnx_ir.Model`. It may be changed in place.
        exported_program: the captured `torch.export.ExportedProgram`; None if the model was captured without
            torch.export, which is the default. `dump_exported_program=True` uses torch.export.
        program: the `opsetta.Program`, which verifies, plans, and lowers to other opsets.
    """

    def __init__(self, program: Program, finish: Finish = lambda model: None):
        exported = program.source_model._capture.exported
        exported_program = exported if isinstance(exported, torch.export.ExportedProgram) else None
        super().__init__(program.model, exported_program)
        self.program = program
        self._finish = finish
        self._session: object = None
        self._inputs: ModelInputs | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        finish(self.model)

    def __repr__(self) -> str:
        return f"ONNXProgram({self.program!r})"

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The ONNX model as a new protobuf message."""
        return ir.to_proto(self.model)

    def __call__(self, *args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        """Run the model with onnxruntime on the arguments of the PyTorch model.

        Returns:
            The outputs of the graph, in order. Complex numbers are real pairs, [..., 2].

        Raises:
            OpsettaError: the arguments do not have the structure of the example.
            DimensionError: the model is not valid for a size.
            InferenceError: onnxruntime refuses the model or the inputs.
        """
        if self._session is None:
            self.initialize_inference_session()
        if self._inputs is None:
            self._inputs = self._current_inputs()
        feed = self._make_feed(self._inputs, args, kwargs)
        return tuple(torch_values.to_torch(value) for value in OpenSession(self._session).run(feed))

    def call_reference(self, *args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        """Run the model with `onnx.reference`."""
        feed = self._make_feed(self._current_inputs(), args, kwargs)
        arrays = {name: np.asarray(value.numpy()) for name, value in feed.items()}
        results = onnx.reference.ReferenceEvaluator(self.model_proto).run(None, arrays)
        # The evaluator may return numpy scalars for results of rank 0.
        return tuple(torch.from_numpy(np.array(result)) for result in results)

    def compute_values(
        self,
        value_names: Sequence[str],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Compute the values with these names from arguments of the model.

        Raises:
            ValueError: the graph has no value with a name.
        """
        graph = self.model.graph
        values = {v.name: v for v in (*graph.inputs, *graph.initializers.values())}
        values |= {value.name: value for node in graph for value in node.outputs}
        unknown = [name for name in value_names if name not in values]
        if unknown:
            raise ValueError(f"the model has no value '{unknown[0]}'")
        outputs = list(graph.outputs)
        # The open session has the model's usual outputs.
        self.release()
        graph.outputs[:] = [values[name] for name in value_names]
        try:
            return self(*args, **(kwargs or {}))
        finally:
            graph.outputs[:] = outputs
            self.release()

    def optimize(self) -> None:
        """Optimize the model; needless after an export with `optimize=True`."""
        if self.program.optimize != "full":
            self._replace(self.program.lower(self.program.opset, optimize="full"))

    def apply_weights(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Replace weights by their names in the state_dict, and optimize with the new values.

        `model` becomes a new object: earlier changes to it are lost.

        Raises:
            UsageError: a tensor has another shape or element type than the weight.
            Warns: `torch.onnx.errors.OnnxExporterWarning` for names that the model lacks.
        """
        weights = self.program.source.graph.initializers
        new_weights: dict[str, ir.TensorProtocol] = {}
        for name, tensor in state_dict.items():
            if name not in weights:
                text = f"the model has no weight '{name}': it is not applied"
                warn(text, torch.onnx.errors.OnnxExporterWarning)
                continue
            new_weights[name] = _as_weight(name, tensor, weights[name])
        for name, weight in new_weights.items():
            weights[name].const_value = weight
        if new_weights:
            # Passes may have folded the old value into others, so the graph is lowered again.
            self._replace(self.program.lower(self.program.opset))

    def _replace(self, program: Program) -> None:
        self.release()
        self.program, self.model = program, program.model
        self._finish(self.model)

    def save(
        self,
        destination: str | os.PathLike[str] | IO[bytes],
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Write the model to a path or a binary file object.

        Args:
            include_initializers: False makes the weights inputs without values, so that the file stays valid.
            keep_initializers_as_inputs: list the weights as inputs, with their values as defaults. These two
                options lower the captured model again, with the weights of the state_dict: the file lacks
                changes made to `model`.
            external_data: True puts weights above 1 KiB into `<name>.data` beside the file. None does so
                above 2 GB.

        Raises:
            UsageError: `external_data` for a file object.
            ModelFileError: the file cannot be written. No partial file remains.
        """
        model = self.model
        if keep_initializers_as_inputs or not include_initializers:
            model = self._with_weight_inputs(include_initializers)
        data_file: str | bool | None = None if external_data is None else False
        if external_data:
            if not isinstance(destination, (str, os.PathLike)):
                raise UsageError("external_data needs a path, not a file object")
            data_file = f"{os.path.basename(os.fspath(destination))}.data"
        writing.save(model, destination, external_data=data_file)

    def _with_weight_inputs(self, with_values: bool) -> ir.Model:
        """Return the model with unmodified weights as inputs of the graph."""
        program = self.program
        lowering_arguments = program.opset, program.registry, program.optimize, (), True
        model = program.source_model._lower_graph(*lowering_arguments).model
        weight_names = list(program.source.graph.initializers)
        order = [
            name
            for name in model_edits.state_names(program.source_model._capture.module)
            if name in weight_names
        ]
        names = [*order, *(name for name in weight_names if name not in order)]
        model_edits.list_weights_as_inputs(model, names, with_values=with_values)
        self._finish(model)
        return model

    def initialize_inference_session(
        self, initializer: Callable[[str | bytes], object] = lambda model: open_session(model, "the model")
    ) -> None:
        """Create the onnxruntime session of later calls.

        Args:
            initializer: makes a session from the bytes of the model, or from a path for a large model.
        """
        self.release()
        payload: str | bytes | None = writing.to_bytes(self.model)
        if payload is None:
            self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            # A message is limited to 2 GB; a file may have external data.
            payload = os.path.join(self._folder.name, "model.onnx")
            writing.save(self.model, payload)
        self._session = initializer(payload)

    def release(self) -> None:
        """Close the onnxruntime session."""
        self._inputs = None
        if self._session is not None:
            self._session = None
            # If something in a reference cycle still holds the session, its files in the folder stay open.
            gc.collect()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def rename_axes(self, rename_mapping: Mapping[str | ir.SymbolicDim, str]) -> None:
        """Rename axes: `{"s0": "batch"}`, or with an `onnx_ir.SymbolicDim` as key."""
        model_edits.rename_axes(self.model, rename_mapping)

    def _current_inputs(self) -> ModelInputs:
        """The inputs that a caller feeds, by their names in the model as it is now."""
        count = len(self.program.source.graph.inputs)
        return inputs_of_model(self.model, list(self.model.graph.inputs)[:count])

    def _make_feed(
        self, inputs: ModelInputs, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> dict[str, Any]:
        _, values = self.program._calls.input_values(inputs.names, tuple(args), kwargs)
        return inputs.feed(values)


def _as_weight(name: str, tensor: torch.Tensor, weight: ir.Value) -> ir.TensorProtocol:
    """Convert the user's tensor to the value of a weight.

    Raises:
        UsageError: it has another shape or element type.
    """
    new_value = ir.tensor_adapters.TorchTensor(tensor.detach(), name=name)
    if new_value.dtype != weight.dtype or (weight.shape is not None and weight.shape != new_value.shape):
        raise UsageError(
            f"the weight '{name}' is {weight.dtype} of shape {weight.shape}, but the tensor is "
            f"{new_value.dtype} of shape {new_value.shape}"
        )
    return new_value
