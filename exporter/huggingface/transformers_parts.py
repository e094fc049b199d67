"""Exports a folder as transformers' own exporters do: prefill and decode, or one forward pass."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from ..quantizing import initializer_bytes
from .exported_files import ExportedGraph, HuggingFaceExport
from .folder import copy_files
from .graphs import ExampleCall, TaskModel, example_text
from .model_folders import need_transformers
from .tasks.record import Task
from .tasks.selection import auto_class_of

if TYPE_CHECKING:
    import torch
    from transformers import Cache, PretrainedConfig


def export_parts(
    source: pathlib.Path,
    output: pathlib.Path,
    config: PretrainedConfig,
    task: Task,
    torch_dtype: str,
    **settings: Any,
) -> HuggingFaceExport:
    """Write the files that `ExportedModel.from_pretrained` of transformers reads.

    Args:
        source: the folder with the model.
        output: the folder to write.
        config: of the model.
        task: whose class of models and example inputs are used.
        torch_dtype: of weights and activations.
        settings: of `OpsettaConfig`.

    Raises:
        OpsettaError: this release of transformers has no exporters.
        CaptureError, UnsupportedOperatorsError, TargetError, UsageError: as for `opsetta.export`.
    """
    import torch

    from .backend.requirements import need_exporters

    need_exporters()
    from transformers.exporters.auto import AutoHfExporter

    from .backend import register  # noqa: F401 - An import registers the backend.
    from .backend.config import OpsettaConfig

    auto = getattr(need_transformers(), auto_class_of(task, config))
    model = auto.from_pretrained(
        source, config=config, dtype=getattr(torch, torch_dtype), local_files_only=True
    ).eval()
    _, example = task.example_calls(TaskModel(model, config, source))[0]
    inputs = _inputs_of(example, config)
    generates = any("{layer}" in output for output in task.files[-1].outputs)
    exporter_config = OpsettaConfig(dynamic=True, **settings)
    exporter = AutoHfExporter.from_config(exporter_config)
    export = exporter.export_for_generation if generates else exporter.export
    exported = export(model, inputs, exporter_config)
    exported.save_pretrained(output)
    graphs = [
        ExportedGraph(
            output / f"{name}{exporter.program_suffix}",
            component.program.opset,
            component.program.model.graph.num_nodes(),
            initializer_bytes(component.program.model),
            component.program.input_names,
            component.program.output_names,
        )
        for name, component in exported.components.items()
    ]
    return HuggingFaceExport(output, task.name, graphs, copy_files(source, output), True)


def _inputs_of(example: ExampleCall, config: PretrainedConfig) -> dict[str, torch.Tensor | Cache]:
    """The arguments of the model's forward: those of a decoder are a prompt with padding on the left."""
    if not example.past:
        return dict(example.inputs)
    text = example_text(config)
    return {"input_ids": text["input_ids"], "attention_mask": text["attention_mask"].flip(1)}
