"""One ONNX file of a task: its declaration, and the example call that is exported."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...registration import CaptureError
from .caches.cache_settings import CacheSettings

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel

BATCH, SEQUENCE, PAST, TOTAL = (
    "batch_size",
    "sequence_length",
    "past_sequence_length",
    "total_sequence_length",
)
SOURCE, WINDOW = "encoder_sequence_length", "past_window_length"
# Sizes in examples are all different: the capture would take equal sizes for one and the same dimension.
EXAMPLE_BATCH, EXAMPLE_SEQUENCE, EXAMPLE_WINDOW, EXAMPLE_PAST, EXAMPLE_SOURCE = 2, 3, 4, 5, 6
CACHE, PRESENT = "past_key_values", "present"
_LAYER = "{layer}"
DECODER_FILES = ("decoder_model.onnx", "decoder_with_past_model.onnx")
"""The files of the decoder of an encoder-decoder: for the first step, and for the later ones."""

Axes = Mapping[int, str]
"""The names of the dynamic axes of a tensor, by their number."""
Pairs = list[tuple["torch.Tensor", ...]]
"""Keys and values of each layer, and behind them those of cross-attention if the layer has one."""
Inputs = dict[str, "torch.Tensor"]
"""Inputs by the names of the model's arguments."""


@dataclasses.dataclass(frozen=True)
class TaskModel:
    """A model to export, with its configuration and the folder that both were read from.

    Attributes:
        model: of the folder.
        config: of the model.
        folder: with the files of both.
        cache: the form of the cache of a decoder.
    """

    model: PreTrainedModel
    config: PretrainedConfig
    folder: pathlib.Path
    cache: CacheSettings = dataclasses.field(default_factory=CacheSettings)


