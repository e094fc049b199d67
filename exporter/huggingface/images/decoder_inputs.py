"""What decoders read of images besides embeddings: positions, masks, and features for inner layers."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ....registration import UsageError
from ..graphs import BATCH, SEQUENCE, ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .positions import grid_positions

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

DEEPSTACK_EMBEDS, LAYER_EMBEDS = "deepstack_embeds", "per_layer_inputs"
EMBEDDINGS = ("inputs_embeds", LAYER_EMBEDS)
"""The outputs of the file of embeddings: those of tokens, and those for the layers of the decoder."""
TYPES = "token_type_ids"
DECODER_ARGUMENTS = frozenset(
    {
        "input_ids",
        "inputs_embeds",
        "attention_mask",
        "position_ids",
        "past_key_values",
        "use_cache",
        "logits_to_keep",
        "labels",
        "kwargs",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
    }
)
"""What a decoder reads that takes the features of images as embeddings, and as nothing else."""


def with_grid_positions(source: TaskModel, call: ExampleCall) -> ExampleCall:
    """The call of a decoder whose tokens have a position in time, one in height and one in width.

    Raises:
        UsageError: the model numbers the tokens of images in another way than `opsetta generate`.
    """
    import torch

    config: Any = source.config
    get_rope_index = getattr(getattr(source.model, "model", source.model), "get_rope_index", None)
    if get_rope_index is None:
        return call
    merge = config.vision_config.spatial_merge_size
    grids = torch.tensor([[1, 2 * merge, 3 * merge], [1, 4 * merge, merge]])
    image = config.image_token_id
    text = (image + 1) % config.get_text_config(decoder=True).vocab_size
    # Some models count the images by the tokens before them.
    start = getattr(config, "vision_start_token_id", None) or text
    tokens = torch.tensor([[start, *[image] * 6, text, start, *[image] * 4, text]])
    mask = torch.ones_like(tokens)
    expected: torch.Tensor | None = None
    # A model that numbers more than the tokens of images refuses these, with whatever error it likes.
    with contextlib.suppress(ValueError, TypeError, LookupError, RuntimeError, AttributeError):
        types = {"mm_token_type_ids": (tokens == image).int()}
        if not types.keys() <= inspect.signature(get_rope_index).parameters.keys():
            types = {}
        expected, _ = get_rope_index(tokens, image_grid_thw=grids, attention_mask=mask, **types)
    computed = torch.from_numpy(grid_positions(tokens.numpy(), mask.numpy(), image, grids.numpy(), merge))
    if expected is None or not torch.equal(expected.transpose(0, 1), computed):
        raise UsageError(
            f"{type(source.model).__name__} numbers the positions of images in a way that image-text-to-text "
            "does not support: export its parts with opsetta.huggingface and export_for_generation"
        )
    inputs = {**call.inputs, "position_ids": torch.stack([call.inputs["position_ids"]] * 3)}
    axes = {**call.other_axes, "position_ids": {1: BATCH, 2: SEQUENCE}}
    return dataclasses.replace(call, inputs=inputs, other_axes=axes)


def with_deepstack(source: TaskModel, call: ExampleCall, layers: int) -> ExampleCall:
    """The call of a decoder that adds features of images to the results of its first layers.

    Args:
        source: the model.
        call: of the decoder.
        layers: the number of these layers.
    """
    batch, length, width = call.inputs["inputs_embeds"].shape
    features = random_tensor(batch, layers, length, width, dtype=source.model.dtype, seed=1)

    # transformers adds features at the image tokens alone, a number that depends on values.
    def add(hidden_states: torch.Tensor, mask: torch.Tensor, embeds: torch.Tensor) -> torch.Tensor:
        return hidden_states + embeds

    def run(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> Any:
        from ...torch_boundary.process.process_state import replace_attribute

        embeds = inputs[DEEPSTACK_EMBEDS]
        arguments = {"deepstack_visual_embeds": list(embeds.unbind(1)), "visual_pos_masks": embeds}
        decoder = _decoder_of(model)
        with (
            replace_attribute(decoder, "_deepstack_process", add),
            replace_arguments(decoder, lambda _: arguments),
        ):
            call_inputs = {name: tensor for name, tensor in inputs.items() if name != DEEPSTACK_EMBEDS}
            return call.call(model, call_inputs, past)

    return dataclasses.replace(call, call=run, inputs={**call.inputs, DEEPSTACK_EMBEDS: features})


def with_joined_prompt(call: ExampleCall) -> ExampleCall:
    """The call of a decoder whose tokens of the prompt attend to each other: `token_type_ids` is 0 for them.

    transformers reads the types in the first call only, and a graph for all calls must always read them.
    """
    import torch

    types = torch.zeros_like(call.inputs["attention_mask"])
    types[:, -1] = 1

    def run(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> Any:
        create_masks = getattr(type(model), "create_masks_for_generate")  # noqa: B009

        def make_masks(**arguments: Any) -> object:
            return create_masks(model.config, token_type_ids=inputs[TYPES], **arguments)

        with replace_decoder_masks(model, inputs["attention_mask"], make_masks):
            call_inputs = {name: tensor for name, tensor in inputs.items() if name != TYPES}
            return call.call(model, call_inputs, past)

    return dataclasses.replace(call, call=run, inputs={**call.inputs, TYPES: types})


@contextlib.contextmanager
def replace_decoder_masks(
    model: PreTrainedModel, attention_mask: torch.Tensor, make_masks: Callable[..., object]
) -> Iterator[None]:
    """Within the context, the decoder reads other masks than the model makes, which are not used.

    Args:
        model: with the decoder.
        attention_mask: 0 for padding.
        make_masks: takes this mask, and the embeddings, cache and positions by their names.
    """

    def replace(arguments: dict[str, Any]) -> dict[str, Any]:
        names = ("inputs_embeds", "past_key_values", "position_ids")
        masks = make_masks(attention_mask=attention_mask, **{name: arguments[name] for name in names})
        return {"attention_mask": masks}

    with replace_arguments(_decoder_of(model), replace):
        yield


def with_marked_images(call: ExampleCall, argument: str = TYPES) -> ExampleCall:
    """The call of a decoder whose tokens of an image attend to each other: `token_type_ids` is 1 for them.

    Args:
        call: of the decoder.
        argument: the name that the model has for the types.
    """
    import torch

    types = torch.zeros_like(call.inputs["attention_mask"])
    past = types.shape[1] - call.inputs["inputs_embeds"].shape[1]
    # An image that begins in the past.
    types[:, past - 1 : past + 2] = 1

    def run(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> Any:
        named = {argument if name == TYPES else name: tensor for name, tensor in inputs.items()}
        return call.call(model, named, past)

    return dataclasses.replace(call, call=run, inputs={**call.inputs, TYPES: types})


def embed_by_model(
    model: PreTrainedModel, inputs: Inputs, past: Pairs
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The embeddings of tokens that a model gives its decoder, and those that each layer of that reads.

    Some models replace the tokens of images and sounds first, or embed them in another way. They run up to
    the call of their decoder.
    """
    embeddings: dict[str, torch.Tensor] = {}

    def record(arguments: dict[str, Any]) -> dict[str, Any]:
        embeddings.update((name, arguments[name]) for name in EMBEDDINGS if arguments.get(name) is not None)
        raise _EmbeddingsReached

    with contextlib.suppress(_EmbeddingsReached), replace_arguments(_decoder_of(model), record):
        type(model).forward(model, **inputs, use_cache=False)
    return tuple(embeddings.values())


