"""Tiny pipelines of diffusers with random weights."""

from __future__ import annotations

import json
import pathlib

import diffusers
import torch
import transformers
from tokenizers import Tokenizer, models

_CLIP = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
    "bos_token_id": 48,
    "eos_token_id": 49,
    "pad_token_id": 49,
    "projection_dim": 16,
}
_BLOCKS = {
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
}


def _unet(**settings: object) -> diffusers.UNet2DConditionModel:
    return diffusers.UNet2DConditionModel(
        **_BLOCKS,
        sample_size=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        attention_head_dim=4,
        **settings,
    )


def _autoencoder(**settings: object) -> diffusers.AutoencoderKL:
    return diffusers.AutoencoderKL(
        **_BLOCKS,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        **settings,
    )


def _tokenizer(folder: pathlib.Path) -> transformers.CLIPTokenizer:
    """A tokenizer of single characters."""
    letters = "abcdefghijklmnopqrstuvw"
    entries = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({entry: index for index, entry in enumerate(entries)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return transformers.CLIPTokenizer.from_pretrained(folder, model_max_length=16)


def stable_diffusion(folder: pathlib.Path) -> diffusers.StableDiffusionPipeline:
    """Write a Stable Diffusion 1."""
    torch.manual_seed(0)
    pipeline = diffusers.StableDiffusionPipeline(
        text_encoder=transformers.CLIPTextModel(transformers.CLIPTextConfig(**_CLIP)),
        tokenizer=_tokenizer(folder / "tokenizer"),
        unet=_unet(cross_attention_dim=16),
        vae=_autoencoder(latent_channels=4),
        scheduler=diffusers.DDIMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder)
    return pipeline


def stable_diffusion_xl(folder: pathlib.Path) -> diffusers.StableDiffusionXLPipeline:
    """Write a Stable Diffusion XL, whose autoencoder needs float32."""
    torch.manual_seed(0)
    encoders = [transformers.CLIPTextModel, transformers.CLIPTextModelWithProjection]
    first, second = (encoder(transformers.CLIPTextConfig(**_CLIP)) for encoder in encoders)
    pipeline = diffusers.StableDiffusionXLPipeline(
        text_encoder=first,
        text_encoder_2=second,
        tokenizer=_tokenizer(folder / "tokenizer"),
        tokenizer_2=_tokenizer(folder / "tokenizer_2"),
        unet=_unet(
            cross_attention_dim=32,
            addition_embed_type="text_time",
            addition_time_embed_dim=4,
            projection_class_embeddings_input_dim=40,
        ),
        vae=_autoencoder(latent_channels=4, force_upcast=True),
        scheduler=diffusers.EulerDiscreteScheduler(),
    )
    pipeline.save_pretrained(folder)
    return pipeline


def _t5(width: int) -> transformers.T5EncoderModel:
    return transformers.T5EncoderModel(
        transformers.T5Config(vocab_size=50, d_model=width, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    )


def _t5_tokenizer() -> transformers.PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({f"w{index}": index for index in range(50)}, unk_token="w2"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="w0", eos_token="w1")


def stable_diffusion_3(folder: pathlib.Path) -> diffusers.StableDiffusion3Pipeline:
    """Write a Stable Diffusion 3."""
    torch.manual_seed(0)
    first, second = (
        transformers.CLIPTextModelWithProjection(transformers.CLIPTextConfig(**_CLIP)) for _ in range(2)
    )
    pipeline = diffusers.StableDiffusion3Pipeline(
        text_encoder=first,
        text_encoder_2=second,
        text_encoder_3=_t5(32),
        tokenizer=_tokenizer(folder / "tokenizer"),
        tokenizer_2=_tokenizer(folder / "tokenizer_2"),
        tokenizer_3=_t5_tokenizer(),
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=16,
            patch_size=2,
            in_channels=4,
            num_layers=1,
            attention_head_dim=8,
            num_attention_heads=2,
            caption_projection_dim=16,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            out_channels=4,
            pos_embed_max_size=16,
        ),
        vae=_autoencoder(latent_channels=4, shift_factor=0.06),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
    )
    pipeline.save_pretrained(folder)
    return pipeline


def flux(folder: pathlib.Path) -> diffusers.FluxPipeline:
    """Write a Flux."""
    torch.manual_seed(0)
    pipeline = diffusers.FluxPipeline(
        text_encoder=transformers.CLIPTextModel(transformers.CLIPTextConfig(**_CLIP)),
        text_encoder_2=_t5(16),
        tokenizer=_tokenizer(folder / "tokenizer"),
        tokenizer_2=_t5_tokenizer(),
        transformer=diffusers.FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=16,
            pooled_projection_dim=16,
            guidance_embeds=True,
            axes_dims_rope=(4, 4, 8),
        ),
        vae=_autoencoder(latent_channels=4, shift_factor=0.06),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
    )
    pipeline.save_pretrained(folder)
    return pipeline
