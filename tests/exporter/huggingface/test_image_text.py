"""Models that generate text about images: three files, and tokens as in transformers."""

import types

import numpy as np
import onnx
import PIL.Image
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import opsetta
from opsetta.exporter.huggingface.encoder_decoders import _encode_image_text
from opsetta.exporter.huggingface.graphs import TaskModel
from opsetta.exporter.huggingface.image_text import check_parts, embed_call, encode_media

from ...models.generators import VOCABULARY

IMAGE = VOCABULARY - 1
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "eos_token_id": 2,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 8,
}


def llava():
    return transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=transformers.CLIPVisionConfig(**VISION, num_channels=3),
        vision_feature_layer=-1,
        image_token_index=IMAGE,
    )


def cohere_vision():
    return transformers.Cohere2VisionConfig(
        text_config=transformers.Cohere2Config(**TEXT, head_dim=8),
        vision_config=transformers.SiglipVisionConfig(**VISION, vision_use_head=False),
        downsample_factor=1,
        alignment_intermediate_size=64,
        image_token_id=IMAGE,
    )


def internvl():
    return transformers.InternVLConfig(
        text_config=transformers.Qwen2Config(**TEXT),
        vision_config=transformers.InternVLVisionConfig(
            **{**VISION, "image_size": [16, 16], "patch_size": [8, 8]}
        ),
        downsample_ratio=1.0,
        image_token_id=IMAGE,
    )


def write_model(architecture, config, folder):
    torch.manual_seed(0)
    model = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                # Images matter for tokens only with weights of the size that trained ones have.
                parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(
    ("architecture", "config", "opset"),
    [
        ("InternVLForConditionalGeneration", internvl, 13),
        pytest.param("Cohere2VisionForConditionalGeneration", cohere_vision, 13, marks=pytest.mark.sweep),
        # The model makes a list of images, whose number is dynamic in the file.
        pytest.param("LlavaForConditionalGeneration", llava, 18, marks=pytest.mark.sweep),
    ],
)
def test_tokens_about_images_are_those_of_transformers(architecture, config, opset, tmp_path):
    model = write_model(architecture, config(), tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=opset)
    assert written.task == "image-text-to-text"
    assert [graph.path.name for graph in written.graphs] == [
        "embed_tokens.onnx",
        "vision_encoder.onnx",
        "decoder_model_merged.onnx",
    ]
    [image_input] = onnx.load(written.graphs[1].path).graph.input
    assert image_input.type.tensor_type.shape.dim[0].dim_param == "image_batch_size"
    tokens = torch.tensor([[0, 0, 5, *[IMAGE] * 4, 6, 7], [4, 8, 5, *[IMAGE] * 4, 9, 10]])
    mask = (tokens != 0).long()
    images = torch.randn(2, 3, 16, 16)
    generator = opsetta.TextGenerator(tmp_path / "out")
    for pixel_values in (images, images.flip(0)):
        result = generator.generate(tokens, mask, pixel_values=pixel_values, max_new_tokens=12)
        expected = model.generate(
            input_ids=tokens,
            attention_mask=mask,
            pixel_values=pixel_values,
            max_new_tokens=12,
            do_sample=False,
        )
        np.testing.assert_array_equal(result, expected)
    with pytest.raises(opsetta.UsageError, match=r"have 4 features, and the tokens 8 image tokens \(99\)"):
        generator.generate(tokens, mask, pixel_values=images[:1])


def gemma3():
    """Windows are shorter than an image and the text behind it."""
    layers = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}
    return transformers.Gemma3Config(
        text_config=transformers.Gemma3TextConfig(**{**TEXT, **layers}, head_dim=8, sliding_window=6),
        vision_config=transformers.SiglipVisionConfig(**VISION, vision_use_head=False),
        mm_tokens_per_image=4,
        image_token_index=IMAGE,
    )


def smolvlm():
    return transformers.SmolVLMConfig(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config={"model_type": "smolvlm_vision", **VISION, "image_size": 32},
        image_token_id=IMAGE,
        scale_factor=2,
    )


TOKENS = torch.tensor(
    [[3, 4, *[IMAGE] * 4, 5, 6, 7, 8, 9, 10, 11], [0, 0, 12, 13, *[IMAGE] * 4, 5, 6, 7, 8, 9]]
)


def compare_beams(folder, model, inputs, **other_inputs):
    """Greedy tokens and those of three beams, for prompts of which one is padded."""
    generator = opsetta.TextGenerator(folder)
    mask = (TOKENS != 0).long()
    for beams in (1, 3):
        options = {"max_new_tokens": 12, "num_beams": beams}
        expected = model.generate(
            TOKENS, attention_mask=mask, do_sample=False, **inputs, **other_inputs, **options
        )
        np.testing.assert_array_equal(generator.generate(TOKENS, mask, **inputs, **options), expected)


