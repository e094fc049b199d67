"""Tiny models with random weights for the tasks, as a class of transformers and its configuration."""

from __future__ import annotations

from collections.abc import Callable

import transformers

_LAYER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
_TEXT = {**_LAYER, "vocab_size": 50, "max_position_embeddings": 64}
_VISION = {**_LAYER, "image_size": 32, "patch_size": 8}


def bert() -> transformers.BertConfig:
    return transformers.BertConfig(**_TEXT)


def speech() -> transformers.Wav2Vec2Config:
    return transformers.Wav2Vec2Config(
        **_LAYER,
        vocab_size=20,
        conv_dim=(16, 16),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=8,
        tdnn_dim=(16, 16, 16),
        tdnn_kernel=(3, 3, 1),
        tdnn_dilation=(1, 2, 1),
        xvector_output_dim=8,
    )


def detr() -> transformers.DetrConfig:
    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[64, 64, 64, 64],
        depths=[1, 1, 1, 1],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    return transformers.DetrConfig(
        backbone_config=backbone,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_queries=5,
    )


def segformer() -> transformers.SegformerConfig:
    return transformers.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 8],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        patch_sizes=[7, 3],
        strides=[4, 2],
        decoder_hidden_size=8,
    )


def dpt() -> transformers.DPTConfig:
    return transformers.DPTConfig(
        **{**_VISION, "num_hidden_layers": 4},
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8,
    )


def vitpose() -> transformers.VitPoseConfig:
    backbone = transformers.VitPoseBackboneConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=[32, 48],
        patch_size=[16, 16],
        out_indices=[1],
    )
    return transformers.VitPoseConfig(backbone_config=backbone)


def siglip_of_patches() -> transformers.Siglip2Config:
    """The positions of patches are resized to each image, to fewer rows and to more columns."""
    return transformers.Siglip2Config(
        text_config={**_TEXT, "projection_size": 16},
        vision_config={**_LAYER, "patch_size": 4, "num_patches": 64},
    )


def clip() -> transformers.CLIPConfig:
    return transformers.CLIPConfig(text_config=_TEXT, vision_config=_VISION, projection_dim=8)


def llava() -> transformers.LlavaConfig:
    return transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**_TEXT).to_dict(),
        vision_config=transformers.CLIPVisionConfig(**_VISION).to_dict(),
        image_token_index=49,
    )


def dpr() -> transformers.DPRConfig:
    return transformers.DPRConfig(**_TEXT)


def tables() -> transformers.TapasConfig:
    return transformers.TapasConfig(**_TEXT)


def videoprism() -> transformers.PretrainedConfig:
    layers = {"num_spatial_layers": 1, "num_temporal_layers": 1, "num_auxiliary_layers": 1}
    sizes = {"image_size": 32, "num_frames": 2, "tubelet_size": [1, 8, 8]}
    width = {name: size for name, size in _LAYER.items() if name != "num_hidden_layers"}
    return transformers.VideoPrismConfig(text_config=_TEXT, vision_config={**width, **layers, **sizes})


def patches() -> transformers.PretrainedConfig:
    return transformers.CONFIG_MAPPING["qwen2_5_vl_vision"](
        hidden_size=16,
        out_hidden_size=16,
        intermediate_size=32,
        depth=2,
        num_heads=2,
        patch_size=4,
        window_size=16,
        fullatt_block_indexes=[1],
    )


def merged_patches() -> transformers.PretrainedConfig:
    return transformers.CONFIG_MAPPING["video_llama_3_vision"](**_LAYER, patch_size=4)


def convolved_patches() -> transformers.PretrainedConfig:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "patch_size": 4}
    return transformers.CONFIG_MAPPING["lfm3_vl_vision"](num_hidden_layers=2, head_dim=8, **sizes)


def blocks_of_patches() -> transformers.PretrainedConfig:
    sizes = {"projection_hidden_dim": 16, "text_hidden_size": 16, "patch_size": 4, "posemb_grid_size": 4}
    return transformers.CONFIG_MAPPING["inkling2_vision"](**_LAYER, **sizes)


def causal_sounds() -> transformers.PretrainedConfig:
    layer = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8}
    return transformers.CONFIG_MAPPING["voxtral_realtime_encoder"](
        **layer, intermediate_size=16, num_mel_bins=8, sliding_window=6
    )


def series() -> transformers.TimesFmConfig:
    layer = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8}
    return transformers.TimesFmConfig(**layer, intermediate_size=16, patch_length=4, context_length=24)


