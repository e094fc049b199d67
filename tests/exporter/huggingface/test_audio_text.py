"""Models that generate text about sounds: three files, and tokens as in transformers."""

import numpy as np
import pytest
import torch
import transformers

import opsetta
from opsetta.exporter.huggingface import audio_text

from .test_image_sizes import pad_left
from .test_image_text import TEXT, write_model

SOUND = TEXT["vocab_size"] - 1
BINS = 8
LAYER = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_mel_bins": BINS}
FIXED = {**LAYER, "max_source_positions": 12}


def llama(config_class, **audio):
    text = transformers.LlamaConfig(**TEXT)
    return config_class(audio_config=audio, text_config=text, audio_token_id=SOUND)


def qwen2_audio():
    audio = {"d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 64}
    return transformers.Qwen2AudioConfig(
        audio_config={**audio, "num_mel_bins": BINS, "max_source_positions": 12},
        text_config=transformers.Qwen2Config(**TEXT),
        audio_token_id=SOUND,
    )


def qwen3_asr():
    """Windows of two pieces of a hundred frames."""
    audio = {"d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 64}
    sizes = {"output_dim": 32, "n_window_infer": 200, "downsample_hidden_size": 8, "num_mel_bins": BINS}
    return transformers.Qwen3ASRConfig(
        audio_config={**audio, **sizes},
        text_config=transformers.Qwen3Config(**TEXT, head_dim=8),
        audio_token_id=SOUND,
        pad_token_id=0,
        eos_token_id=2,
    )


def in_fours(length):
    return ((length - 1) // 2 - 1) // 2 + 1


def in_eights(length):
    return (length + 1) // 2 // 4


def in_pieces(length):
    return length // 100 * 13 + -(-(length % 100) // 8)


@pytest.mark.parametrize(
    ("name", "config", "mask", "lengths", "count", "opset"),
    [
        ("Qwen2Audio", qwen2_audio(), "feature_attention_mask", [24, 24], in_fours, 13),
        ("Qwen3ASR", qwen3_asr(), "input_features_mask", [100, 500], in_pieces, 18),
        pytest.param(
            "GlmAsr",
            llama(transformers.GlmAsrConfig, **LAYER, intermediate_size=128),
            "input_features_mask",
            [16, 40],
            in_eights,
            18,
            marks=pytest.mark.sweep,
        ),
        pytest.param(
            "Voxtral",
            llama(transformers.VoxtralConfig, **FIXED, intermediate_size=128),
            None,
            [24, 24],
            in_eights,
            18,
            marks=pytest.mark.sweep,
        ),
        pytest.param(
            "AudioFlamingo3",
            llama(transformers.AudioFlamingo3Config, **FIXED, intermediate_size=64),
            "input_features_mask",
            [24, 24],
            in_fours,
            18,
            marks=pytest.mark.sweep,
        ),
    ],
)
def test_tokens_about_sounds_are_those_of_transformers(name, config, mask, lengths, count, opset, tmp_path):
    model = write_model(f"{name}ForConditionalGeneration", config, tmp_path)
    written = opsetta.export_huggingface(
        tmp_path, tmp_path / "out", opset=opset, task="text2text-generation-with-past"
    )
    assert written.task == "audio-text-to-text"
    files = ["embed_tokens.onnx", "audio_encoder.onnx", "decoder_model_merged.onnx"]
    assert [graph.path.name for graph in written.graphs] == files
    folder = opsetta.TextGenerator(tmp_path / "out")
    for length, batch in zip(lengths, (1, 2), strict=True):
        # A model without a mask reads sounds of one length.
        frames = torch.tensor([length, length - 6][:batch] if mask else [length] * batch)
        features = torch.randn(batch, BINS, length, generator=torch.Generator().manual_seed(batch))
        sounds = {"input_features": features}
        if mask:
            sounds[mask] = (torch.arange(length) < frames[:, None]).int()
        rows = [[3 + row, *[SOUND] * count(size), 5, 6] for row, size in enumerate(frames.tolist())]
        prompts = pad_left(rows)
        expected = model.generate(**prompts, **sounds, max_new_tokens=12, do_sample=False)
        np.testing.assert_array_equal(folder.generate(**prompts, **sounds, max_new_tokens=12), expected)
    wrong = {**prompts, "input_ids": prompts["input_ids"].clamp(max=SOUND - 1)}
    with pytest.raises(opsetta.UsageError, match=r"features, and the tokens 0 sound tokens \(99\)"):
        folder.generate(**wrong, **sounds)
    with pytest.raises(opsetta.UsageError, match="has no encoder of sounds: call generate with what its"):
        folder.transcribe(np.zeros(4))


def granite():
    layer = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    return transformers.GraniteSpeechConfig(
        text_config=transformers.GraniteConfig(**TEXT),
        encoder_config={
            "input_dim": 8,
            "num_layers": 2,
            "hidden_dim": 32,
            "num_heads": 4,
            "output_dim": 7,
            "context_size": 4,
        },
        projector_config={"model_type": "blip_2_qformer", **layer, "encoder_hidden_size": 32},
        has_lora_adapter=False,
        audio_token_index=SOUND,
    )


def test_features_that_a_mask_of_the_decoder_selects_are_refused(tmp_path, monkeypatch):
    monkeypatch.delitem(audio_text._ENCODERS, "GraniteSpeechModel")
    write_model("GraniteSpeechForConditionalGeneration", granite(), tmp_path)
    with pytest.raises(opsetta.UsageError, match="its features are selected by input_features_mask"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out", task="automatic-speech-recognition")


def masked_features(length):
    """Two sounds of a length, and the mask of their features, of which the second sound has fewer."""
    count = 3 * -(-length // 15)
    sounds = torch.randn(2, length, 8, generator=torch.Generator().manual_seed(length))
    return sounds, torch.arange(count) < torch.tensor([[count], [count - 2]])


@pytest.mark.parametrize("length", [5, 8, 15, 37])
def test_blocks_of_a_sound_are_those_of_transformers(length, tmp_path):
    """With a last block of one frame, and without padding."""
    model = write_model("GraniteSpeechForConditionalGeneration", granite(), tmp_path)
    sounds, mask = masked_features(length)
    with torch.no_grad():
        expected = model.get_audio_features(sounds).pooler_output[mask]
        inputs = {"input_features": sounds, "input_features_mask": mask.long()}
        result = audio_text.encode_in_blocks(model, inputs, [])
    torch.testing.assert_close(result, expected)


@pytest.mark.sweep
def test_tokens_about_sounds_in_blocks(tmp_path):
    model = write_model("GraniteSpeechForConditionalGeneration", granite(), tmp_path)
    task = "automatic-speech-recognition"
    opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13, task=task)
    folder = opsetta.TextGenerator(tmp_path / "out")
    for length in (8, 37):
        sounds, mask = masked_features(length)
        prompts = pad_left([[3, *[SOUND] * count, 5, 6] for count in mask.sum(1).tolist()])
        inputs = {**prompts, "input_features": sounds, "input_features_mask": mask}
        expected = model.generate(**inputs, max_new_tokens=12, do_sample=False)
        np.testing.assert_array_equal(folder.generate(**inputs, max_new_tokens=12), expected)


@pytest.mark.sweep
def test_sounds_with_their_frames_first(tmp_path):
    audio = {**LAYER, "intermediate_size": 64, "num_timestamp_prediction_layers": 0, "num_stacked_frames": 1}
    config = transformers.FunAsrNanoConfig(
        audio_config={"model_type": "fun_asr_nano_encoder", **audio},
        adaptor_config={
            "hidden_size": 32,
            "intermediate_size": 8,
            "num_attention_heads": 4,
            "num_hidden_layers": 1,
        },
        text_config={**TEXT, "model_type": "qwen3", "head_dim": 8},
        audio_token_id=SOUND,
    )
    model = write_model("FunAsrNanoForConditionalGeneration", config, tmp_path)
    task = "automatic-speech-recognition"
    opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13, task=task)
    folder = opsetta.TextGenerator(tmp_path / "out")
    for length in (7, 30):
        mask = (torch.arange(length) < torch.tensor([[length], [length - 3]])).long()
        prompts = pad_left([[3, *[SOUND] * count, 5, 6] for count in mask.sum(1).tolist()])
        sounds = torch.randn(2, length, BINS, generator=torch.Generator().manual_seed(length))
        inputs = {**prompts, "input_features": sounds, "input_features_mask": mask}
        expected = model.generate(**inputs, max_new_tokens=12, do_sample=False)
        np.testing.assert_array_equal(folder.generate(**inputs, max_new_tokens=12), expected)