def test_tokens_of_an_image_attend_to_each_other(tmp_path):
    model = write_model("Gemma3ForConditionalGeneration", gemma3(), tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13)
    assert "token_type_ids" in written.graphs[-1].inputs
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    types = (TOKENS == IMAGE).long()
    compare_beams(tmp_path / "out", model, {"pixel_values": images}, token_type_ids=types)


@pytest.mark.sweep
def test_images_with_a_mask_of_pixels(tmp_path):
    """The first text has its image behind one that is padding, the image of the second one is smaller."""
    model = write_model("SmolVLMForConditionalGeneration", smolvlm(), tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13)
    assert written.graphs[1].inputs == ["pixel_values", "pixel_attention_mask"]
    images = torch.randn(2, 2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    mask = torch.ones(2, 2, 32, 32, dtype=torch.bool)
    mask[1, 0, 16:] = mask[1, 1] = mask[0, 0] = False
    images *= mask[:, :, None]
    compare_beams(tmp_path / "out", model, {"pixel_values": images, "pixel_attention_mask": mask})
    generator = opsetta.TextGenerator(tmp_path / "out")
    with pytest.raises(opsetta.UsageError, match="have 8 features, and the tokens 4 image tokens"):
        generator.generate(TOKENS[:1], pixel_values=torch.ones(1, 2, 3, 32, 32))


def save_processor(folder):
    """A tokenizer of words, and a processor of images of 16 pixels with a chat template."""
    words = {**{f"w{number}": number for number in range(IMAGE)}, "<image>": IMAGE}
    splitter = Tokenizer(models.WordLevel(words, unk_token="w0"))
    splitter.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=splitter, pad_token="w0", extra_special_tokens={"image_token": "<image>"}
    )
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template="{% for part in messages[0]['content'] %}{{ part['text'] or '<image> ' }}{% endfor %}",
    )
    processor.save_pretrained(folder)
    return processor


def test_images_are_processed(tmp_path):
    model = write_model("LlavaForConditionalGeneration", llava(), tmp_path)
    processor = save_processor(tmp_path)
    opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=17)
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    image = PIL.Image.fromarray(pixels)
    image.save(tmp_path / "image.png")
    inputs = processor(images=[image], text=["<image> w4 w5"], return_tensors="pt")
    expected = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs.input_ids.shape[1] :]
    generator = opsetta.TextGenerator(tmp_path / "out")
    for prompt, chat in (("<image> w4 w5", False), ("w4 w5", True)):
        [text] = generator.generate_about_images(
            [tmp_path / "image.png"], prompt, chat=chat, max_new_tokens=6
        )
        assert text == processor.decode(expected)
    with pytest.raises(opsetta.UsageError, match="refuses the text and the images: .*0 <image> tokens"):
        generator.generate_about_images([tmp_path / "image.png"], "w4")
    with pytest.raises(opsetta.ModelFileError, match="an image cannot be read"):
        generator.generate_about_images([tmp_path / "none.png"], "<image>")


LANGUAGE_MODELS = {
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "decoder_start_token_id": 0},
}


def blip2(model_type):
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {**TEXT, "model_type": model_type, **LANGUAGE_MODELS[model_type]}
    return transformers.Blip2Config(
        vision_config=VISION,
        qformer_config=size,
        text_config=text,
        num_query_tokens=3,
        image_token_index=IMAGE,
    )


def florence2():
    stages = {"depths": [1, 1], "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1]}
    widths = {"embed_dim": [16, 32], "num_heads": [2, 4], "num_groups": [2, 4], "projection_dim": 32}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    return transformers.Florence2Config(
        text_config={
            "model_type": "bart",
            "vocab_size": VOCABULARY,
            "d_model": 32,
            **layers,
            **heads,
            **tokens,
        },
        vision_config={**stages, **widths, "patch_prenorm": [False, True], "window_size": 4},
        image_token_id=IMAGE,
    )


@pytest.mark.parametrize(
    ("architecture", "config", "task"),
    [
        ("Florence2ForConditionalGeneration", florence2(), "image-to-text"),
        pytest.param(
            "Blip2ForConditionalGeneration", blip2("opt"), "image-text-to-text", marks=pytest.mark.sweep
        ),
        pytest.param("Blip2ForConditionalGeneration", blip2("t5"), "image-to-text", marks=pytest.mark.sweep),
    ],
)
def test_models_of_texts_read_images_in_texts(architecture, config, task, tmp_path):
    model = write_model(architecture, config, tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"size": {"height": 16, "width": 16}}')
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=13)
    assert written.task == task
    generator = opsetta.TextGenerator(tmp_path / "out")
    for batch in (1, 2):
        images = torch.randn(batch, 3, 16, 16, generator=torch.Generator().manual_seed(batch))
        features = model.get_image_features(images).pooler_output.shape[1]
        # The first text of two begins with padding.
        rows = [
            [0] * (batch - 1 - index) + [*[IMAGE] * features, 5, 6] + [7] * index for index in range(batch)
        ]
        tokens = torch.tensor(rows)
        inputs = {"input_ids": tokens, "attention_mask": (tokens != 0).long(), "pixel_values": images}
        for beams in (1, 3):
            options = {"max_new_tokens": 12, "num_beams": beams}
            expected = model.generate(**inputs, do_sample=False, **options)
            np.testing.assert_array_equal(generator.generate(**inputs, **options), expected)


