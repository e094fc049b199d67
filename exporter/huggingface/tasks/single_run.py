"""Models that run once per input: features, classes, boxes and masks of texts, images and sounds."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ....registration import UsageError
from ..graphs import Axes, ExampleCall, Inputs, Pairs, TaskModel, trial_run
from ..images import grids
from ..images.naflex import PATCH_MASK, SHAPES, positions_in_graph
from ..timm_models import has_fixed_images
from .example_inputs import (
    LANGUAGES,
    MARKUP_INPUTS,
    SERIES_INPUTS,
    SOUND_INPUTS,
    SOUND_MASK,
    MakeInput,
    has_bins_first,
    has_dynamic_frames,
    has_sound_channels,
    make_inputs,
    masks_sounds,
    sound_mask,
    vision_config,
)
from .modalities import main_input, reads_pages, returns

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_MASK = "attention_mask"
TEXT_INPUTS = ("input_ids", _MASK, "token_type_ids", "bbox", *MARKUP_INPUTS, LANGUAGES)


def features(
    source: TaskModel, inputs: Mapping[str, Axes], outputs: tuple[str, ...] = ("last_hidden_state",)
) -> list[ExampleCall]:
    """The call that gives the last hidden state; of an encoder-decoder, that of its encoder.

    Args:
        source: the model.
        inputs: as for `example_calls`.
        outputs: of which the first is taken, or those that a model has instead.

    Raises:
        UsageError: the model has other inputs or outputs.
    """
    part = part_with_features(source.model)
    parameters = inspect.signature(type(part).forward).parameters.values()
    required = [
        item.name
        for item in parameters
        if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD
    ]
    if required[2:] in ([grids.GRID], [grids.GRID, grids.ENCODER_MERGES], [grids.GRIDS]):
        return [grids.features_call(source)]
    # Detectors by texts compute their states from both.
    combines = {"input_ids", "pixel_values"} <= {*required}
    alternatives = tuple(output for output in outputs[1:] if returns(part, output))
    returned = alternatives if alternatives and not returns(part, outputs[0]) else outputs[:1]
    return example_calls(source, inputs, returned, combines=combines, part_of=part_with_features)


def part_with_features(model: PreTrainedModel) -> PreTrainedModel:
    """The part that gives the features: the encoder of an encoder-decoder, or else the whole model.

    Detectors such as DETR run whole, too: their encoders read the features of a backbone.
    """
    if not getattr(model.config, "is_encoder_decoder", False):
        return model
    encoder: PreTrainedModel = model.get_encoder()
    reads_pixels = model.main_input_name == "pixel_values"
    if reads_pixels and "pixel_values" not in inspect.signature(type(encoder).forward).parameters:
        return model
    return encoder


def text_classes(source: TaskModel, inputs: Mapping[str, Axes]) -> list[ExampleCall]:
    """The call that gives the logits of classes.

    An encoder-decoder classifies the state of the last end token of each text. transformers selects it with a
    mask, and refuses texts without an end token, or with different numbers of them.

    Args:
        source: the model.
        inputs: as for `example_calls`.

    Raises:
        UsageError: the model has other inputs.
    """
    [example] = example_calls(source, inputs, ("logits",))
    model = source.model
    if not (getattr(model.config, "is_encoder_decoder", False) and hasattr(model, "classification_head")):
        return [example]
    # T5 shifts the text for its decoder in the class with the head, BART in its base class.
    shift = getattr(type(model), "_shift_right", None)

    def call(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, ...]:
        import torch

        tokens = inputs["input_ids"]
        decoder_inputs = {} if shift is None else {"decoder_input_ids": shift(model, tokens)}
        states = model.base_model(**inputs, **decoder_inputs, use_cache=False)[0]
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        last = (tokens.eq(model.config.eos_token_id) * positions).argmax(dim=1)
        return (model.get_submodule("classification_head")(token_at(states, last)),)

    return [dataclasses.replace(example, call=call)]


def token_at(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The states `[batch, width]` at a position of each text, from `[batch, length, width]`."""
    indices = positions[:, None, None].expand(-1, 1, tokens.shape[-1])
    return tokens.gather(1, indices).squeeze(1)