def masked_sounds() -> transformers.AudioFlamingo3EncoderConfig:
    return transformers.AudioFlamingo3EncoderConfig(**_LAYER, num_mel_bins=8, max_source_positions=12)


def image_encoder() -> transformers.PretrainedConfig:
    return transformers.CONFIG_MAPPING["smolvlm_vision"](**_VISION)


def decisions() -> transformers.DecisionTransformerConfig:
    return transformers.DecisionTransformerConfig(
        state_dim=5, act_dim=3, hidden_size=16, n_layer=1, n_head=2, max_ep_len=32
    )


def owlvit() -> transformers.OwlViTConfig:
    return transformers.OwlViTConfig(text_config=_TEXT, vision_config=_VISION, projection_dim=16)


def sam() -> transformers.SamConfig:
    sizes = {"image_size": 64, "patch_size": 8}
    layer = {"num_hidden_layers": 1, "num_attention_heads": 2, "mlp_dim": 16}
    return transformers.SamConfig(
        vision_config={
            **sizes,
            **layer,
            "hidden_size": 16,
            "output_channels": 8,
            "window_size": 4,
            "global_attn_indexes": [0],
            "num_pos_feats": 4,
        },
        prompt_encoder_config={**sizes, "hidden_size": 8, "mask_input_channels": 4},
        mask_decoder_config={**layer, "hidden_size": 8, "iou_head_hidden_dim": 8},
    )


def trocr() -> transformers.VisionEncoderDecoderConfig:
    decoder = transformers.TrOCRConfig(
        vocab_size=50,
        d_model=16,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=16,
        max_position_embeddings=32,
        cross_attention_hidden_size=16,
    )
    return transformers.VisionEncoderDecoderConfig(
        encoder=transformers.ViTConfig(**_VISION).to_dict(),
        decoder=decoder.to_dict(),
        decoder_start_token_id=1,
        pad_token_id=0,
    )


def whisper() -> transformers.WhisperConfig:
    return transformers.WhisperConfig(
        vocab_size=50,
        d_model=16,
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=16,
        num_mel_bins=8,
        max_source_positions=20,
    )


def time_series(configuration: type, **settings: int) -> transformers.PretrainedConfig:
    return configuration(
        num_input_channels=3,
        context_length=16,
        prediction_length=4,
        patch_length=4,
        patch_stride=4,
        d_model=16,
        **settings,
    )


def vits() -> transformers.VitsConfig:
    """Without noise, so that the result is not random."""
    return transformers.VitsConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=16,
        spectrogram_bins=17,
        flow_size=16,
        upsample_initial_channel=16,
        upsample_rates=[2, 2],
        upsample_kernel_sizes=[4, 4],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1]],
        prior_encoder_num_flows=2,
        duration_predictor_num_flows=2,
        wavenet_dilation_rate=1,
        prior_encoder_num_wavenet_layers=1,
        posterior_encoder_num_wavenet_layers=1,
        duration_predictor_filter_channels=16,
        depth_separable_num_layers=1,
        duration_predictor_flow_bins=4,
        noise_scale=0.0,
        noise_scale_duration=0.0,
    )


