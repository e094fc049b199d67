"""Speech recognition by encoder-decoders whose sounds have a dynamic length."""

import json

import numpy as np
import pytest
import torch
import transformers

import opsetta

from ...models.generators import VOCABULARY, write_folder
from .task_models import speech

SPECIAL = {"vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}


def speech_to_text():
    return transformers.Speech2TextConfig(
        **SPECIAL,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        input_feat_per_channel=16,
        conv_channels=32,
    )


def moonshine():
    parts = {
        f"{part}_{name}": size
        for part in ("encoder", "decoder")
        for name, size in (("num_hidden_layers", 1), ("num_attention_heads", 4))
    }
    return transformers.MoonshineConfig(**SPECIAL, **parts, hidden_size=32, intermediate_size=64)


def two_parts():
    """A Wav2Vec2 and a BERT."""
    convolutions = {"conv_dim": (32, 32), "conv_stride": (5, 4), "conv_kernel": (10, 4)}
    encoder = transformers.Wav2Vec2Config(**SMALL, **convolutions, num_conv_pos_embeddings=16)
    decoder = transformers.BertConfig(
        vocab_size=VOCABULARY, **SMALL, is_decoder=True, add_cross_attention=True
    )
    config = transformers.SpeechEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 1, 0, 2
    return config


@pytest.mark.parametrize(
    ("architecture", "config", "name", "shape", "masks"),
    [
        pytest.param(
            "Speech2TextForConditionalGeneration",
            speech_to_text,
            "input_features",
            (61, 16),
            True,
            marks=pytest.mark.sweep,
        ),
        ("MoonshineForConditionalGeneration", moonshine, "input_values", (6100,), True),
        ("SpeechEncoderDecoderModel", two_parts, "input_values", (1220,), False),
    ],
    ids=["speech_to_text", "moonshine", "speech-encoder-decoder"],
)
def test_sounds_of_another_length(architecture, config, name, shape, masks, tmp_path):
    model = write_folder(architecture, config(), tmp_path / "model")
    if masks:
        write_extractor(tmp_path / "model")
    task = "automatic-speech-recognition"
    written = opsetta.export_huggingface(tmp_path / "model", tmp_path / "onnx", task=task, opset=13)
    assert written.graphs[0].inputs == [name, *(["attention_mask"] if masks else [])]
    generator = opsetta.TextGenerator(tmp_path / "onnx")
    inputs = {name: torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))}
    expected = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    np.testing.assert_array_equal(generator.generate(**inputs, max_new_tokens=8), expected)
    mask = torch.ones(2, shape[0], dtype=torch.long)
    mask[1, shape[0] // 2 :] = 0
    if not masks:
        with pytest.raises(opsetta.UsageError, match="no input for the mask of sounds"):
            generator.generate(**inputs, attention_mask=mask)
        return
    expected = model.generate(**inputs, attention_mask=mask, max_new_tokens=8, do_sample=False)
    results = generator.generate(**inputs, attention_mask=mask, max_new_tokens=8)
    np.testing.assert_array_equal(results, expected)


def write_extractor(folder):
    """The settings of a feature extractor that makes masks."""
    settings = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "return_attention_mask": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("Wav2Vec2ForCTC", "automatic-speech-recognition"),
        pytest.param("Wav2Vec2Model", "feature-extraction", marks=pytest.mark.sweep),
    ],
)
def test_padding_of_sounds_is_masked(architecture, task, tmp_path):
    config = speech()
    config.feat_extract_norm, config.do_stable_layer_norm = "layer", True
    model = write_folder(architecture, config, tmp_path / "model")
    write_extractor(tmp_path / "model")
    written = opsetta.export_huggingface(tmp_path / "model", tmp_path / "out", task=task, opset=13)
    program = opsetta.load(written.graphs[0].path)
    inputs = {"input_values": torch.randn(3, 700), "attention_mask": torch.ones(3, 700, dtype=torch.long)}
    inputs["attention_mask"][0, 350:] = inputs["attention_mask"][2, 560:] = 0
    [result] = program.run({key: tensor.numpy() for key, tensor in inputs.items()})
    with torch.no_grad():
        expected = model(**inputs)[written.graphs[0].outputs[0]]
    np.testing.assert_allclose(result, expected, atol=1e-4)
