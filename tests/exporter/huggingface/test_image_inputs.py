"""Images with inputs of their own: views of parts, merged patches, locations of patches, pooled crops."""

import contextlib
import inspect

import numpy as np
import pytest
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
from transformers.vision_utils import get_vision_interpolation_indices_and_weights

import opsetta
from opsetta.exporter.huggingface.graphs import TaskModel
from opsetta.exporter.huggingface.image_text import image_text_to_text
from opsetta.exporter.huggingface.images.patch_grids import PatchGrids

from ...sweep.small_models import NotSmallError, small_configs, small_model
from .test_image_sizes import pad_left

GENERATOR = torch.Generator()
PARTS = {
    "gemma4": {
        "text_config": {"hidden_size_per_layer_input": 8, "use_bidirectional_attention": "vision"},
        "vision_config": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 8,
            "patch_size": 2,
        },
    },
    "gemma4_unified": {"vision_config": {"patch_size": 2, "mm_embed_dim": 32, "output_proj_dims": 32}},
    "kimi_k25": {
        "text_config": {"num_key_value_heads": 4},
        "vision_config": {"hidden_size": 64, "num_attention_heads": 4},
        "projection_hidden_size": 64,
    },
    "step3p7": {"text_config": {"sliding_window": 8}},
    "molmo2": {
        "adapter_config": {"text_hidden_size": 32, "intermediate_size": 64},
        "vision_config": {"num_position_embeddings": 16},
    },
}
"""Settings of small models, besides those that are small by their names."""


def model_of(model_type):
    """The first small model that can be built."""
    architecture = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[model_type]
    for config in small_configs(model_type):
        settings = {**config.to_dict(), "image_token_id": 98}
        for name, part in PARTS.get(model_type, {}).items():
            settings[name] = {**(settings[name] or {}), **part} if isinstance(part, dict) else part
        with contextlib.suppress(NotSmallError):
            return small_model(architecture, type(config)(**settings))
    raise AssertionError(f"no small {model_type} can be built")


def random(*shape):
    return torch.randn(*shape, generator=GENERATOR.manual_seed(3))


def views(example, columns_and_rows):
    """The view of the whole of each image, and those of parts of images with several."""
    counts = [columns * rows if columns * rows > 1 else 0 for columns, rows in columns_and_rows]
    inputs = {"pixel_values": random(len(counts), *example["pixel_values"].shape[1:])}
    if any(counts):
        inputs["pixel_values_local"] = random(sum(counts), *example["pixel_values_local"].shape[1:])
    return {**inputs, "num_local_patches": torch.tensor(counts)}