class _EmbeddingsReached(Exception):
    """A model is about to call its decoder."""


def with_layer_embeddings(source: TaskModel, call: ExampleCall) -> ExampleCall:
    """The call of a decoder whose layers read embeddings of the tokens."""
    config: Any = source.config.get_text_config(decoder=True)
    batch, length, _ = call.inputs["inputs_embeds"].shape
    embeddings = random_tensor(
        batch,
        length,
        config.num_hidden_layers,
        config.hidden_size_per_layer_input,
        dtype=source.model.dtype,
        seed=1,
    )
    return dataclasses.replace(call, inputs={**call.inputs, LAYER_EMBEDS: embeddings})


def _decoder_of(model: PreTrainedModel) -> torch.nn.Module:
    decoder: torch.nn.Module = model.get_decoder()
    return decoder


@contextlib.contextmanager
def replace_arguments(
    module: torch.nn.Module, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> Iterator[None]:
    """Within the context, a module is called with other arguments.

    Args:
        module: which is called with arguments by name.
        change: takes these arguments, and returns others in place of some of them.
    """

    def replace(
        module: torch.nn.Module, positional: tuple[object, ...], named: dict[str, Any]
    ) -> tuple[tuple[object, ...], dict[str, Any]]:
        return positional, {**named, **change(named)}

    hook = module.register_forward_pre_hook(replace, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
