"""Images of several sizes, padded to the largest one or in tiles: tokens as in transformers."""

import pytest
import torch
import transformers

import opsetta
from opsetta.exporter.huggingface.images import padded_images

from .test_image_sizes import compare, pad_left
from .test_image_text import IMAGE, TEXT, VISION, write_model

PATCH = VISION["patch_size"]
FEATURES = 3
BATCHES = ([[(2, 3)]], [[(2, 1)], [(1, 4), (3, 3)]], [[(1, 1), (4, 2)], []])
"""Texts with images, each of some rows and columns of patches, or of the blocks that are merged."""


def pixtral():
    return transformers.LlavaConfig(
        text_config=transformers.MistralConfig(**TEXT, head_dim=8),
        vision_config=transformers.PixtralVisionConfig(**VISION),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        image_token_index=IMAGE,
    )


def mistral3():
    return transformers.Mistral3Config(
        text_config=transformers.MistralConfig(**TEXT, head_dim=8),
        vision_config=transformers.PixtralVisionConfig(**VISION),
        vision_feature_layer=-1,
        spatial_merge_size=2,
        image_token_index=IMAGE,
    )


def lighton():
    return transformers.LightOnOcrConfig(
        text_config=transformers.Qwen3Config(**TEXT, head_dim=8),
        vision_config=transformers.PixtralVisionConfig(**VISION),
        spatial_merge_size=2,
        image_token_id=IMAGE,
    )


def idefics2():
    resampler = {"n_latents": FEATURES, "depth": 1, "n_heads": 4, "head_dim": 8}
    return transformers.Idefics2Config(
        text_config=transformers.MistralConfig(**TEXT, head_dim=8),
        vision_config={"model_type": "idefics2_vision", **VISION, "image_size": 32},
        perceiver_config={
            "num_key_value_heads": 2,
            "hidden_size": 32,
            **{f"resampler_{name}": size for name, size in resampler.items()},
        },
        image_token_id=IMAGE,
    )


def draw_images(sizes):
    """Images of some heights and widths, padded to the largest."""
    pixels = torch.zeros(len(sizes), 3, *(max(axis) for axis in zip(*sizes, strict=True)))
    for image, (height, width) in zip(pixels, sizes, strict=True):
        image[:, :height, :width].normal_(generator=torch.Generator().manual_seed(height + width))
    return pixels


def write_prompts(batch, features):
    """Texts with as many image tokens as each image has features."""
    return pad_left(
        [
            [3 + index, *(token for size in images for token in (*[IMAGE] * features(*size), 7)), 5, 6]
            for index, images in enumerate(batch)
        ]
    )


@pytest.mark.parametrize(
    ("architecture", "config", "opset"),
    [
        ("Mistral3ForConditionalGeneration", mistral3, 13),
        pytest.param("LlavaForConditionalGeneration", pixtral, 18, marks=pytest.mark.sweep),
        pytest.param("LightOnOcrForConditionalGeneration", lighton, 18, marks=pytest.mark.sweep),
    ],
)
def test_number_and_sizes_of_padded_images_are_dynamic(architecture, config, opset, tmp_path):
    config = config()
    model = write_model(architecture, config, tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=opset)
    assert written.graphs[1].inputs == ["pixel_values", "image_sizes"]
    generator = opsetta.TextGenerator(tmp_path / "out")
    side = PATCH * getattr(config, "spatial_merge_size", 1)
    for batch in BATCHES:
        sizes = [(rows * side, columns * side) for images in batch for rows, columns in images]
        images = {"pixel_values": draw_images(sizes), "image_sizes": torch.tensor(sizes)}
        compare(model, generator, {**write_prompts(batch, lambda rows, columns: rows * columns), **images})


