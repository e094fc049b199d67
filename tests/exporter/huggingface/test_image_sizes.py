"""Images of any size and number: grids of patches, tiles, masks of pixels; and answers about images."""

import math
import types

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from transformers.models.llava_next import modeling_llava_next
from transformers.models.llava_onevision import modeling_llava_onevision

import opsetta
from opsetta.exporter.huggingface.graphs import TaskModel
from opsetta.exporter.huggingface.images import grids, patch_grids
from opsetta.exporter.huggingface.images.positions import continue_positions, grid_positions
from opsetta.exporter.huggingface.images.tiles import _order_features, _resize_grid

from .test_image_text import IMAGE, TEXT, VISION, write_model

BEGIN, END, VIDEO = IMAGE - 1, IMAGE - 2, IMAGE - 3
ROTARY = {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0}
GRID_VISION = {"hidden_size": 32, "num_heads": 4, "patch_size": 2, "intermediate_size": 64}
TOKENS = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": BEGIN,
    "vision_end_token_id": END,
}
PATCH = 3 * 2 * 2 * 2


def qwen2():
    return transformers.Qwen2VLConfig(
        text_config={**TEXT, "rope_parameters": ROTARY},
        vision_config={**GRID_VISION, "depth": 1, "embed_dim": 32, "mlp_ratio": 2},
        **TOKENS,
    )


def qwen2_windows():
    """Windows of four by four patches in the first layer, attention between all of an image in the second."""
    return transformers.Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_parameters": ROTARY},
        vision_config={
            **GRID_VISION,
            "depth": 2,
            "out_hidden_size": 32,
            "window_size": 8,
            "fullatt_block_indexes": [1],
        },
        **TOKENS,
    )


def qwen3():
    """Positions are resized, and the decoder reads features in its first layer, too."""
    return transformers.Qwen3VLConfig(
        text_config={**TEXT, "head_dim": 8, "rope_parameters": {**ROTARY, "mrope_interleaved": True}},
        vision_config={
            **GRID_VISION,
            "depth": 1,
            "out_hidden_size": 32,
            "num_position_embeddings": 25,
            "deepstack_visual_indexes": [0],
        },
        **TOKENS,
    )


def qwen3_experts():
    vision = qwen3().vision_config.to_dict()
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    rotary = {**ROTARY, "mrope_interleaved": True}
    return transformers.Qwen3VLMoeConfig(
        text_config={**TEXT, **experts, "head_dim": 8, "rope_parameters": rotary},
        vision_config={name: value for name, value in vision.items() if name != "model_type"},
        **TOKENS,
    )


def hyperclova():
    """A projector of the model changes the features of the encoder, and positions are those of text."""
    text = {**TEXT, "model_type": "hyperclovax", "head_dim": 8, "logits_scaling": 0.5}
    vision = qwen2_windows().vision_config.to_dict()
    return transformers.HyperCLOVAXVisionV2Config(
        text_config=text, vision_config=vision, image_token_id=IMAGE, video_token_id=VIDEO
    )


def pad_left(rows):
    width = max(map(len, rows))
    tokens = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    return {"input_ids": tokens, "attention_mask": (tokens != 0).long()}


