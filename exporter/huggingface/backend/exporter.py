"""`OpsettaExporter`: the exporter that transformers calls for `OpsettaConfig`."""

from __future__ import annotations

import functools
import pathlib
import types
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

import torch
from transformers.exporters.base import HfExporter
from transformers.exporters.configs import ExportConfigMixin
from transformers.exporters.exporter_dynamo import (
    patch_forward_signature,
    patch_model_config,
    register_cache_pytrees_for_model,
    reset_model_state,
)
from transformers.exporters.metadata import ExportMetadata, build_export_metadata, record_output_structure
from transformers.exporters.utils import (
    apply_patches,
    disambiguate_io_names,
    get_leaf_tensors,
    prepare_for_export,
)

from ....passes.onnx_graph.levels import check_level
from ....registration import ModelFileError, UsageError
from ...capture.capture_options import CaptureOptions
from ...devices.targets.load_target import resolve_target
from ...export_model import capture_model, lower_capture
from ...load_model import load
from ...onnx_model import OnnxModel
from ...program import Program
from ...torch_boundary.containers import pytree
from ...torch_boundary.containers.exporter_caches import register_as_exporters_do
from ..expected_warnings import expected_warnings
from ..graphs import TOTAL
from .config import FORMAT, OpsettaConfig
from .dynamic_axes import dynamic_axes

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

_DATA = ".data"
"""The suffix of the file with the weights, which transformers must know before it loads a program."""


class OpsettaExporter(HfExporter):
    """Exports a model of transformers to ONNX at exactly the opset that is asked for.

    Its patches of models, names of outputs and structures of caches are those of transformers; capture and
    lowering are those of `opsetta.export`.
    """

    export_format = FORMAT
    config_class = OpsettaConfig
    program_suffix = ".onnx"
    required_packages = ["torch", "onnx_ir"]  # noqa: RUF012 - A list in the class of transformers.

    def export_program(
        self,
        model: PreTrainedModel,
        sample_inputs: MutableMapping[str, torch.Tensor | Cache],
        config: ExportConfigMixin,
    ) -> tuple[Program, ExportMetadata]:
        """Export one graph.

        Args:
            model: a model of transformers, or a part of one.
            sample_inputs: the keyword arguments of its forward.
            config: the settings.

        Returns:
            The program, and what transformers records about it.

        Raises:
            CaptureError, UnsupportedOperatorsError, TargetError, UsageError: as for `opsetta.export`.
        """
        if not isinstance(config, OpsettaConfig):
            raise UsageError(f"the settings must be an OpsettaConfig, not {type(config).__name__}")
        opset, target = resolve_target(config.opset_version, config.target)
        _, prepared_inputs, output_flags = prepare_for_export(model, sample_inputs)
        inputs = dict(prepared_inputs)
        register_as_exporters_do(functools.partial(register_cache_pytrees_for_model, model))
        dynamic_shapes = config.dynamic_shapes
        if config.dynamic and dynamic_shapes is None:
            dynamic_shapes = dynamic_axes(inputs)
        options = CaptureOptions(
            dynamic_shapes=dynamic_shapes,
            strict=config.strict,
            capture=config.capture,
            mutations="drop",
            # The cache and the tokens together always have as many positions as the mask.
            narrow=(TOTAL,),
        )
        with (
            expected_warnings(),
            apply_patches("dynamo"),
            reset_model_state(model),
            patch_model_config(model, output_flags),
            patch_forward_signature(model, inputs),
        ):
            captured = capture_model(model, (), inputs, options)
        # The result of the captured call, with empty tensors for its outputs and with its constants.
        leaves = [
            torch.empty(0) if isinstance(position, int) else position[0]
            for position in captured.interface.outputs
        ]
        outputs = pytree.tree_unflatten(leaves, captured.interface.output_specification)
        input_names, output_names = disambiguate_io_names(
            list(get_leaf_tensors(inputs)), list(get_leaf_tensors(outputs))
        )
        program = lower_capture(
            captured,
            opset,
            input_names=input_names,
            output_names=output_names,
            optimize=check_level(config.optimize),
            target=target,
        )
        _, in_spec = pytree.tree_flatten(((), inputs))
        # transformers reads the structure of an ExportedProgram's call, which direct capture does not make.
        call = types.SimpleNamespace(in_spec=in_spec, out_spec=in_spec)
        metadata = build_export_metadata(
            model, inputs, types.SimpleNamespace(call_spec=call), self.required_packages
        )
        record_output_structure(metadata, outputs)
        return program, metadata

    @classmethod
    def save_program(cls, program: Program | OnnxModel, path: str | pathlib.Path) -> None:
        """Write a program, with its weights in a file beside it.

        Raises:
            ModelFileError: the files cannot be written.
        """
        program.save(path, external_data=f"{pathlib.Path(path).name}{_DATA}")

    @classmethod
    def program_files(cls, filename: str) -> list[str]:
        """The files of a program."""
        return [filename, f"{filename}{_DATA}"]

    @classmethod
    def load_program(cls, path: str | pathlib.Path) -> OnnxModel:
        """Read a program that `save_program` wrote.

        Raises:
            ModelFileError: it cannot be read, or is not a file of ONNX.
        """
        # The cache of the hub has links to its files.
        program = load(path, allow_links=True)
        if not isinstance(program, OnnxModel):
            raise ModelFileError(f"'{path}' is not a model of ONNX")
        return program