def grids(example, columns_and_rows):
    """Patches of several sizes, of which the first image of the example has two by three blocks."""
    height, width = (example["image_grid_thw"][0, 1:] // torch.tensor([2, 3])).tolist()
    sizes = torch.tensor([[1, rows * height, columns * width] for columns, rows in columns_and_rows])
    inputs = {
        "pixel_values": random(int(sizes.prod(1).sum()), *example["pixel_values"].shape[1:]),
        "image_grid_thw": sizes,
    }
    if "image_merge_sizes" in example:
        inputs["image_merge_sizes"] = torch.tensor([2, 1, 1][: len(sizes)])
    return inputs


def located(example, columns_and_rows):
    """Patches with their columns and rows, of which more are padding than in the example."""
    # The example has as many patches as four become one feature, and three of padding.
    side = int((example["image_position_ids"].shape[1] // 7) ** 0.5)
    locations = torch.full((len(columns_and_rows), 9 * side**2, 2), -1)
    for image, (columns, rows) in zip(locations, columns_and_rows, strict=True):
        patches = torch.cartesian_prod(torch.arange(rows * side), torch.arange(columns * side)).flip(1)
        image[: len(patches)] = patches
    pixels = random(*locations.shape[:2], example["pixel_values"].shape[-1])
    return {"pixel_values": pixels, "image_position_ids": locations}


def packed(example, columns_and_rows):
    """All patches in one row."""
    block, side = int(example["target_sizes"][0, 0]) // 2, example["pixel_values"].shape[2]
    sizes = block * torch.tensor(columns_and_rows).flip(1)
    return {"pixel_values": random(1, 3, side, int(sizes.prod(1).sum()) * side), "target_sizes": sizes}


def crops(example, columns_and_rows):
    """Crops whose blocks of four patches become a feature; the first block of each image has one patch."""
    patches = example["pixel_values"].shape[1]
    counts = [columns * rows * patches // 4 for columns, rows in columns_and_rows]
    pooled = torch.arange(4 * sum(counts)).reshape(-1, 4)
    pooled[[sum(counts[:image]) for image in range(len(counts))], 1:] = -1
    pixels = random(4 * sum(counts) // patches, *example["pixel_values"].shape[1:])
    splits = torch.tensor([[count, 1, 0, 0] for count in counts])
    return {"pixel_values": pixels, "image_token_pooling": pooled, "image_grids": splits}


def tiles(example, columns_and_rows):
    """Tiles of images, of which a mask says which exist."""
    counts = torch.tensor([columns * rows for columns, rows in columns_and_rows])
    mask = torch.arange(int(counts.max())) < counts[:, None]
    pixels = random(*mask.shape, *example["pixel_values"].shape[2:])
    return {"pixel_values": pixels, "pixel_attention_mask": mask}


def rows_of_patches(example, columns_and_rows):
    """As many patches of each image as of the first one."""
    count = columns_and_rows[0][0] * columns_and_rows[0][1]
    return {"pixel_values": random(len(columns_and_rows), count, example["pixel_values"].shape[2])}


FORMS = {
    "step3p7": views,
    "deepseek_ocr2": views,
    "video_llama_3": grids,
    "muse_spark": grids,
    "kimi_k25": grids,
    "minimax_m3_vl": grids,
    "inkling2": grids,
    "lfm3_vl": grids,
    "gemma4_unified": located,
    "gemma4": located,
    "minicpmv4_6": packed,
    "minicpm_ocr": packed,
    "molmo2": crops,
    "granite_docling": tiles,
    "fuyu": rows_of_patches,
}
QUICK = (
    "step3p7",
    "muse_spark",
    "lfm3_vl",
    "inkling2",
    "gemma4_unified",
    "minicpmv4_6",
    "molmo2",
    "granite_docling",
    "fuyu",
)
TYPES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.sweep) for name in FORMS]


def features_of(model, images):
    owner = model if hasattr(model, "get_image_features") else model.model
    result = owner.get_image_features(**images)
    return list(result.last_hidden_state if result.pooler_output is None else result.pooler_output)


@pytest.mark.parametrize("model_type", TYPES)
def test_features_of_images_are_those_of_transformers(model_type, tmp_path):
    model = model_of(model_type)
    with torch.no_grad():
        _, encode, _ = image_text_to_text(TaskModel(model, model.config, tmp_path))
        images = FORMS[model_type](encode.inputs, [[3, 1], [1, 1], [2, 2]])
        expected = torch.cat(features_of(model, images))
        read = {name: images[name] for name in encode.inputs}
        result = encode.call(model, read, [])
        # Behind the features there may be those of inner layers.
        result = result[0] if isinstance(result, tuple) else result
        if model_type == "molmo2":
            # They are added to the embedding of the image token.
            result = result - model.get_input_embeddings()(torch.tensor(98))
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "model_type",
    [name if name == "video_llama_3" else pytest.param(name, marks=pytest.mark.sweep) for name in FORMS],
)
def test_tokens_about_images_with_other_inputs(model_type, tmp_path):
    model = model_of(model_type)
    model.save_pretrained(tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", task="image-text-to-text", opset=13)
    generator = opsetta.TextGenerator(tmp_path / "out")
    with torch.no_grad():
        _, encode, _ = image_text_to_text(TaskModel(model, model.config, tmp_path))
    assert written.graphs[1].inputs == list(encode.inputs)
    for columns_and_rows in ([[1, 1]], [[2, 1], [1, 1], [2, 2]]):
        images = FORMS[model_type](encode.inputs, columns_and_rows)
        with torch.no_grad():
            counts = [len(features) for features in features_of(model, images)]
        prompts = pad_left([[5 + row, 5, *[98] * count, 6, 7] for row, count in enumerate(counts)])
        types = {}
        if "mm_token_type_ids" in inspect.signature(type(model).forward).parameters:
            types["mm_token_type_ids"] = (prompts["input_ids"] == 98).int()
        expected = model.generate(**prompts, **images, **types, max_new_tokens=10, do_sample=False)
        result = generator.generate(**prompts, **images, max_new_tokens=10)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["border", "zeros"])
def test_resized_positions_are_those_of_transformers(mode, padding):
    sizes = torch.tensor([[1, 4, 6], [1, 8, 2]])
    table = torch.randn(5 * 5)
    arguments = {"num_grid_per_side": 5, "mode": mode, "padding": padding, "spatial_merge_size": 2}
    indices, weights = PatchGrids(sizes, 40).get_vision_interpolation_indices_and_weights(sizes, **arguments)
    expected, expected_weights = get_vision_interpolation_indices_and_weights(sizes, **arguments)
    torch.testing.assert_close((table[indices] * weights).sum(1), (table[expected] * expected_weights).sum(1))