def grid_prompts(batch):
    """Texts about images, each of some rows and columns of patches."""
    generator = torch.Generator().manual_seed(3)
    sizes = [size for images in batch for size in images]
    rows = [
        [3 + index, *(token for h, w in images for token in (BEGIN, *[IMAGE] * (h * w // 4), END)), 5, 6]
        for index, images in enumerate(batch)
    ]
    pixels = torch.cat([torch.randn(height * width, PATCH, generator=generator) for height, width in sizes])
    return {
        **pad_left(rows),
        "pixel_values": pixels,
        "image_grid_thw": torch.tensor([[1, *size] for size in sizes]),
    }


def compare(model, folder, inputs, **other_inputs):
    """Greedy tokens."""
    expected = model.generate(**inputs, **other_inputs, max_new_tokens=12, do_sample=False)
    np.testing.assert_array_equal(folder.generate(**inputs, max_new_tokens=12), expected)


@pytest.mark.parametrize(
    ("architecture", "config", "opset"),
    [
        ("Qwen3VLForConditionalGeneration", qwen3, 13),
        pytest.param("Qwen3VLMoeForConditionalGeneration", qwen3_experts, 18, marks=pytest.mark.sweep),
        pytest.param("HyperCLOVAXVisionV2ForConditionalGeneration", hyperclova, 13, marks=pytest.mark.sweep),
        pytest.param("Qwen2VLForConditionalGeneration", qwen2, 18, marks=pytest.mark.sweep),
        pytest.param("Qwen2_5_VLForConditionalGeneration", qwen2_windows, 18, marks=pytest.mark.sweep),
    ],
)
def test_number_and_sizes_of_images_in_grids_are_dynamic(architecture, config, opset, tmp_path):
    model = write_model(architecture, config(), tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=opset)
    assert written.graphs[1].inputs == ["pixel_values", "image_grid_thw"]
    generator = opsetta.TextGenerator(tmp_path / "out")
    has_positions_of_images = hasattr(model.model, "get_rope_index")
    for batch in ([[(4, 6)]], [[(2, 2), (8, 4)], [(6, 10)]], [[(6, 2)], []]):
        inputs = grid_prompts(batch)
        types = {"mm_token_type_ids": (inputs["input_ids"] == IMAGE).int()}
        compare(model, generator, inputs, **(types if has_positions_of_images else {}))
    with pytest.raises(opsetta.UsageError, match="are pixel_values, image_grid_thw, not pixel_values"):
        generator.generate([[IMAGE]], pixel_values=torch.ones(4, PATCH))
    # Where positions are those of text, only the number of all features matters.
    tokens = [IMAGE, IMAGE, 3, IMAGE] if has_positions_of_images else [IMAGE, IMAGE]
    message = "has 1 features" if has_positions_of_images else "have 3 features"
    with pytest.raises(opsetta.UsageError, match=f"{message}, and the tokens 2 image tokens"):
        generator.generate(
            [tokens],
            pixel_values=torch.ones(12, PATCH),
            image_grid_thw=[[1, 2, 2], [1, 2, 4]],
        )


def exaone():
    """The encoder has fewer keys and values than queries."""
    vision = {**qwen2_windows().vision_config.to_dict(), "model_type": "exaone4_5_vision"}
    vision["num_key_value_heads"] = 2
    return transformers.Exaone4_5_Config(
        text_config={**TEXT, "model_type": "exaone4"},
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("HyperCLOVAXVisionV2ForConditionalGeneration", hyperclova),
        ("Exaone4_5_ForConditionalGeneration", exaone),
    ],
)
def test_features_are_those_that_the_model_makes_of_its_encoder(architecture, config, tmp_path):
    torch.manual_seed(0)
    model = getattr(transformers, architecture)(config()).eval()
    example, _ = grids.encode_call(TaskModel(model, model.config, tmp_path), grids.grid_encoder(model))
    with torch.no_grad():
        features = example.call(model, example.inputs, [])
        expected = model.get_image_features(**example.inputs).pooler_output
    torch.testing.assert_close(features, torch.cat(list(expected)))


def test_a_configuration_without_the_sizes_of_patches_is_refused():
    config = transformers.BertConfig(patch_size=2, spatial_merge_size=2)
    encoder = types.SimpleNamespace(config=config)
    with pytest.raises(opsetta.UsageError, match="has no in_channels or num_channels, from which"):
        grids._example_images(encoder, torch.float32)


def glm4v():
    rotary = {**ROTARY, "partial_rotary_factor": 1.0}
    return transformers.Glm4vConfig(
        text_config={**TEXT, "rope_parameters": rotary},
        vision_config={**GRID_VISION, "depth": 1, "out_hidden_size": 32, "image_size": 8},
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        image_start_token_id=BEGIN,
        image_end_token_id=END,
    )


@pytest.mark.sweep
def test_beams_have_the_images_of_their_text_in_order(tmp_path, monkeypatch):
    """GLM-4V of transformers 5.23 mixes up the images of a text for beams, where other models keep them."""
    model = write_model("Glm4vForConditionalGeneration", glm4v(), tmp_path)
    opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=18)
    generator = opsetta.TextGenerator(tmp_path / "out")
    inputs = grid_prompts([[(2, 2), (8, 4)], [(6, 10)]])
    types = (inputs["input_ids"] == IMAGE).int()
    compare(model, generator, inputs, mm_token_type_ids=types)
    expand = transformers.GenerationMixin._expand_multimodal_outputs
    monkeypatch.setattr(type(model), "_expand_multimodal_outputs", expand)
    expected = model.generate(
        **inputs, mm_token_type_ids=types, max_new_tokens=12, do_sample=False, num_beams=3
    )
    np.testing.assert_array_equal(generator.generate(**inputs, max_new_tokens=12, num_beams=3), expected)


def test_other_positions_of_images_are_refused(tmp_path, monkeypatch):
    write_model("Qwen2VLForConditionalGeneration", qwen2(), tmp_path)
    model = transformers.Qwen2VLModel
    original = model.get_rope_index

    def shift(self, *arguments, **options):
        positions, deltas = original(self, *arguments, **options)
        return positions + 1, deltas

    monkeypatch.setattr(model, "get_rope_index", shift)
    with pytest.raises(opsetta.UsageError, match="numbers the positions of images"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out")

    def fail(self, *arguments, **options):
        raise ValueError("an image has 5 tokens")

    monkeypatch.setattr(model, "get_rope_index", fail)
    with pytest.raises(opsetta.UsageError, match="numbers the positions of images"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out")
    monkeypatch.setattr(model, "get_image_features", lambda self, pixel_values, grids: changed(self, grids))

    def changed(self, image_grid_thw):
        result = self.visual(torch.ones(int(image_grid_thw.prod(1).sum()), PATCH), image_grid_thw)
        result.pooler_output = [2 * result.pooler_output]
        return result

    with pytest.raises(opsetta.UsageError, match="changes the features of its Qwen2VisionTransformer"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out")


def test_positions_of_images_follow_the_longer_side():
    tokens = np.array([[0, 7, 9, 9, 9, 9, 9, 9, 8]])
    positions = grid_positions(tokens, (tokens != 0).astype(int), 9, np.array([[1, 4, 6]]), 2)
    np.testing.assert_array_equal(
        positions[0], [[0, 0, 1, 1, 1, 1, 1, 1, 4], [0, 0, 1, 1, 1, 2, 2, 2, 4], [0, 0, 1, 2, 3, 1, 2, 3, 4]]
    )
    np.testing.assert_array_equal(continue_positions(positions, 11)[:, 0, -2:], [[5, 6]] * 3)
    with pytest.raises(opsetta.UsageError, match="more images than groups"):
        grid_positions(tokens[:, :2], np.ones((1, 2)), 9, np.array([[1, 2, 2]]), 2)


def test_positions_are_interpolated_as_transformers_does():
    from transformers.vision_utils import (
        get_vision_interpolation_indices_and_weights,
        get_vision_position_ids,
    )

    sizes = torch.tensor([[1, 4, 6], [1, 8, 2], [1, 2, 2]])
    height, width, _, offset = patch_grids.locate_patches(sizes, 44)
    places = torch.stack(patch_grids.rows_and_columns(offset, height, width, 2), dim=-1)
    torch.testing.assert_close(places, get_vision_position_ids(sizes, 2))
    table = torch.randn(25)
    for align_corners in (False, True):
        row, row_weight = patch_grids.interpolate(places[:, 0], height, 5, align_corners)
        column, column_weight = patch_grids.interpolate(places[:, 1], width, 5, align_corners)
        result = (
            table[row[:, :, None] * 5 + column[:, None]] * row_weight[:, :, None] * column_weight[:, None]
        )
        indices, weights = get_vision_interpolation_indices_and_weights(
            sizes, 5, align_corners=align_corners, spatial_merge_size=2
        )
        torch.testing.assert_close(result.sum((1, 2)), (table[indices] * weights).sum(1))


def llava_next(config_class=transformers.LlavaNextConfig):
    return config_class(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=transformers.CLIPVisionConfig(**VISION, num_channels=3),
        vision_feature_layer=-1,
        image_token_index=IMAGE,
        image_grid_pinpoints=[[16, 32], [32, 16], [32, 32], [48, 16]],
    )


def joined_tiles(config, sizes):
    """The numbers of features in the order of transformers, and the number of tiles of each image."""
    size, side = config.vision_config.image_size, config.vision_config.image_size // 8
    counts = [
        modeling_llava_next.image_size_to_num_patches(image.tolist(), config.image_grid_pinpoints, size)
        for image in sizes
    ]
    numbers = 1 + torch.arange(len(sizes) * max(counts) * side**2).view(len(sizes), max(counts), -1, 1)
    features = [image[:count].float() for image, count in zip(numbers, counts, strict=True)]
    owner = types.SimpleNamespace(config=config)
    packed, _ = modeling_llava_next.LlavaNextModel.pack_image_features(
        owner, features, sizes, "default", torch.zeros(1)
    )
    return packed, counts


def test_features_of_tiles_have_the_order_of_transformers():
    config = llava_next()
    sizes = torch.randint(1, 90, (200, 2), generator=torch.Generator().manual_seed(0))
    expected, counts = joined_tiles(config, sizes)
    result, _ = _order_features(sizes, max(counts), config.image_grid_pinpoints, 16, 2)
    torch.testing.assert_close(result, torch.cat(expected).long())


def llava_onevision():
    """Grids of more than two tiles are resized."""
    return transformers.LlavaOnevisionConfig(
        text_config=transformers.Qwen2Config(**TEXT),
        vision_config=transformers.SiglipVisionConfig(**VISION, vision_use_head=False),
        vision_feature_layer=-1,
        vision_aspect_ratio="anyres_max_2",
        image_token_index=IMAGE,
        image_grid_pinpoints=[[16, 32], [32, 16], [32, 32], [48, 16], [48, 48]],
    )


def test_features_of_many_tiles_are_resized_as_in_transformers():
    config = llava_onevision()
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, 90, (200, 2), generator=generator)
    # Some images are not cut, because their text has two.
    counts = torch.tensor([1, 2] * 60 + [1] * 20)
    tiles = 1 + 9
    features = torch.randn(1 + len(sizes) * tiles * 4, 3, generator=generator)
    is_alone = [count == 1 for count in counts for _ in range(count)]
    numbers = [
        modeling_llava_onevision.image_size_to_num_patches(size.tolist(), config.image_grid_pinpoints, 16)
        if alone
        else 1
        for size, alone in zip(sizes, is_alone, strict=True)
    ]
    images = [
        image[:number] for image, number in zip(features[1:].view(-1, tiles, 4, 3), numbers, strict=True)
    ]
    owner = types.SimpleNamespace(config=config)
    packed, _ = modeling_llava_onevision.LlavaOnevisionModel.pack_image_features(
        owner, images, sizes, features[0], "anyres_max_2"
    )
    order, weights = _order_features(
        sizes, tiles, config.image_grid_pinpoints, 16, 2, most_tiles=2, counts=counts
    )
    torch.testing.assert_close((features[order] * weights[..., None]).sum(1), torch.cat(packed))


def test_quotients_of_resized_grids_are_those_of_python(tmp_path):
    """In the file, for the square root of PyTorch differs from the next float64 for some numbers."""
    size = torch.cartesian_prod(torch.arange(27, 163), torch.arange(27, 163))
    most = 9 * 27**2
    program = opsetta.export(
        lambda size: _resize_grid(size, most), (size[:3],), dynamic_shapes={"size": {0: "images"}}, opset=13
    )
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    [results] = session.run(None, {"size": size.numpy()})
    for (height, width), result in zip(size.tolist(), results.tolist(), strict=True):
        ratio = math.sqrt(height * width / most)
        expected = [int(height // ratio), int(width // ratio)] if ratio > 1.1 else [height, width]
        assert result == expected


@pytest.mark.sweep
def test_tiles_of_texts_with_several_images(tmp_path):
    config = llava_onevision()
    model = write_model("LlavaOnevisionForConditionalGeneration", config, tmp_path)
    opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13)
    generator = opsetta.TextGenerator(tmp_path / "out")
    for batch in ([[(48, 50)]], [[(31, 33), (20, 20)], [(47, 40)]]):
        sizes = torch.tensor([size for images in batch for size in images])
        pixels = torch.randn(len(sizes), 10, 3, 16, 16, generator=torch.Generator().manual_seed(3))
        counts = torch.tensor([len(images) for images in batch])
        features = iter(model.model.get_image_features(pixels, sizes, batch_num_images=counts).pooler_output)
        rows = [
            [3 + index, *(token for _ in images for token in (*[IMAGE] * len(next(features)), 5)), 6]
            for index, images in enumerate(batch)
        ]
        images = {"pixel_values": pixels, "image_sizes": sizes}
        # Texts with one image each are the default.
        images |= {"batch_num_images": counts} if len(batch) > 1 else {}
        compare(model, generator, {**pad_left(rows), **images})


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["LlavaNext", "LlavaNextVideo"])
def test_number_of_tiles_is_dynamic(name, tmp_path):
    config = llava_next(getattr(transformers, f"{name}Config"))
    model = write_model(f"{name}ForConditionalGeneration", config, tmp_path)
    opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13)
    generator = opsetta.TextGenerator(tmp_path / "out")
    for sizes in ([[20, 30]], [[50, 9], [31, 33]]):
        image_sizes = torch.tensor(sizes)
        features, counts = joined_tiles(config, image_sizes)
        pixels = torch.zeros(len(sizes), max(counts), 3, 16, 16)
        for image, count in zip(pixels, counts, strict=True):
            image[:count].normal_(generator=torch.Generator().manual_seed(count))
        rows = [[3 + index, *[IMAGE] * len(part), 5, 6] for index, part in enumerate(features)]
        compare(model, generator, {**pad_left(rows), "pixel_values": pixels, "image_sizes": image_sizes})


def paligemma(text_config):
    return transformers.PaliGemmaConfig(
        text_config=text_config,
        vision_config=transformers.SiglipVisionConfig(**VISION, vision_use_head=False, projection_dim=32),
        image_token_index=IMAGE,
        projection_dim=32,
    )


@pytest.mark.parametrize(
    ("text_config", "opset"),
    [
        (transformers.Gemma2Config(**TEXT, head_dim=8, sliding_window=5), 13),
        pytest.param(transformers.GemmaConfig(**TEXT, head_dim=8), 18, marks=pytest.mark.sweep),
    ],
)
def test_tokens_of_a_prompt_attend_to_each_other(text_config, opset, tmp_path):
    model = write_model("PaliGemmaForConditionalGeneration", paligemma(text_config), tmp_path)
    task = "visual-question-answering"
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=opset, task=task)
    assert written.task == "image-text-to-text"
    generator = opsetta.TextGenerator(tmp_path / "out")
    for rows in ([[*[IMAGE] * 4, 5, 6, 7, 8]], [[*[IMAGE] * 4, 5, 6], [*[IMAGE] * 4, 9, 10, 11, 12]]):
        inputs = {**pad_left(rows), "pixel_values": torch.randn(len(rows), 3, 16, 16)}
        compare(model, generator, inputs, token_type_ids=torch.zeros_like(inputs["input_ids"]))


def pix2struct():
    layer = {"hidden_size": 32, "d_kv": 8, "d_ff": 64}
    return transformers.Pix2StructConfig(
        text_config={
            **layer,
            "vocab_size": 100,
            "num_layers": 1,
            "num_heads": 4,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "decoder_start_token_id": 0,
        },
        vision_config={
            **layer,
            "patch_embed_hidden_size": 12,
            "patch_size": 2,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "seq_len": 30,
        },
    )


def blip():
    tokens = {"bos_token_id": 98, "sep_token_id": 97, "pad_token_id": 0}
    text = {**TEXT, **tokens, "encoder_hidden_size": 32, "max_position_embeddings": 40}
    return transformers.BlipConfig(text_config=text, vision_config=VISION, projection_dim=32)


@pytest.mark.sweep
def test_number_of_patches_is_dynamic(tmp_path):
    model = write_model("Pix2StructForConditionalGeneration", pix2struct(), tmp_path)
    task = "document-question-answering"
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13, task=task, verify=True)
    assert written.task == "image-to-text"
    generator = opsetta.TextGenerator(tmp_path / "out")
    for batch, count in ((1, 7), (2, 12)):
        places = torch.randint(1, 20, (batch, count, 2)).float()
        patches = torch.cat([places, torch.randn(batch, count, 12)], dim=2)
        patches[1:, -3:] = 0
        mask = (patches != 0).any(-1).float()
        compare(model, generator, {"flattened_patches": patches, "attention_mask": mask})
        expected = generator.generate(flattened_patches=patches, attention_mask=mask, max_new_tokens=4)
        np.testing.assert_array_equal(
            generator.generate(flattened_patches=patches, max_new_tokens=4), expected
        )


@pytest.mark.sweep
@pytest.mark.parametrize("architecture", ["BlipForQuestionAnswering", "BlipForConditionalGeneration"])
def test_decoder_of_blip_attends_to_the_question_or_the_image(architecture, tmp_path):
    model = write_model(architecture, blip(), tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13)
    answers = architecture == "BlipForQuestionAnswering"
    assert written.task == ("visual-question-answering" if answers else "image-to-text")
    generator = opsetta.TextGenerator(tmp_path / "out")
    for batch in (1, 2):
        inputs = {"pixel_values": torch.randn(batch, 3, 16, 16)}
        if answers:
            tokens = torch.randint(3, 90, (batch, 6))
            tokens[1:, -2:] = 0
            inputs |= {"input_ids": tokens, "attention_mask": (tokens != 0).long()}
        compare(model, generator, inputs)


def vilt(**settings):
    return transformers.ViltConfig(
        **{name: size for name, size in TEXT.items() if not name.endswith("heads")},
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        num_labels=5,
        **settings,
    )


def test_images_of_a_batch_have_other_sizes_and_positions_are_resized(tmp_path):
    model = write_model("ViltForQuestionAnswering", vilt(), tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13)
    assert written.task == "visual-question-answering"
    session = onnxruntime.InferenceSession(str(written.graphs[0].path))
    for batch, length, height, width in ((1, 5, 32, 32), (3, 4, 56, 40)):
        mask = torch.ones(batch, height, width, dtype=torch.long)
        mask[1:2, 24:] = mask[1:2, :, 16:] = 0
        tokens = torch.randint(3, 99, (batch, length))
        inputs = {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "token_type_ids": torch.zeros_like(tokens),
            "pixel_values": torch.randn(batch, 3, height, width) * mask[:, None],
            "pixel_mask": mask,
        }
        with torch.no_grad():
            expected = model(**inputs).logits
        [result] = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        np.testing.assert_allclose(result, expected, atol=1e-5)


def test_patches_that_are_drawn_at_random_are_refused(tmp_path):
    write_model("ViltForQuestionAnswering", vilt(max_image_length=4), tmp_path)
    with pytest.raises(opsetta.UsageError, match="draws 4 patches of an image at random"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out")