def instructblip():
    return transformers.InstructBlipConfig(
        **{**blip2("opt").to_dict(), "model_type": "instructblip"},
    )


def aria():
    return transformers.AriaConfig(
        text_config={**TEXT, "model_type": "aria_text", "moe_num_experts": 2, "moe_num_shared_experts": 1},
        vision_config={**VISION, "model_type": "idefics3_vision"},
        projector_patch_to_query_dict={4: 2},
        image_token_index=IMAGE,
    )


@pytest.mark.parametrize(
    ("architecture", "config", "other_images"),
    [
        (
            "InstructBlipForConditionalGeneration",
            instructblip,
            {
                "qformer_input_ids": torch.tensor([[3, 4, 5, 0], [6, 7, 8, 9]]),
                "qformer_attention_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]),
            },
        ),
        pytest.param(
            "AriaForConditionalGeneration",
            aria,
            {"pixel_mask": torch.ones(2, 16, 16, dtype=torch.int64)},
            marks=pytest.mark.sweep,
        ),
    ],
)
def test_images_have_other_inputs_of_their_processor(architecture, config, other_images, tmp_path):
    model = write_model(architecture, config(), tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", task="image-text-to-text", opset=13)
    assert written.graphs[1].inputs == ["pixel_values", *other_images]
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    inputs = {"pixel_values": images, **other_images}
    count = model.get_image_features(**inputs).pooler_output.shape[1]
    tokens = torch.tensor([[3, *[IMAGE] * count, 5, 6], [4, *[IMAGE] * count, 7, 8]])
    inputs |= {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    generator = opsetta.TextGenerator(tmp_path / "out")
    expected = model.generate(**inputs, do_sample=False, max_new_tokens=8)
    np.testing.assert_array_equal(generator.generate(**inputs, max_new_tokens=8), expected)
    with pytest.raises(opsetta.UsageError, match="no argument pixel_masks"):
        generator.generate(**inputs, pixel_masks=images)


def test_arguments_for_other_media_need_no_inputs():
    class Model:
        def forward(self, input_ids, inputs_embeds, pixel_values, feature_attention_mask, use_audio_in_video):
            pass

        def get_image_features(self, pixel_values):
            pass

    check_parts(Model(), ())
    with pytest.raises(opsetta.UsageError, match="it has the argument feature_attention_mask"):
        check_parts(Model(), (), medium="audio", encoded="input_features", medium_arguments=())


def test_models_whose_images_are_more_than_embeddings_are_refused():
    with torch.device("meta"):
        model = transformers.IdeficsForVisionText2Text(transformers.IdeficsConfig(**TEXT))
    with pytest.raises(opsetta.UsageError, match="has the argument image_encoder_embeddings"):
        check_parts(model, ())


def test_decoders_with_embeddings_of_tokens_in_each_layer_are_refused(tmp_path):
    config = transformers.Gemma4Config(text_config={**TEXT, "hidden_size_per_layer_input": 8})
    with pytest.raises(opsetta.UsageError, match="reads embeddings of the tokens in each layer"):
        embed_call(TaskModel(torch.nn.Linear(1, 1), config, tmp_path))


def test_features_of_images_may_be_a_tensor():
    """Releases of transformers before 5 return no object with them."""
    model = types.SimpleNamespace(
        config=types.SimpleNamespace(image_token_id=9),
        get_input_embeddings=lambda: torch.nn.Embedding(10, 2),
        get_image_features=lambda pixel_values: pixel_values,
        get_encoder=lambda: lambda inputs_embeds, **_: types.SimpleNamespace(last_hidden_state=inputs_embeds),
    )
    images = torch.randn(1, 2, 2)
    inputs = {"input_ids": torch.tensor([[9, 9, 3]]), "pixel_values": images}
    assert torch.equal(_encode_image_text(model, inputs, [])[:, :2], images)


def test_features_of_images_may_be_those_of_the_model_without_its_head():
    images = torch.randn(1, 2, 2)
    owner = types.SimpleNamespace(get_image_features=lambda pixel_values: pixel_values)
    features = encode_media(types.SimpleNamespace(model=owner), {"pixel_values": images}, [])
    assert torch.equal(features, images[0])
