"""Models of diffusers, with the names that optimum gives to their files, inputs and outputs."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ....registration import UsageError
from ..graphs import (
    BATCH,
    EXAMPLE_BATCH,
    EXAMPLE_SOURCE,
    SEQUENCE,
    Axes,
    ExampleCall,
    GraphFile,
    Inputs,
    Pairs,
    example_tokens,
    random_tensor,
)

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Calls = list[tuple[GraphFile, ExampleCall]]
"""The files of a model, each with the example call that it is exported from."""
Settings = Mapping[str, object]
"""The configuration of a model of diffusers."""

_IMAGE = {0: BATCH, 2: "height", 3: "width"}
_TEXT = {0: BATCH, 1: SEQUENCE}
# Multiples of the factor by which a model reduces its input. They differ from each other and from one.
_ROWS, _COLUMNS = 2, 3
_ADDED_CONDITIONS = ("text_embeds", "time_ids")


def calls_of(model: PreTrainedModel, name: str, class_name: str) -> Calls:
    """The files of a model of a pipeline.

    Args:
        model: of transformers or diffusers.
        name: that the pipeline gives the model; empty for a folder with one model only.
        class_name: of the model, one of `DIFFUSERS_CLASSES` or `TEXT_ENCODERS`.
    """
    make_calls = DIFFUSERS_CLASSES.get(class_name) or TEXT_ENCODERS[class_name]
    return make_calls(model, f"{name}/model.onnx" if name else "model.onnx")


def _text_encoder(model: PreTrainedModel, file: str, *, outputs: tuple[str, ...]) -> Calls:
    """An encoder of texts without a mask, as pipelines call it; its hidden states are for `clip_skip`."""
    layers = model.config.num_hidden_layers + 1 if "hidden_states" in outputs else 0
    names = (*(name for name in outputs if name != "hidden_states"),)

    def call(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, ...]:
        results = type(model).forward(model, **inputs, output_hidden_states=bool(layers))
        return (*(results[name] for name in names), *(results["hidden_states"][:layers] if layers else ()))

    graph_outputs = (*names, *(f"hidden_states.{layer}" for layer in range(layers)))
    example = ExampleCall(call, {"input_ids": example_tokens(model.config, EXAMPLE_SOURCE)})
    return [(GraphFile(file, {"input_ids": _TEXT}, graph_outputs), example)]


def _unet(model: PreTrainedModel, file: str) -> Calls:
    """A UNet that removes noise; with a text as its condition, or without.

    Raises:
        UsageError: it needs other conditions.
    """
    import torch

    settings = _settings(model)
    factor = 2 ** (len(_sizes(settings, "block_out_channels")) - 1)
    shape = (EXAMPLE_BATCH, _size(settings, "in_channels"), _ROWS * factor, _COLUMNS * factor)
    floats = functools.partial(random_tensor, dtype=model.dtype)
    # Schedulers have fractions of steps, which float16 rounds.
    examples: dict[str, tuple[Axes, torch.Tensor]] = {
        "sample": (_IMAGE, floats(*shape)),
        "timestep": ({}, torch.tensor(7.0)),
    }
    if settings.get("cross_attention_dim") is not None:
        # A UNet may project its texts first.
        width = settings.get("encoder_hid_dim") or settings["cross_attention_dim"]
        width = width[0] if isinstance(width, (list, tuple)) else width
        if not isinstance(width, int):
            raise UsageError(f"the configuration of the model has no size for its texts: {width!r}")
        examples["encoder_hidden_states"] = (_TEXT, floats(EXAMPLE_BATCH, EXAMPLE_SOURCE, width))
    if settings.get("addition_embed_type") == "text_time":
        # Six numbers: the original size, the crop and the target size, each embedded.
        numbers = 6
        embedded = numbers * _size(settings, "addition_time_embed_dim")
        text_width = _size(settings, "projection_class_embeddings_input_dim") - embedded
        if text_width <= 0:  # SDXL's refiner has five numbers.
            numbers, text_width = 5, text_width + _size(settings, "addition_time_embed_dim")
        examples["text_embeds"] = ({0: BATCH}, floats(EXAMPLE_BATCH, text_width))
        examples["time_ids"] = ({0: BATCH}, 8 * floats(EXAMPLE_BATCH, numbers).abs())
    if settings.get("time_cond_proj_dim") is not None:
        examples["timestep_cond"] = (
            {0: BATCH},
            floats(EXAMPLE_BATCH, _size(settings, "time_cond_proj_dim")),
        )
    if settings.get("class_embed_type") is not None or settings.get("num_class_embeds") is not None:
        raise UsageError("UNets with classes as conditions are not supported: use opsetta.export")

    def call(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, ...]:
        from ...torch_boundary.process.process_state import replace_attribute

        added = {name: inputs[name] for name in _ADDED_CONDITIONS if name in inputs}
        direct = {name: tensor for name, tensor in inputs.items() if name not in added}
        conditions = {"added_cond_kwargs": added} if added else {}
        # If a size is not a multiple of 2**num_upsamplers, each upsampling has the size of its residual. This
        # is right for all sizes, and a graph has no branch.
        factor_replaced = (
            replace_attribute(model, "num_upsamplers", _NoDivisor())
            if hasattr(model, "num_upsamplers")
            else contextlib.nullcontext()
        )
        with factor_replaced:
            return (type(model).forward(model, **direct, **conditions, return_dict=False)[0],)

    return _one_file(file, examples, call, "out_sample")


class _NoDivisor:
    """A stand-in for `num_upsamplers`: no size is a multiple of two to this power."""

    def __rpow__(self, base: int) -> _NoDivisor:
        return self

    def __rmod__(self, size: object) -> int:
        return 1


def _stable_diffusion_3(model: PreTrainedModel, file: str) -> Calls:
    settings = _settings(model)
    patch = _size(settings, "patch_size")
    shape = (EXAMPLE_BATCH, _size(settings, "in_channels"), 2 * _ROWS * patch, 2 * _COLUMNS * patch)
    examples = {
        "hidden_states": (_IMAGE, random_tensor(*shape, dtype=model.dtype)),
        **_conditions(model, settings),
    }
    return _one_file(file, examples, _run_transformer, "out_hidden_states")


def _flux(model: PreTrainedModel, file: str) -> Calls:
    import torch

    settings = _settings(model)
    positions = _ROWS * _COLUMNS + 1
    packed = {0: BATCH, 1: "packed_height_width"}
    shape = (EXAMPLE_BATCH, positions, _size(settings, "in_channels"))
    # Positions in the text are zeros, those in the image are row and column.
    image_ids = torch.stack([torch.arange(positions) * 0, *2 * [torch.arange(positions)]], dim=1)
    axes = len(_sizes(settings, "axes_dims_rope"))
    examples = {
        "hidden_states": (packed, random_tensor(*shape, dtype=model.dtype)),
        **_conditions(model, settings),
        "txt_ids": ({0: SEQUENCE}, torch.zeros(EXAMPLE_SOURCE, axes)),
        "img_ids": ({0: "packed_height_width"}, image_ids[:, :axes].float()),
    }
    if settings.get("guidance_embeds"):
        examples["guidance"] = ({0: BATCH}, torch.full((EXAMPLE_BATCH,), 3.5))
    return _one_file(file, examples, _run_transformer, "out_hidden_states")


def _conditions(model: PreTrainedModel, settings: Settings) -> dict[str, tuple[Axes, torch.Tensor]]:
    """The texts and the step of a transformer that removes noise."""
    import torch

    floats = functools.partial(random_tensor, dtype=model.dtype)
    text_shape = (EXAMPLE_BATCH, EXAMPLE_SOURCE, _size(settings, "joint_attention_dim"))
    return {
        "encoder_hidden_states": (_TEXT, floats(*text_shape)),
        "pooled_projections": (
            {0: BATCH},
            floats(EXAMPLE_BATCH, _size(settings, "pooled_projection_dim")),
        ),
        # Schedulers have fractions of steps, which float16 rounds.
        "timestep": ({0: BATCH}, torch.full((EXAMPLE_BATCH,), 0.7)),
    }


def _run_transformer(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, ...]:
    return (type(model).forward(model, **inputs, return_dict=False)[0],)


def _autoencoder(model: PreTrainedModel, file: str, *, latents: str) -> Calls:
    """An encoder from images to latents, and a decoder back, in folders of their own.

    Args:
        latents: the name of the encoder's output: the parameters of a distribution, or a sample.
    """
    settings = _settings(model)
    factor = 2 ** (len(_sizes(settings, "block_out_channels")) - 1)
    image_shape = (EXAMPLE_BATCH, _size(settings, "in_channels"), _ROWS * factor, _COLUMNS * factor)
    latent_shape = (EXAMPLE_BATCH, _size(settings, "latent_channels"), _ROWS, _COLUMNS)
    folder = file.removesuffix("model.onnx").removesuffix("vae/")

    def encode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, ...]:
        [encoded] = operator.methodcaller("encode", inputs["sample"], return_dict=False)(model)
        return (encoded.parameters if latents == "latent_parameters" else encoded,)

    def decode(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> tuple[torch.Tensor, ...]:
        [decoded] = operator.methodcaller("decode", inputs["latent_sample"], return_dict=False)(model)
        return (decoded,)

    image_axes = {0: BATCH, 2: "sample_height", 3: "sample_width"}
    latent_axes = {0: BATCH, 2: "latent_height", 3: "latent_width"}
    return [
        *_one_file(
            f"{folder}vae_encoder/model.onnx",
            {"sample": (image_axes, random_tensor(*image_shape, dtype=model.dtype))},
            encode,
            latents,
        ),
        *_one_file(
            f"{folder}vae_decoder/model.onnx",
            {"latent_sample": (latent_axes, random_tensor(*latent_shape, dtype=model.dtype))},
            decode,
            "sample",
        ),
    ]


def _one_file(
    file: str,
    examples: Mapping[str, tuple[Axes, torch.Tensor]],
    call: Callable[[PreTrainedModel, Inputs, Pairs], tuple[torch.Tensor, ...]],
    output: str,
) -> Calls:
    inputs = {name: axes for name, (axes, _) in examples.items()}
    tensors = {name: tensor for name, (_, tensor) in examples.items()}
    return [(GraphFile(file, inputs, (output,)), ExampleCall(call, tensors))]


def _settings(model: PreTrainedModel) -> Settings:
    return dict(model.config)


def _size(settings: Settings, name: str) -> int:
    """An integer of a configuration.

    Raises:
        UsageError: there is none.
    """
    size = settings.get(name)
    if not isinstance(size, int):
        raise UsageError(f"the configuration of the model has no number {name}, but {size!r}")
    return size


def _sizes(settings: Settings, name: str) -> list[object]:
    """A list of a configuration.

    Raises:
        UsageError: there is none.
    """
    sizes = settings.get(name)
    if not isinstance(sizes, (list, tuple)):
        raise UsageError(f"the configuration of the model has no list {name}, but {sizes!r}")
    return list(sizes)


DIFFUSERS_CLASSES: dict[str, Callable[[PreTrainedModel, str], Calls]] = {
    "UNet2DConditionModel": _unet,
    "UNet2DModel": _unet,
    "SD3Transformer2DModel": _stable_diffusion_3,
    "FluxTransformer2DModel": _flux,
    "AutoencoderKL": functools.partial(_autoencoder, latents="latent_parameters"),
    "AutoencoderTiny": functools.partial(_autoencoder, latents="latent_sample"),
}
"""The classes of diffusers that are supported."""
TEXT_ENCODERS: dict[str, Callable[[PreTrainedModel, str], Calls]] = {
    "CLIPTextModel": functools.partial(
        _text_encoder, outputs=("last_hidden_state", "pooler_output", "hidden_states")
    ),
    "CLIPTextModelWithProjection": functools.partial(
        _text_encoder, outputs=("text_embeds", "last_hidden_state", "hidden_states")
    ),
    "T5EncoderModel": functools.partial(_text_encoder, outputs=("last_hidden_state",)),
}
"""The classes of transformers that pipelines encode texts with."""
