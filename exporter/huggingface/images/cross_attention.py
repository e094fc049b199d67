"""Images that decoders attend to in layers of their own: Mllama.

transformers computes the keys and values of these layers in the first call, and keeps them in the cache. Here
the file of the images computes them, and each call of the decoder reads them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types
from typing import TYPE_CHECKING, Any

from ....registration import UsageError
from ..graphs import BATCH, EXAMPLE_BATCH, SEQUENCE, ExampleCall, Inputs, Pairs, TaskModel, random_tensor
from .decoder_inputs import replace_arguments
from .grids import FEATURES
from .tiles import IMAGES

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

STATES, MASK = "cross_attention_states", "cross_attention_mask"
"""The keys and values of the images, and the tiles that each token attends to."""
RATIOS, TILE_MASK = "aspect_ratio_ids", "aspect_ratio_mask"
_EXAMPLE_IMAGES = 3
_TELLS_CACHED_STATES = "_has_cached_cross_attention_states"


def encode_call(source: TaskModel) -> ExampleCall:
    """The call that gives the keys and values of images, from their tiles."""
    import torch

    config: Any = source.config.vision_config
    shape = (EXAMPLE_BATCH, _EXAMPLE_IMAGES, config.max_num_tiles)
    pixels = random_tensor(
        *shape, config.num_channels, config.image_size, config.image_size, dtype=source.model.dtype
    )
    mask = torch.ones(shape, dtype=torch.int64)
    mask[0, -1, 1:] = 0
    ratios = torch.arange(EXAMPLE_BATCH * _EXAMPLE_IMAGES).reshape(shape[:2])
    inputs = {
        "pixel_values": pixels,
        RATIOS: ratios % (len(config.supported_aspect_ratios) + 1),
        TILE_MASK: mask,
    }
    axes = {name: {0: BATCH, 1: IMAGES} for name in inputs}
    return ExampleCall(_encode, inputs, other_axes=axes, outputs=FEATURES)


def _attentions(model: PreTrainedModel) -> list[Any]:
    """The attention of each layer that reads images."""
    return [module for module in model.modules() if type(module).__name__ == "MllamaTextCrossAttention"]


def _encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
    """Keys and values, one layer after the other: `[batch, tensors, images, positions, heads, width]`."""
    import torch

    owner: Any = getattr(model, "model")  # noqa: B009
    states = owner.multi_modal_projector(owner.vision_model(**inputs).last_hidden_state).flatten(2, 3)
    parts: list[torch.Tensor] = []
    for attention in _attentions(model):
        shape = (attention.num_key_value_heads, attention.head_dim)
        keys, values = (
            project(states).unflatten(-1, shape) for project in (attention.k_proj, attention.v_proj)
        )
        parts += [attention.k_norm(keys), values]
    return torch.stack(parts, dim=1)


def with_cross_attention(source: TaskModel, call: ExampleCall) -> ExampleCall:
    """The call of a decoder that reads the keys and values of images, and a mask of their tiles.

    Raises:
        UsageError: this release of transformers leaves out the layers in a way that cannot be changed.
    """
    import torch

    config: Any = source.config.vision_config
    attentions = _attentions(source.model)
    module = sys.modules[type(source.model).__module__]
    if not hasattr(module, _TELLS_CACHED_STATES):
        raise UsageError("Mllama needs a newer release of transformers: pip install --upgrade transformers")
    batch, length = call.inputs["inputs_embeds"].shape[:2]
    positions = config.max_num_tiles * ((config.image_size // config.patch_size) ** 2 + 1)
    heads, width = attentions[0].num_key_value_heads, attentions[0].head_dim
    states = random_tensor(
        batch, 2 * len(attentions), _EXAMPLE_IMAGES, positions, heads, width, dtype=source.model.dtype, seed=1
    )
    mask = torch.ones(batch, length, _EXAMPLE_IMAGES, config.max_num_tiles, dtype=torch.int64)
    # Tokens before an image, and the tiles that it does not have.
    mask[0, 0] = mask[-1, :, -1, 1:] = 0

    def run(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> Any:
        from ...torch_boundary.process.process_state import replace_attribute

        # `[batch, heads, positions of all images, width]`
        parts = [part.flatten(1, 2).transpose(1, 2) for part in inputs[STATES].unbind(1)]
        with contextlib.ExitStack() as stack:
            stack.enter_context(replace_attribute(module, _TELLS_CACHED_STATES, lambda *_: True))
            for attention, keys, values in zip(_attentions(model), parts[::2], parts[1::2], strict=True):
                layers = {attention.layer_idx: types.SimpleNamespace(keys=keys, values=values)}
                cache = types.SimpleNamespace(layers=layers)

                def read_cache(_: dict[str, Any], cache: object = cache) -> dict[str, Any]:
                    return {"past_key_values": cache}

                stack.enter_context(replace_arguments(attention, read_cache))
            decoder_inputs = {name: tensor for name, tensor in inputs.items() if name != STATES}
            return call.call(model, decoder_inputs, past)

    axes = {**call.other_axes, MASK: {0: BATCH, 1: SEQUENCE, 2: IMAGES}, STATES: {0: BATCH, 2: IMAGES}}
    return dataclasses.replace(
        call, call=run, inputs={**call.inputs, MASK: mask, STATES: states}, other_axes=axes
    )