@dataclasses.dataclass(frozen=True)
class ExampleCall:
    """An example of the call that becomes an ONNX file.

    Attributes:
        call: takes the model, the inputs and the cache, and returns tensors in lists and tuples.
        inputs: example inputs.
        past: an example of the cache; empty if the call takes none.
        layers: the number of layers that return keys and values.
        states: the names and dynamic axes of the tensors in `past`, if its layers differ from each other.
        other_axes: the dynamic axes of inputs, where they are not those that the file declares.
        has_states: whether the model has a form of its own for one token, which continues from states.
        outputs: the declared outputs that the model returns; all of them by default.
        fixed_inputs: other example inputs, for a model that does not support the optional axes.
        has_fixed_sizes: whether the optional axes of the declaration are fixed by the model's configuration.
        runs_one_text: whether the file takes a past and several tokens for a single text only.
        fixed_axes: the names of dynamic axes that have the sizes of the example.
    """

    call: Callable[
        [PreTrainedModel, Inputs, Pairs], torch.Tensor | tuple[torch.Tensor, Pairs] | tuple[torch.Tensor, ...]
    ]
    inputs: Inputs
    past: Pairs = dataclasses.field(default_factory=list)
    layers: int = 0
    states: list[dict[str, Axes]] = dataclasses.field(default_factory=list)
    other_axes: Mapping[str, Axes] = dataclasses.field(default_factory=dict)
    has_states: bool = False
    outputs: tuple[str, ...] | None = None
    fixed_inputs: Inputs | None = None
    has_fixed_sizes: bool = False
    fixed_axes: frozenset[str] = frozenset()
    runs_one_text: bool = False

    @property
    def arguments(self) -> dict[str, torch.Tensor | Pairs]:
        """All example inputs by name, the cache too."""
        return {**self.inputs, CACHE: self.past} if self.past else {**self.inputs}

    @property
    def verified_arguments(self) -> dict[str, torch.Tensor | Pairs]:
        """Example inputs that the file can run with."""
        if not self.runs_one_text:
            return self.arguments
        past = [tuple(tensor[:1] for tensor in tensors) for tensors in self.past]
        return {**{name: tensor[:1] for name, tensor in self.inputs.items()}, CACHE: past}

    def with_float_interface(self) -> ExampleCall:
        """The call with inputs and outputs in float32, apart from the cache, for a model in another type."""
        import torch

        def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
            return tensor.to(dtype) if tensor.is_floating_point() else tensor

        def call(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> Any:
            results = self.call(model, {name: cast(inputs[name], model.dtype) for name in inputs}, past)
            if isinstance(results, torch.Tensor):
                return cast(results, torch.float32)
            return tuple(
                cast(result, torch.float32) if isinstance(result, torch.Tensor) else result
                for result in results
            )

        inputs = {name: cast(tensor, torch.float32) for name, tensor in self.inputs.items()}
        return dataclasses.replace(self, call=call, inputs=inputs)


@dataclasses.dataclass(frozen=True)
class GraphFile:
    """The declaration of an ONNX file: the same for all models of a task.

    Names with `{layer}` stand for one tensor of each layer that has it.

    Attributes:
        name: of the file.
        inputs: the dynamic axes of each input, in the order of the inputs. A model need not have all of them.
        outputs: the names of the outputs, in order.
        optional_axes: names of dynamic axes that a model need not support at other sizes than the example's,
            such as the height of images.
    """

    name: str
    inputs: Mapping[str, Axes]
    outputs: tuple[str, ...]
    optional_axes: frozenset[str] = frozenset()

    def with_fixed_axes(self) -> GraphFile:
        """The declaration without the optional axes."""
        inputs = {
            name: {axis: label for axis, label in axes.items() if label not in self.optional_axes}
            for name, axes in self.inputs.items()
        }
        return dataclasses.replace(self, inputs=inputs, optional_axes=frozenset())

    def input_names(self, example: ExampleCall) -> list[str]:
        """The names of the file's inputs for the model of an example."""
        return _names_of_cache(self._inputs_of(example), example, CACHE)

    def output_names(self, example: ExampleCall) -> list[str]:
        """The names of the file's outputs for the model of an example."""
        outputs = self.outputs if example.outputs is None else example.outputs
        return _names_of_cache(outputs, example, PRESENT)

    def dynamic_shapes(self, example: ExampleCall) -> dict[str, Axes | list[tuple[Axes, ...]]]:
        """The dynamic axes in the structure of the example's inputs."""
        inputs = self._inputs_of(example)
        # The declared axes of layers are those of plain caches; a window has others.
        declared = [axes for name, axes in inputs.items() if _LAYER not in name or not example.states]
        of_states = [axes for states in example.states for axes in states.values()]
        used = {label for axes in (*declared, *of_states) for label in axes.values()}
        # The model need not be tried with masks of another length than that of all tokens. A buffer that
        # new tokens are written to is longer than the past.
        has_past = bool(example.past) and not example.runs_one_text
        is_sum = has_past and {PAST, SEQUENCE} <= used - example.fixed_axes
        labels = {TOTAL: f"{TOTAL} = {PAST} + {SEQUENCE}"} if is_sum else {}

        def free(axes: Axes) -> dict[int, str]:
            return {
                axis: labels.get(label, label)
                for axis, label in axes.items()
                if label not in example.fixed_axes
            }

        shapes: dict[str, Axes | list[tuple[Axes, ...]]] = {
            name: free(axes) for name, axes in inputs.items() if _LAYER not in name
        }
        if example.past:
            layer_axes = tuple(free(axes) for name, axes in inputs.items() if _LAYER in name)
            of_layers: list[tuple[Axes, ...]] = [
                tuple(map(free, states.values())) for states in example.states
            ]
            shapes[CACHE] = of_layers or [layer_axes] * example.layers
        return shapes

    def _inputs_of(self, example: ExampleCall) -> dict[str, dict[int, str]]:
        # Names are given to the inputs of the graph by their order.
        assert list(example.inputs) == [name for name in self.inputs if name in example.inputs]
        return {
            name: dict(example.other_axes.get(name, axes))
            for name, axes in self.inputs.items()
            if name in example.arguments or name.partition(".")[0] in example.arguments
        }


def _names_of_cache(names: Iterable[str], example: ExampleCall, prefix: str) -> list[str]:
    """Replace the names with `{layer}` by those of all layers, behind the other names.

    Args:
        prefix: of the names of states.
    """
    names = list(names)
    names_of_layer = [name for name in names if _LAYER in name]
    return [
        *(name for name in names if _LAYER not in name),
        *(name.format(layer=layer) for layer in range(example.layers) for name in names_of_layer),
        *(f"{prefix}.{name}" for states in example.states for name in states),
    ]


def example_tokens(config: PretrainedConfig, length: int) -> torch.Tensor:
    """Make a batch of distinct tokens."""
    import torch

    size = config.get_text_config(decoder=True).vocab_size
    numbers = torch.arange(EXAMPLE_BATCH * length).reshape(EXAMPLE_BATCH, length)
    return torch.remainder(numbers * 7 + 3, size)


def example_text(config: PretrainedConfig) -> dict[str, torch.Tensor]:
    """Make a batch of tokens and their mask; the end of the first text is padding."""
    import torch

    mask = torch.ones(EXAMPLE_BATCH, EXAMPLE_SOURCE, dtype=torch.int64)
    mask[0, -2:] = 0
    return {"input_ids": example_tokens(config, EXAMPLE_SOURCE), "attention_mask": mask}


def random_tensor(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Make a deterministic random tensor."""
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def random_like(pairs: Pairs, length: int, dtype: torch.dtype) -> Pairs:
    """Make deterministic random keys and values of another length.

    Args:
        pairs: tensors `[batch, heads, length, channels]`, which may have no data.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    return [
        tuple(
            torch.randn(EXAMPLE_BATCH, part.shape[1], length, part.shape[3], generator=generator).to(dtype)
            for part in pair
        )
        for pair in pairs
    ]


def trial_run(
    model: PreTrainedModel,
    inputs: Mapping[str, torch.Tensor],
    *,
    use_cache: bool = True,
    call: Callable[..., Any] | None = None,
) -> Any:
    """Run the model to find names and shapes in its result; the values are meaningless.

    On the meta device nothing is computed. A model that asks for the value of a tensor runs with weights that
    are not initialized, whose memory is not used before it is written.

    Args:
        inputs: without masks, whose values models ask for.
        use_cache: whether the model returns a cache.
        call: takes the model and the arguments; by default its `forward`.

    Raises:
        CaptureError: the model fails.
    """
    import torch

    options = {"use_cache": True} if use_cache else {}

    def run(candidate: PreTrainedModel, device: torch.device | str) -> Any:
        with torch.no_grad():
            moved = {name: item.to(device) for name, item in inputs.items()}
            return (call or type(candidate).forward)(candidate, **moved, **options)

    try:
        # Some models make parameters by a constructor that ignores the meta device.
        if not any(parameter.is_meta for parameter in model.parameters()):
            return run(model, model.device)
        # The run of a copy: some models keep tensors of their last run.
        with contextlib.suppress(RuntimeError, NotImplementedError):
            return run(torch.nn.Module.to(copy.deepcopy(model), "meta"), "meta")
        empty = copy.deepcopy(model).to_empty(device="cpu")
        for buffer in empty.buffers():
            buffer.zero_()  # Positions, for example, are indices.
        return run(empty, "cpu")
    # What a model raises where it needs other inputs: transformers has no exception for this.
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise CaptureError(
            f"{type(model).__name__} cannot be exported: with {', '.join(inputs)} it fails: "
            f"{' '.join(str(error).split())} - choose another task, or export it with opsetta.export"
        ) from error