def test_other_features_of_padded_images_are_refused(tmp_path, monkeypatch):
    config = pixtral()
    config.vision_feature_select_strategy = "default"
    write_model("LlavaForConditionalGeneration", config, tmp_path)
    with pytest.raises(opsetta.UsageError, match="has no class token"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out")
    # A model with a projector of its own.
    monkeypatch.setattr(padded_images, "_OWNERS", ("Mistral3Model",))
    with pytest.raises(opsetta.UsageError, match="are supported in Mistral3Model, not in LlavaModel"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out")


@pytest.mark.sweep
def test_number_and_sizes_of_masked_images_are_dynamic(tmp_path):
    model = write_model("Idefics2ForConditionalGeneration", idefics2(), tmp_path)
    opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13)
    generator = opsetta.TextGenerator(tmp_path / "out")
    for batch in BATCHES:
        sizes = [[(rows * PATCH + 1, columns * PATCH + 2) for rows, columns in images] for images in batch]
        pixels = draw_images([size for images in sizes for size in images])
        texts = torch.zeros(len(batch), max(map(len, batch)), *pixels.shape[1:])
        first = 0
        for text, images in zip(texts, sizes, strict=True):
            text[: len(images)] = pixels[first : first + len(images)]
            first += len(images)
        inputs = {"pixel_values": texts, "pixel_attention_mask": (texts != 0).all(2)}
        compare(model, generator, {**write_prompts(batch, lambda *size: FEATURES), **inputs})


TILES = {1: 1, 2: 2, 4: 3}
"""The number of tiles of the aspect ratios of `mllama`."""


def mllama():
    text = {**TEXT, "num_hidden_layers": 2, "cross_attention_layers": [1], "max_position_embeddings": 64}
    vision = {name: size for name, size in VISION.items() if name != "num_attention_heads"}
    layers = {"attention_heads": 4, "num_global_layers": 1, "intermediate_layers_indices": [0]}
    ratios = {"max_num_tiles": 3, "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1], [1, 3]]}
    return transformers.MllamaConfig(
        text_config={**text, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        vision_config={**vision, **layers, **ratios, "vision_output_dim": 64},
        image_token_index=IMAGE,
    )


def tiled_prompts(batch):
    """Texts with images of some aspect ratios, and which tiles each token reads: those before it."""
    inputs = write_prompts([[(ratio,) for ratio in images] for images in batch], lambda ratio: 1)
    shape = (len(batch), max(map(len, batch)), 3)
    ratios, mask = torch.zeros(shape[:2], dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    pixels = torch.randn(*shape, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    read = torch.zeros(*inputs["input_ids"].shape, *shape[1:], dtype=torch.long)
    for text, images in enumerate(batch):
        places = (inputs["input_ids"][text] == IMAGE).nonzero().flatten().tolist()
        for index, (ratio, place) in enumerate(zip(images, places, strict=True)):
            ratios[text, index] = ratio
            mask[text, index, : TILES[ratio]] = read[text, place:, index, : TILES[ratio]] = 1
    images = {"pixel_values": pixels, "aspect_ratio_ids": ratios, "aspect_ratio_mask": mask}
    return {**inputs, **images, "cross_attention_mask": read}


@pytest.mark.sweep
def test_decoder_attends_to_tiles_of_images(tmp_path):
    model = write_model("MllamaForConditionalGeneration", mllama(), tmp_path)
    with torch.no_grad():
        # Closed gates leave images out.
        for name, parameter in model.named_parameters():
            if "gate" in name:
                parameter.fill_(0.7)
    model.save_pretrained(tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13)
    assert written.graphs[-1].inputs[3:5] == ["cross_attention_mask", "cross_attention_states"]
    generator = opsetta.TextGenerator(tmp_path / "out")
    for inputs in (tiled_prompts([[2, 4]]), tiled_prompts([[1], []]), pad_left([[3, 5, 6], [4, 7]])):
        compare(model, generator, inputs)
    inputs = tiled_prompts([[2, 4]])
    inputs["cross_attention_mask"] = inputs["cross_attention_mask"][:, 1:]
    with pytest.raises(opsetta.UsageError, match="cross_attention_mask must have the shape"):
        generator.generate(**inputs)