def example_calls(
    source: TaskModel,
    inputs: Mapping[str, Axes],
    outputs: tuple[str, ...],
    *,
    combines: bool = False,
    replacements: Mapping[str, MakeInput] | None = None,
    part_of: Callable[[PreTrainedModel], PreTrainedModel] = lambda model: model,
) -> list[ExampleCall]:
    """The call that gives the declared outputs, if the model returns them.

    Args:
        source: the model.
        inputs: the dynamic axes of the inputs of the task.
        outputs: the names of results.
        combines: whether the call takes all of the inputs, or only those beside the model's main one.
        replacements: other functions that make examples, by the name of the input.
        part_of: the part of the model that runs.

    Raises:
        UsageError: the model has other inputs, or returns none of the outputs.
    """
    model = source.model
    parameters = inspect.signature(type(part_of(model)).forward).parameters
    taken_inputs = {name: axes for name, axes in inputs.items() if name in parameters}
    if SHAPES not in taken_inputs:
        taken_inputs.pop(PATCH_MASK, None)
    if not combines:
        main_name = main_input(model, part_of(model))
        if main_name not in taken_inputs:
            raise UsageError(
                f"models with the input {main_name} are not supported for this task: export the "
                "model with opsetta.export"
            )
        names: tuple[str, ...] = (main_name, PATCH_MASK, SHAPES, *SERIES_INPUTS)
        if main_name == "input_ids":
            # The image of a page is an input beside its text.
            names = (*TEXT_INPUTS, "pixel_values") if reads_pages(parameters) else TEXT_INPUTS
        taken_inputs = {name: axes for name, axes in taken_inputs.items() if name in names}
    examples = make_inputs(source, taken_inputs, replacements)
    other_axes: dict[str, Axes] = {}
    if SHAPES in examples:
        other_axes["pixel_values"] = inputs[PATCH_MASK]
    if "input_features" in examples and has_dynamic_frames(source.config):
        batch, frames = inputs["input_features"].values()
        other_axes["input_features"] = {0: batch, 2: frames}
    if "input_values" in examples and has_sound_channels(source.config):
        batch, samples = inputs["input_values"].values()
        other_axes["input_values"] = {0: batch, 2: samples}
    sound = next((name for name in SOUND_INPUTS if name in examples), None)
    # The processors of models with a mask of another name always make it.
    mask = SOUND_MASK if SOUND_MASK in parameters and SOUND_MASK in inputs else _MASK
    if sound is not None and mask in parameters and (mask != _MASK or masks_sounds(source)):
        axis = 2 if sound == "input_features" and has_bins_first(source.config) else 1
        masked = {**examples, mask: sound_mask(examples[sound].transpose(1, axis))}
        examples = {name: masked[name] for name in inputs if name in masked}
        # Lengths of spectrograms with their bins first are fixed.
        other_axes[mask] = {**inputs[sound]} if axis == 1 else {0: inputs[sound][0]}
    _check_required(model, parameters.values(), examples)
    fixed = {"use_cache": False} if "use_cache" in parameters else {}
    # A single output needs no trial: every model of the task has it, or the call says so.
    returned = outputs if len(outputs) == 1 else _select_outputs(source, examples, outputs)

    def call(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, ...]:
        part = part_of(model)
        with positions_in_graph(part):
            results = type(part).forward(part, **inputs, **fixed)
        if returned[0] not in results:
            raise UsageError(
                f"{type(model).__name__} returns {', '.join(results)}, not {returned[0]}: export the model "
                "with opsetta.export"
            )
        return tuple(results[name] for name in returned)

    # Where the configuration names a size, positions are counted for it.
    names_size = hasattr(vision_config(source), "image_size") or has_fixed_images(source.config)
    fixed_sizes = "pixel_values" in examples and names_size
    return [ExampleCall(call, examples, other_axes=other_axes, outputs=returned, has_fixed_sizes=fixed_sizes)]


def _check_required(
    model: PreTrainedModel, parameters: Iterable[inspect.Parameter], examples: Inputs
) -> None:
    """Refuse a model that needs another input than those of the examples.

    Raises:
        UsageError: the message names the input.
    """
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.name not in {"self", *examples}
    ]
    if required:
        raise UsageError(
            f"{type(model).__name__} needs the input {required[0]}, which this task does not have: export "
            "the model with opsetta.export"
        )


def _select_outputs(source: TaskModel, examples: Inputs, outputs: tuple[str, ...]) -> tuple[str, ...]:
    """The outputs that the model returns.

    Raises:
        UsageError: there is none of them.
    """
    unmasked = {name: example for name, example in examples.items() if name != "attention_mask"}
    results = trial_run(source.model, unmasked, use_cache=False)
    returned = tuple(name for name in outputs if getattr(results, name, None) is not None)
    if not returned:
        raise UsageError(
            f"{type(source.model).__name__} returns {', '.join(results)}, not {', '.join(outputs)}: export "
            "the model with opsetta.export"
        )
    return returned
