"""LoRA matrices as inputs of the exported files, so that one file serves many adapters of its base model."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from ....registration import ModelFileError, UsageError
from ..folder import read_json
from ..graphs import ExampleCall, GraphFile, Inputs, Pairs, random_tensor
from ..packages import need_package

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

ADAPTER = "adapter_config.json"
_PREFIX = "base_model.model."
"""What peft puts before the names of the base model."""
_PARTS = ("lora_A", "lora_B")
_RANK = "lora_rank"
_EXAMPLE_RANK = 11
"""Another size than those of other dimensions in examples."""


def adapter_weights(folder: pathlib.Path) -> Mapping[str, ir.TensorProtocol]:
    """The tensors of an adapter by their names in the base model; their contents are not read.

    Raises:
        ModelFileError: there are none, or they cannot be read.
    """
    from ...capture.stored_weights.opening import open_weights

    names = ("adapter_model.safetensors", "adapter_model.bin")
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise ModelFileError(f"'{folder}' has an adapter without weights: there is no {' or '.join(names)}")
    return {name.removeprefix(_PREFIX): tensor for name, tensor in open_weights(path).items()}


def read_matrices(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The LoRA matrices of an adapter by the names of inputs; the second one of a layer contains its scale.

    Raises:
        ModelFileError: the weights cannot be read.
        UsageError: the adapter has another form.
        OpsettaError: peft is not installed.
    """
    peft_utils = need_package("peft.utils.other", "adapters")
    settings: Any = read_json(folder / ADAPTER)
    if settings.get("peft_type") != "LORA" or settings.get("use_dora") or settings.get("bias") != "none":
        raise UsageError(
            f"'{folder}' is no adapter of plain LoRA matrices (peft_type, use_dora, bias in {ADAPTER}): "
            "merge it into the weights"
        )
    weights = adapter_weights(folder)
    matrices = {name: weights[name].numpy() for name in sorted(weights) if is_matrix(name)}
    patterns = settings.get("alpha_pattern") or {}
    for name in matrices:
        layer, part, _ = name.rsplit(".", 2)
        if part == _PARTS[1]:
            # `rank_pattern` gives some layers another rank than `r`.
            rank = matrices[name].shape[1]
            alpha = patterns.get(peft_utils.get_pattern_key(patterns, layer), settings["lora_alpha"])
            scale = alpha / (rank**0.5 if settings.get("use_rslora") else rank)
            matrices[name] = (matrices[name] * scale).astype(matrices[name].dtype)
    return matrices


def is_matrix(name: str) -> bool:
    """Whether a name is that of a LoRA matrix of a layer."""
    return name.endswith(tuple(f".{part}.weight" for part in _PARTS))


def check_matrices(folder: pathlib.Path, matrices: Mapping[str, np.ndarray], names: set[str]) -> None:
    """Refuse an adapter that changes other matrices than a file has inputs for.

    Raises:
        UsageError: the message names one.
    """
    differing = sorted(names.symmetric_difference(matrices))
    if differing:
        raise UsageError(
            f"the adapter in '{folder}' and the model have different LoRA matrices: only one of them has "
            f"{differing[0]}"
        )


def matrix_modules(model: PreTrainedModel) -> dict[str, torch.nn.Module]:
    """The modules of the LoRA matrices by the names of the inputs; their scale becomes 1.

    Args:
        model: with an adapter of peft in it, which is not merged.
    """
    layers = need_package("peft.tuners.lora", "adapters")
    modules: dict[str, torch.nn.Module] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, layers.LoraLayer):
            # Adapters have different scales, which their second matrices contain.
            layer.scaling.update(dict.fromkeys(layer.scaling, 1.0))
            for part in _PARTS:
                modules |= {f"{name}.{part}.weight": module for module in getattr(layer, part).values()}
    return modules


def with_matrices(
    file: GraphFile, example: ExampleCall, modules: Mapping[str, torch.nn.Module]
) -> tuple[GraphFile, ExampleCall]:
    """A file whose further inputs are the matrices that its call uses.

    Args:
        file: its declaration.
        example: its call.
        modules: as `matrix_modules` returns them.
    """
    axes = {name: {int(f".{_PARTS[1]}." in name): _RANK} for name in modules}
    # The rank of the example is not that of the adapter, so that it stays dynamic.
    matrices: Inputs = {}
    for seed, (name, module) in enumerate(modules.items()):
        weight: Any = module.weight
        shape = [_EXAMPLE_RANK if axis in axes[name] else size for axis, size in enumerate(weight.shape)]
        matrices[name] = random_tensor(*shape, dtype=weight.dtype, seed=seed) / 10

    def run(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> Any:
        import torch

        from ...torch_boundary.process.process_state import replace_attribute

        with contextlib.ExitStack() as stack:
            for name, module in modules.items():
                forward = functools.partial(_multiply, torch.nn.functional.linear, inputs[name])
                stack.enter_context(replace_attribute(module, "forward", forward))
            call_inputs = {name: tensor for name, tensor in inputs.items() if name not in modules}
            return example.call(model, call_inputs, past)

    return (
        dataclasses.replace(file, inputs={**file.inputs, **axes}),
        dataclasses.replace(example, call=run, inputs={**example.inputs, **matrices}),
    )


def _multiply(linear: Any, matrix: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    product: torch.Tensor = linear(states, matrix)
    return product


def set_defaults(model: ir.Model, matrices: Mapping[str, np.ndarray]) -> None:
    """Give the inputs of a graph the matrices of an adapter as values, which a caller may replace.

    Args:
        model: to change.
        matrices: by the names of the inputs.
    """
    for value in model.graph.inputs:
        matrix = matrices.get(str(value.name))
        if matrix is not None and value.dtype is not None:
            value.const_value = ir.tensor(matrix.astype(value.dtype.numpy()), name=value.name)
            model.graph.register_initializer(value)