Build = Callable[[], transformers.PretrainedConfig]
MODELS: dict[str, tuple[str, str, Build]] = {
    "token-classification": ("token-classification", "BertForTokenClassification", bert),
    "question-answering": ("question-answering", "BertForQuestionAnswering", bert),
    "multiple-choice": ("multiple-choice", "BertForMultipleChoice", bert),
    "next-sentence": ("next-sentence-prediction", "BertForNextSentencePrediction", bert),
    "fill-mask": ("fill-mask", "BertForMaskedLM", bert),
    "layoutlm": (
        "document-question-answering",
        "LayoutLMForQuestionAnswering",
        lambda: transformers.LayoutLMConfig(**_TEXT),
    ),
    "layoutlmv3": (
        "document-question-answering",
        "LayoutLMv3ForQuestionAnswering",
        lambda: transformers.LayoutLMv3Config(
            **_TEXT, input_size=32, patch_size=16, coordinate_size=3, shape_size=2
        ),
    ),
    "layout-and-image-classes": (
        "token-classification",
        "LayoutLMv3ForTokenClassification",
        lambda: transformers.LayoutLMv3Config(
            **_TEXT, input_size=32, patch_size=16, coordinate_size=3, shape_size=2
        ),
    ),
    "markup": (
        "token-classification",
        "MarkupLMForTokenClassification",
        lambda: transformers.MarkupLMConfig(**_TEXT, max_depth=3, xpath_unit_hidden_size=4),
    ),
    "languages": (
        "fill-mask",
        "XmodForMaskedLM",
        # As many languages as the inputs of the test have numbers.
        lambda: transformers.XmodConfig(**_TEXT, languages=[f"language {index}" for index in range(20)]),
    ),
    "codec-of-sounds": (
        "feature-extraction",
        "PeAudioEncoder",
        lambda: transformers.PeAudioEncoderConfig(
            **_LAYER,
            num_key_value_heads=2,
            head_dim=8,
            dac_config={
                "encoder_hidden_size": 4,
                "downsampling_ratios": [2, 4],
                "hidden_size": 16,
                "codebook_dim": 8,
            },
        ),
    ),
    "layout-classes": (
        "token-classification",
        "LayoutLMForTokenClassification",
        lambda: transformers.LayoutLMConfig(**_TEXT),
    ),
    "ctc": ("automatic-speech-recognition", "Wav2Vec2ForCTC", speech),
    "ctc-of-spectrograms": (
        "automatic-speech-recognition",
        "Wav2Vec2BertForCTC",
        lambda: transformers.Wav2Vec2BertConfig(
            **_LAYER, vocab_size=20, feature_projection_input_dim=12, conv_depthwise_kernel_size=3
        ),
    ),
    "audio": ("audio-classification", "Wav2Vec2ForSequenceClassification", speech),
    "spectrogram-patches": (
        "audio-classification",
        "ASTForAudioClassification",
        lambda: transformers.ASTConfig(**_LAYER, max_length=32, num_mel_bins=16, patch_size=8),
    ),
    "spectrogram": ("audio-classification", "WhisperForAudioClassification", whisper),
    "frames": ("audio-frame-classification", "Wav2Vec2ForAudioFrameClassification", speech),
    "xvector": ("audio-xvector", "Wav2Vec2ForXVector", speech),
    "detection": ("object-detection", "DetrForObjectDetection", detr),
    "detection-of-one-size": (
        "object-detection",
        "YolosForObjectDetection",
        lambda: transformers.YolosConfig(**{**_VISION, "image_size": [32, 48]}, num_detection_tokens=5),
    ),
    "features-of-a-detector": ("feature-extraction", "DetrModel", detr),
    "segments": ("image-segmentation", "DetrForSegmentation", detr),
    "semantic": ("semantic-segmentation", "SegformerForSemanticSegmentation", segformer),
    "depth": ("depth-estimation", "DPTForDepthEstimation", dpt),
    "masked-image": (
        "masked-im",
        "ViTForMaskedImageModeling",
        lambda: transformers.ViTConfig(**_VISION, encoder_stride=8),
    ),
    "super-resolution": (
        "image-to-image",
        "Swin2SRForImageSuperResolution",
        lambda: transformers.Swin2SRConfig(
            image_size=16, patch_size=1, embed_dim=12, depths=[1], num_heads=[2], window_size=4
        ),
    ),
    "pose": ("keypoint-detection", "VitPoseForPoseEstimation", vitpose),
    "matching": ("keypoint-matching", "EfficientLoFTRForKeypointMatching", transformers.EfficientLoFTRConfig),
    "video": (
        "video-classification",
        "VideoMAEForVideoClassification",
        lambda: transformers.VideoMAEConfig(**_VISION, num_frames=4),
    ),
    "siglip2": ("zero-shot-image-classification", "Siglip2Model", siglip_of_patches),
    "clip": ("zero-shot-image-classification", "CLIPModel", clip),
    "owlvit": ("zero-shot-object-detection", "OwlViTForObjectDetection", owlvit),
    "sam": ("mask-generation", "SamModel", sam),
    "vits": ("text-to-audio", "VitsModel", vits),
    "patchtst": (
        "time-series-forecasting",
        "PatchTSTForPrediction",
        lambda: time_series(
            transformers.PatchTSTConfig, num_hidden_layers=1, num_attention_heads=2, ffn_dim=16
        ),
    ),
    "patchtsmixer": (
        "time-series-forecasting",
        "PatchTSMixerForPrediction",
        lambda: time_series(transformers.PatchTSMixerConfig, num_layers=1),
    ),
    "decisions": (
        "reinforcement-learning",
        "DecisionTransformerModel",
        decisions,
    ),
}
"""The task, the class and the configuration of each model."""
