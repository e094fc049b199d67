"""Builds a model from a checkpoint with quantized weights."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from ....registration import ModelFileError, UsageError
from .formats import Tensors
from .matrix import QuantizedMatrix
from .method import QuantizationMethod

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

LoadingInfo = Mapping[str, Iterable[Sequence[str]]]
"""What `from_pretrained` says: the names of missing weights, and names and shapes of mismatched ones."""
_SCALES = ".scales"


@dataclasses.dataclass(frozen=True)
class QuantizedCheckpoint:
    """A checkpoint, with its quantized layers apart.

    Attributes:
        method: of the quantized layers.
        layers: the tensors of each quantized layer, by the name of the layer.
        plain_tensors: all other tensors by name.
    """

    method: QuantizationMethod
    layers: Mapping[str, Tensors]
    plain_tensors: Mapping[str, ir.TensorProtocol]

    def replace_layers(self, model: PreTrainedModel) -> dict[str, ir.TensorProtocol] | None:
        """Give a model modules with integers as weights, in the place of its linear layers.

        Args:
            model: on the meta device.

        Returns:
            The tensors of the changed model, by the names of the checkpoint; None if the model has a layer of
            another class.

        Raises:
            ModelFileError: the tensors of a layer contradict each other or the model.
        """
        from .dequantized_linear import DequantizedLinear, ScaledActivation

        modules = dict(model.named_modules())
        prefix = f"{model.base_model_prefix}."
        paths: dict[str, str] = {}
        for name in (*self.layers, *self._activations()):
            candidates = (name, f"{prefix}{name}", name.removeprefix(prefix))
            path = next((candidate for candidate in candidates if candidate in modules), None)
            # A checkpoint may have layers that the task does not need, such as its head.
            if path is not None:
                paths[name] = path
        tensors = dict(self.plain_tensors)
        for name, path in paths.items():
            module = modules[path]
            if name not in self.layers:
                channels = int(self.plain_tensors[name + _SCALES].size)
                model.set_submodule(path, ScaledActivation(module, channels, model.dtype))
                continue
            weight = getattr(module, "weight", None)
            if weight is None or weight.dim() != 2:
                return None
            # GPT-2 has layers of its own class, whose weights are transposed.
            columns, rows = weight.shape if type(module).__name__ == "Conv1D" else reversed(weight.shape)
            matrix = self._read_matrix(name, columns)
            stored_rows = matrix.codes.shape.numpy()[0]
            if stored_rows != rows:
                raise ModelFileError(
                    f"the quantized layer '{name}' has {stored_rows} outputs, and {rows} in the model"
                )
            bias = getattr(module, "bias", None)
            stored_bias = self.plain_tensors.get(f"{name}.bias")
            if bias is None and stored_bias is not None:
                # AutoGPTQ gives layers a bias that have none in the model.
                bias = weight.new_empty(tuple(stored_bias.shape.numpy()))
            model.set_submodule(path, DequantizedLinear(matrix, model.dtype, bias))
            tensors |= {f"{name}.{key}": tensor for key, tensor in matrix.tensors.items()}
        return tensors

    def load_dequantized(
        self, model: PreTrainedModel, dtype: torch.dtype
    ) -> tuple[PreTrainedModel, LoadingInfo]:
        """The model with its weights in floating-point numbers, and what transformers says about it.

        Args:
            model: of the same class and configuration.
            dtype: of its weights.

        Raises:
            UsageError: activations of the model would have to be changed, too.
            ModelFileError: the tensors of a layer contradict each other.
        """
        import torch

        if activations := self._activations():
            raise UsageError(
                f"the checkpoint has other names than the model, and scales of '{activations[0]}', which is "
                "not supported together: export a folder with the original weights"
            )

        # The names of plain layers, which transformers renames and joins as for other checkpoints.
        state = {}
        for name, tensor in self.plain_tensors.items():
            array = tensor.numpy()
            # numpy has no bfloat16 of its own, which torch could take over.
            state[name] = torch.tensor(array if array.dtype.isbuiltin == 1 else array.astype(np.float32))
        for name in self.layers:
            state[f"{name}.weight"] = torch.from_numpy(self._read_matrix(name, None).dequantize())
        model_class: Any = type(model)
        loaded, loading_info = model_class.from_pretrained(
            None, config=copy.deepcopy(model.config), state_dict=state, dtype=dtype, output_loading_info=True
        )
        return loaded, loading_info

    def _read_matrix(self, name: str, columns: int | None) -> QuantizedMatrix:
        try:
            return self.method.format.read(self.layers[name], self.method.settings, columns)
        except (KeyError, ValueError) as error:
            raise ModelFileError(f"the quantized layer '{name}' cannot be read: {error}") from error

    def _activations(self) -> list[str]:
        """The activations that AWQ divides by constants: they have scales and no integers."""
        return [
            name.removesuffix(_SCALES)
            for name in self.plain_tensors
            if name.endswith(_SCALES) and self.method.name.startswith("awq")
        ]


def separate_layers(
    tensors: Mapping[str, ir.TensorProtocol], method: QuantizationMethod
) -> QuantizedCheckpoint:
    """The quantized layers of a checkpoint, and its other tensors.

    Raises:
        ModelFileError: there is no quantized layer.
    """
    layer_format = method.format
    suffix = f".{layer_format.weight}"
    names = {name.removesuffix(suffix) for name in tensors if name.endswith(suffix)}
    # The name of the weight may be that of plain layers, too.
    scale = next(part for part in layer_format.parameters if part.endswith(("scales", "scale")))
    names = {name for name in names if f"{name}.{scale}" in tensors}
    if not names:
        raise ModelFileError(
            f"the configuration says that the weights are quantized ({method.name}), and the checkpoint has "
            f"no layer with a tensor '{layer_format.weight}'"
        )
    layers: dict[str, dict[str, ir.TensorProtocol]] = {name: {} for name in sorted(names)}
    plain_tensors: dict[str, ir.TensorProtocol] = {}
    for name, tensor in tensors.items():
        layer, _, part = name.rpartition(".")
        if layer in layers and part in (layer_format.weight, *layer_format.parameters):
            layers[layer][part] = tensor
        else:
            plain_tensors[name] = tensor
    return QuantizedCheckpoint(method, layers, plain_tensors)
