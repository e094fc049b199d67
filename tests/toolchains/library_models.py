"""The architectures of timm and transformers, at their real structure and small sizes.

The list was written before the results of its models in any consumer were known. A fault that one of them
shows is mended for its form; the list stays.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..torchvision_operators import SCHEMAS
from ..trained_weights import FirstTensor
from .own_models import Case

TIMM: dict[str, dict[str, Any]] = {
    "resnet10t": {},
    "seresnext26d_32x4d": {"layers": [1, 1, 1, 1]},
    "res2net50_26w_4s": {"layers": [1, 1, 1, 1]},
    "regnety_002": {},
    "densenet121": {"block_config": (2, 2, 2, 2)},
    "dla46_c": {},
    "hrnet_w18_small": {},
    "hgnetv2_b0": {},
    "hardcorenas_a": {},
    "mnasnet_small": {},
    "mixnet_s": {},
    "mobilenetv3_small_050": {},
    "mobilenetv4_conv_small_035": {},
    "mobilenetv4_hybrid_medium": {},
    "mobileone_s0": {},
    "efficientnet_lite0": {},
    "tinynet_e": {},
    "lcnet_035": {},
    "ghostnet_050": {},
    "repghostnet_050": {},
    "repvit_m0_9": {},
    "starnet_s1": {},
    "convnext_atto": {},
    "convnextv2_atto": {},
    "inception_next_atto": {},
    "edgenext_xx_small": {},
    "mobilevit_xxs": {},
    "mobilevitv2_050": {},
    "fastvit_t8": {},
    "efficientvit_b0": {},
    "efficientvit_m0": {},
    "efficientformer_l1": {},
    "levit_128s": {},
    "vit_tiny_patch16_224": {"img_size": 64, "depth": 2},
    "deit_tiny_distilled_patch16_224": {"img_size": 64, "depth": 2},
    "vit_relpos_small_patch16_224": {"img_size": 64, "depth": 2},
    "eva02_tiny_patch14_224": {"img_size": 56, "depth": 2},
    "beit_base_patch16_224": {"img_size": 64, "depth": 2, "embed_dim": 96, "num_heads": 3},
    "cait_xxs24_224": {"img_size": 64, "depth": 2},
    "xcit_nano_12_p16_224": {"img_size": 64, "depth": 2},
    "tnt_s_patch16_224": {"img_size": 64, "depth": 2},
    "swin_tiny_patch4_window7_224": {
        "img_size": 56, "embed_dim": 24, "depths": (2, 2, 2), "num_heads": (1, 2, 4),
    },
    "swinv2_tiny_window8_256": {
        "img_size": 64, "embed_dim": 24, "depths": (2, 2, 2), "num_heads": (1, 2, 4),
    },
    "coat_lite_tiny": {"img_size": 64, "serial_depths": (1, 1, 1, 1)},
    "pvt_v2_b0": {},
    "poolformer_s12": {},
    "twins_svt_small": {"depths": [1, 1, 2, 1]},
    "maxvit_rmlp_pico_rw_256": {"img_size": 64},
    "crossvit_tiny_240": {},
    "resnest14d": {},
    "skresnet18": {"layers": [1, 1, 1, 1]},
    "dpn48b": {"k_sec": (1, 1, 1, 1)},
    "ese_vovnet19b_dw": {},
    "tresnet_m": {"layers": [1, 1, 1, 1]},
    "nf_regnet_b0": {},
    "regnetz_005": {},
    "gcvit_xxtiny": {},
    "nextvit_small": {},
    "sequencer2d_s": {"layers": [1, 1, 1, 1]},
    "hiera_tiny_224": {"stages": (1, 1, 2, 1)},
    "tiny_vit_5m_224": {},
    "volo_d1_224": {"img_size": 64},
    "visformer_tiny": {"img_size": 64, "depth": (2, 1, 1)},
    "coatnet_nano_rw_224": {"img_size": 64, "depths": (1, 1, 1, 1)},
    "gmlp_s16_224": {"img_size": 64},
    "mambaout_femto": {},
    "davit_tiny": {"depths": (1, 1, 1, 1)},
    "focalnet_tiny_srf": {},
    "convit_tiny": {"img_size": 64, "depth": 3, "local_up_to_layer": 2},
}  # fmt: skip
"""The names of timm's models, and the arguments that make them small."""
IMAGE_SIZES = {
    "efficientformer_l1": 224,
    "efficientvit_m0": 224,
    "levit_128s": 224,
    "crossvit_tiny_240": 240,
    "gcvit_xxtiny": 224,
    "hiera_tiny_224": 224,
    "tiny_vit_5m_224": 224,
}
"""The image sizes of models that take only one and have no argument `img_size`; otherwise 64."""

