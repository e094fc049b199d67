"""Images at the places that a mask marks, videos as images, and texts of encoders that contain images."""

import numpy as np
import pytest
import torch
import transformers

import opsetta
from opsetta.exporter.huggingface.encoder_decoders import _ends_with_projector, _reads_images_in_texts
from opsetta.exporter.huggingface.image_text import _features_method

from ...sweep import model_types, small_models
from .test_image_text import write_model


def kosmos2():
    text = {"vocab_size": 99, "embed_dim": 32, "layers": 1, "ffn_dim": 32, "attention_heads": 4}
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    return transformers.Kosmos2Config(
        text_config={**text, "max_position_embeddings": 64},
        vision_config={**vision, "image_size": 16, "patch_size": 8},
        latent_query_num=3,
    )


def test_features_take_the_places_of_a_mask(tmp_path):
    """The first prompt begins with padding, whose positions count in all calls but the first."""
    model = write_model("Kosmos2ForConditionalGeneration", kosmos2(), tmp_path)
    opsetta.export_huggingface(tmp_path, tmp_path / "out", task="image-text-to-text", opset=13)
    generator = opsetta.TextGenerator(tmp_path / "out")
    pad = model.config.text_config.pad_token_id
    tokens = torch.tensor([[pad, pad, 5, 9, 9, 9, 6, 7], [4, 8, 5, 9, 9, 9, 10, 11]])
    inputs = {
        "input_ids": tokens,
        "attention_mask": (tokens != pad).long(),
        "pixel_values": torch.randn(2, 3, 16, 16),
        "image_embeds_position_mask": tokens == 9,
    }
    expected = model.generate(**inputs, max_new_tokens=12, do_sample=False)
    result = generator.generate(**inputs, max_new_tokens=12)
    np.testing.assert_array_equal(result[:, : expected.shape[1]], expected)
    with pytest.raises(opsetta.UsageError, match="have 3 features, and the tokens 6 image tokens"):
        generator.generate(**{**inputs, "pixel_values": inputs["pixel_values"][:1]})


def build_on_meta(architecture, model_type):
    with torch.device("meta"):
        return getattr(transformers, architecture)(small_models.small_config(model_type))


def test_encoders_tell_what_they_read():
    in_texts = build_on_meta("T5Gemma2ForConditionalGeneration", "t5gemma2")
    of_projector = build_on_meta("PPFormulaNetForConditionalGeneration", "pp_formulanet")
    assert _reads_images_in_texts(in_texts)
    assert not _ends_with_projector(in_texts.get_encoder())
    assert not _reads_images_in_texts(of_projector)
    assert _ends_with_projector(of_projector.get_encoder())


def test_videos_are_the_images_of_models_without_others():
    model = build_on_meta("InstructBlipVideoForConditionalGeneration", "instructblipvideo")
    method = _features_method(model, "image")
    assert method is not None
    assert method.__name__ == "get_video_features"
    assert _features_method(model, "audio") is None


@pytest.mark.sweep
@pytest.mark.parametrize("model_type", ["t5gemma2", "pp_formulanet", "instructblipvideo", "llama4"])
def test_tokens_of_small_models_are_those_of_transformers(model_type, tmp_path):
    task = "image-text-to-text"
    architecture = small_models.tasks_of(model_type, model_types._tables())[task]
    [row] = model_types._sweep_task(model_type, task, architecture, (13,), tmp_path)
    assert row["outcome"] == model_types.RIGHT, row
