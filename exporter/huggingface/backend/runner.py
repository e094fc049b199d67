"""`OpsettaRunner`: runs exported programs for transformers, on onnxruntime."""

from __future__ import annotations

import torch
import transformers
from transformers.exporters.exporter_dynamo import register_pytree_node
from transformers.exporters.metadata import ExportMetadata
from transformers.exporters.runners.base import ModelRunner
from transformers.exporters.utils import onnx_inputs

from ....registration import UsageError
from ...onnx_model import OnnxModel
from ...program import Program
from ...running.runner import Runner
from ...running.sessions.session import CPU, Providers
from ...torch_boundary.containers.exporter_caches import register_as_exporters_do


def _register_caches() -> None:
    for name in ("DynamicCache", "EncoderDecoderCache", "StaticCache"):
        register_pytree_node(getattr(transformers, name))


class OpsettaRunner(ModelRunner):
    """Runs one program.

    Args:
        runner: of the program.
        metadata: what transformers recorded about it.
        device: where it runs.
    """

    def __init__(self, runner: Runner, metadata: ExportMetadata, device: torch.device):
        super().__init__(metadata)
        # The structure of results is read by the registered caches.
        register_as_exporters_do(_register_caches)
        self._runner = runner
        self._device = device

    @property
    def device(self) -> torch.device:
        """Where the program runs; results are in the memory of the host."""
        return self._device

    @classmethod
    def from_program(
        cls,
        program: Program | OnnxModel,
        metadata: ExportMetadata,
        device: torch.device | str | None = None,
        providers: Providers | None = None,
    ) -> OpsettaRunner:
        """The runner of a program.

        Args:
            program: from the exporter, new or loaded.
            metadata: what transformers recorded about it.
            device: a processor of type "cpu" or "cuda"; by default that of the providers.
            providers: execution providers of onnxruntime; by default those of the device.

        Raises:
            UsageError: onnxruntime has no provider for the device, or both are given.
        """
        if device is not None and providers is not None:
            raise UsageError("pass a device or providers, not both")
        runs_on = torch.device("cpu" if device is None else device)
        if runs_on.type not in ("cpu", "cuda"):
            raise UsageError(f"onnxruntime is run on 'cpu' or 'cuda', not on '{runs_on}': pass providers")
        if providers is None:
            cuda: Providers = [("CUDAExecutionProvider", {"device_id": runs_on.index or 0}), *CPU]
            providers = CPU if runs_on.type == "cpu" else cuda
        return cls(Runner.of_model(program.model, providers=providers), metadata, runs_on)

    def __call__(self, share_inputs: bool = True, share_outputs: bool = False, **kwargs: object) -> object:
        """Run the program with the keyword arguments of the forward.

        Returns:
            What the forward returns, with tensors of its own.

        Raises:
            UsageError: arguments are missing.
            DimensionError: the program is not valid for a size.
        """
        inputs = onnx_inputs(list(self._runner.inputs.declared), kwargs)
        missing = [name for name in self._runner.inputs.declared if name not in inputs]
        if missing:
            raise UsageError(f"the graph needs {', '.join(missing)}, which the arguments do not have")
        feed = self._runner.inputs.feed({name: tensor.detach().cpu() for name, tensor in inputs.items()})
        results: object = self.unflatten(self._runner.tensors(feed))
        return results