_HEADS = {"num_attention_heads": 4}
_TEXT = {"vocab_size": 100, "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64}
_DECODER = {**_TEXT, **_HEADS, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
_IMAGE = {"image_size": 64, "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, **_HEADS}
_SPEECH = {
    "vocab_size": 20, "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, **_HEADS,
    "conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2),
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Architecture:
    """A model class of transformers, its configuration's, the inputs' names in `_feeds`, and sizes."""

    model: str
    configuration: str
    inputs: str
    options: dict[str, Any]


TRANSFORMERS = {
    name: _Architecture(*values)
    for name, values in {
        "ConvNeXt": (
            "ConvNextForImageClassification", "ConvNextConfig", "images",
            {"depths": [1, 1], "hidden_sizes": [8, 16], "num_stages": 2},
        ),
        "ViT": ("ViTForImageClassification", "ViTConfig", "images", _IMAGE),
        "Swin": (
            "SwinForImageClassification", "SwinConfig", "images",
            {"image_size": 64, "depths": [2, 2], "embed_dim": 16, "num_heads": [2, 4], "window_size": 4},
        ),
        "BERT": ("BertModel", "BertConfig", "masked", {**_TEXT, **_HEADS}),
        "GPT-2": (
            "GPT2LMHeadModel", "GPT2Config", "tokens",
            {"vocab_size": 100, "n_layer": 2, "n_embd": 32, "n_head": 4},
        ),
        "Llama": ("LlamaForCausalLM", "LlamaConfig", "tokens", {**_TEXT, **_HEADS, "num_key_value_heads": 2}),
        "T5 encoder": (
            "T5EncoderModel", "T5Config", "masked",
            {"vocab_size": 100, "d_model": 32, "num_layers": 2, "d_ff": 64, "num_heads": 4, "d_kv": 8},
        ),
        "DistilBERT": (
            "DistilBertModel", "DistilBertConfig", "masked",
            {"vocab_size": 100, "n_layers": 2, "dim": 32, "hidden_dim": 64, "n_heads": 4},
        ),
        "ALBERT": (
            "AlbertForSequenceClassification", "AlbertConfig", "masked",
            {**_TEXT, **_HEADS, "embedding_size": 16},
        ),
        "RoBERTa": ("RobertaForTokenClassification", "RobertaConfig", "masked", {**_TEXT, **_HEADS}),
        "MPNet": ("MPNetModel", "MPNetConfig", "masked", {**_TEXT, **_HEADS}),
        "DeBERTa-v2": (
            "DebertaV2ForSequenceClassification", "DebertaV2Config", "masked",
            {**_TEXT, **_HEADS, "relative_attention": True, "pos_att_type": ["p2c", "c2p"],
             "position_buckets": 8, "max_relative_positions": 16},
        ),
        "ModernBERT": (
            "ModernBertForMaskedLM", "ModernBertConfig", "masked",
            {**_TEXT, **_HEADS, "local_attention": 8, "pad_token_id": 0, "cls_token_id": 1,
             "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
        ),
        "Qwen2": ("Qwen2ForCausalLM", "Qwen2Config", "tokens", {**_TEXT, **_HEADS, "num_key_value_heads": 2}),
        "Gemma": ("GemmaForCausalLM", "GemmaConfig", "tokens", _DECODER),
        "Phi": ("PhiForCausalLM", "PhiConfig", "tokens", {**_TEXT, **_HEADS}),
        "Mamba": (
            "MambaForCausalLM", "MambaConfig", "tokens",
            {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 1, "state_size": 4},
        ),
        "CLIP vision": ("CLIPVisionModel", "CLIPVisionConfig", "images", {**_IMAGE, "patch_size": 16}),
        "SigLIP vision": ("SiglipVisionModel", "SiglipVisionConfig", "images", {**_IMAGE, "patch_size": 16}),
        "DINOv2": (
            "Dinov2ForImageClassification", "Dinov2Config", "images",
            {"image_size": 64, "patch_size": 16, "num_hidden_layers": 2, "hidden_size": 32, **_HEADS},
        ),
        "SegFormer": (
            "SegformerForSemanticSegmentation", "SegformerConfig", "images",
            {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "decoder_hidden_size": 32,
             "num_attention_heads": [1, 2, 3, 4]},
        ),
        "YOLOS": (
            "YolosForObjectDetection", "YolosConfig", "images",
            {**_IMAGE, "image_size": [64, 64], "num_detection_tokens": 8},
        ),
        "DPT": (
            "DPTForDepthEstimation", "DPTConfig", "images",
            {**_IMAGE, "num_hidden_layers": 4, "patch_size": 16, "backbone_out_indices": [0, 1, 2, 3],
             "neck_hidden_sizes": [8, 16, 24, 32], "fusion_hidden_size": 16},
        ),
        "Whisper encoder": (
            "WhisperForAudioClassification", "WhisperConfig", "spectrogram",
            {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 64,
             "num_mel_bins": 16, "max_source_positions": 32, "vocab_size": 100, "decoder_layers": 1,
             "decoder_attention_heads": 4, "decoder_ffn_dim": 64, "pad_token_id": 0},
        ),
        "Wav2Vec2": ("Wav2Vec2ForCTC", "Wav2Vec2Config", "waveform", _SPEECH),
        "HuBERT": ("HubertForCTC", "HubertConfig", "waveform", _SPEECH),
        "Audio spectrogram transformer": (
            "ASTForAudioClassification", "ASTConfig", "frames",
            {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, **_HEADS,
             "max_length": 64, "num_mel_bins": 16, "patch_size": 8},
        ),
        "PatchTST": (
            "PatchTSTForPrediction", "PatchTSTConfig", "series",
            {"num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8,
             "prediction_length": 8, "d_model": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
             "ffn_dim": 32, "loss": "mse"},
        ),
        "PatchTSMixer": (
            "PatchTSMixerForPrediction", "PatchTSMixerConfig", "series",
            {"num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8,
             "prediction_length": 8, "d_model": 16, "num_layers": 2, "loss": "mse"},
        ),
        "ELECTRA": (
            "ElectraForTokenClassification", "ElectraConfig", "masked",
            {**_TEXT, **_HEADS, "embedding_size": 16},
        ),
        "SqueezeBERT": (
            "SqueezeBertForSequenceClassification", "SqueezeBertConfig", "masked",
            {**_TEXT, **_HEADS, "embedding_size": 32},
        ),
        "FNet": ("FNetForMaskedLM", "FNetConfig", "tokens", {**_TEXT, "max_position_embeddings": 32}),
        "BLOOM": (
            "BloomForCausalLM", "BloomConfig", "tokens",
            {"vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        ),
        "OPT": (
            "OPTForCausalLM", "OPTConfig", "masked",
            {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 64, **_HEADS,
             "max_position_embeddings": 32, "word_embed_proj_dim": 16},
        ),
        "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoXConfig", "tokens", {**_TEXT, **_HEADS}),
        "Swin2SR": (
            "Swin2SRForImageSuperResolution", "Swin2SRConfig", "images",
            {"image_size": 64, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4,
             "upscale": 2},
        ),
        "CvT": (
            "CvtForImageClassification", "CvtConfig", "images",
            {"embed_dim": [16, 24, 32], "num_heads": [1, 2, 4], "depth": [1, 2, 3]},
        ),
        "WavLM": ("WavLMForCTC", "WavLMConfig", "waveform", _SPEECH),
        "MobileViT segmentation": (
            "MobileViTForSemanticSegmentation", "MobileViTConfig", "images",
            {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 24, 32, 40, 64],
             "aspp_out_channels": 16, "atrous_rates": [2, 3, 4]},
        ),
    }.items()
}  # fmt: skip
"""The models of transformers."""


def _feeds(inputs: str) -> dict[str, torch.Tensor]:
    tokens = torch.randint(3, 100, (1, 16))
    return {
        "images": {"pixel_values": torch.randn(1, 3, 64, 64)},
        "tokens": {"input_ids": tokens},
        "masked": {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)},
        "spectrogram": {"input_features": torch.randn(1, 16, 64)},
        "frames": {"input_values": torch.randn(1, 64, 16)},
        "waveform": {"input_values": torch.randn(1, 1600)},
        "series": {"past_values": torch.randn(1, 32, 3)},
    }[inputs]


def import_package(name: str) -> Any:
    """Import a package of models.

    Both import torchvision, whose binaries need the build of torch that they were made with. The models of
    the list use none of torchvision's operators, so where these are missing their schemas are enough.

    Raises:
        ImportError: the package is not installed.
    """
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            torch.library.define(f"torchvision::{operator}", SCHEMAS["nms"])
    return importlib.import_module(name)


def _build_timm(name: str) -> Case:
    model = import_package("timm").create_model(name, pretrained=False, num_classes=10, **TIMM[name])
    size = IMAGE_SIZES.get(name, TIMM[name].get("img_size", 64))
    return model, {"pixels": torch.randn(1, 3, size, size)}


def _build_transformers(name: str) -> Case:
    architecture, transformers = TRANSFORMERS[name], import_package("transformers")
    config = getattr(transformers, architecture.configuration)(**architecture.options)
    config.use_cache = False
    feeds = _feeds(architecture.inputs)
    model: nn.Module = getattr(transformers, architecture.model)(config)
    return FirstTensor(model, list(feeds)), feeds


BUILDERS: dict[str, Callable[[str], Case]] = {
    **dict.fromkeys(TIMM, _build_timm),
    **dict.fromkeys(TRANSFORMERS, _build_transformers),
}
