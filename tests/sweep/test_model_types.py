"""The sweep of model types: small models, tasks, and the page."""

import json

import pytest
import torch
import transformers

from . import base_models, model_types, small_models


def test_small_configurations_keep_their_class():
    config = small_models.small_config("llama")
    assert (config.model_type, config.hidden_size, config.vocab_size, config.num_hidden_layers) == (
        "llama",
        32,
        99,
        2,
    )
    parts = small_models.small_config("clip")
    assert (parts.text_config.hidden_size, parts.vision_config.image_size) == (32, 32)
    # A setting with another name.
    assert small_models.small_config("gpt2").n_embd == 32
    with pytest.raises(small_models.NotSmallError, match="configuration: "):
        small_models.small_config("no-type")


def test_small_backbones_return_as_many_states_as_large_ones():
    config = small_models.small_config("depth_anything").backbone_config
    assert (config.num_hidden_layers, list(config.out_indices)) == (5, [2, 3, 4, 5])
    assert list(small_models.small_config("dpt").backbone_out_indices) == [1, 2, 3, 4]


def test_sizes_with_which_a_model_does_not_run_are_passed_over(tmp_path):
    ran = []

    def run(model, folder):
        ran.append(model.config.hidden_size)
        if len(ran) == 1:
            raise ValueError("too narrow")

    model = small_models.write_model("BertModel", "bert", tmp_path / "model", run)
    assert model.config.hidden_size == ran[1]
    # Where none of them runs, the first one is taken, for then the cause may be something else.
    assert (
        small_models.write_model("BertModel", "bert", tmp_path / "model", pytest.fail).config.hidden_size
        == 32
    )


def test_classes_without_an_output_of_the_task_have_no_task():
    bert = transformers.BertModel(small_models.small_config("bert"))
    assert model_types._missing_of_task("feature-extraction", bert) == ""
    sam = transformers.SamModel(small_models.small_config("sam"))
    assert model_types._missing_of_task("feature-extraction", sam).startswith(
        "SamModel declares iou_scores, "
    )


def test_models_that_generate_sounds_have_no_task_of_texts():
    with torch.device("meta"):
        model = transformers.DiaForConditionalGeneration(small_models.small_config("dia"))
    missing = model_types._missing_of_task("automatic-speech-recognition", model)
    assert missing == "DiaForConditionalGeneration generates audio, not text"


def test_models_that_generate_nothing_have_no_task_of_generation():
    policy = transformers.PI0ForConditionalGeneration(small_models.small_config("pi0"))
    missing = model_types._missing_of_task("image-text-to-text", policy)
    assert missing == "PI0ForConditionalGeneration does not generate"


def test_types_have_the_tasks_of_their_classes():
    tables = {"fill-mask": {"bert": "BertForMaskedLM"}, "ctc": {"wav2vec2": ("A", "B")}}
    assert small_models.tasks_of("bert", tables) == {"fill-mask": "BertForMaskedLM"}
    assert small_models.tasks_of("wav2vec2", tables) == {"ctc": "A"}
    assert set(small_models.model_types(tables)) == {"bert", "wav2vec2"}


def test_the_page_has_a_row_for_each_model(tmp_path):
    case = {"task": "fill-mask", "architecture": "BertForMaskedLM", "seconds": 1.5}
    entries = [
        {
            "entry": "bert",
            "cases": [
                case | {"opset": 13, "outcome": "right", "detail": ""},
                case | {"opset": 18, "outcome": "wrong", "detail": "a | <b>"},
                {"task": "x", "architecture": "Y", "outcome": "not built", "detail": ""},
                {"task": "z", "architecture": "Y", "outcome": "no task", "detail": ""},
            ],
        },
        {"entry": "slow", "cases": [{"detail": "it took more than 1 second"}]},
    ]
    (tmp_path / "outcomes.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{model_types._MARKER}\n\nold\n")
    files = {"Tasks": tmp_path / "outcomes.jsonl", "Others": tmp_path / "missing.jsonl"}
    model_types.write_page(files, page)
    lines = page.read_text().splitlines()
    assert lines[4] == "## Tasks"
    del lines[4:6]
    assert lines[4].startswith("2 model types; 1 pairs of type and task were exported, and 1 models were not")
    assert "The classes of 1 pairs have no output of the task." in lines[4]
    assert lines[4].endswith("1 types ran out of time or memory.")
    assert "| 18 | 0 | 0 | 1 | 0 |" in lines
    assert lines[-1] == "| bert | fill-mask | BertForMaskedLM | right | wrong | 1.5 / 1.5 | a / (b> |"


def test_inputs_of_base_models_have_the_sizes():
    class Model(torch.nn.Module):
        main_input_name = "input_ids"
        config = small_models.small_config("bert")

        def forward(self, input_ids, attention_mask=None):
            return input_ids * attention_mask

    model = Model()
    inputs = base_models.example_inputs(model, 3, 7)
    assert {name: tuple(tensor.shape) for name, tensor in inputs.items()} == {
        "input_ids": (3, 7),
        "attention_mask": (3, 7),
    }
    assert base_models.dynamic_axes(model, inputs)["input_ids"] == {0: "batch", 1: "length"}
    assert base_models.run(model, inputs)[0].shape == (3, 7)
    assert base_models.base_class("bert") == "BertModel"


def test_backbones_and_parts_of_base_models_fit():
    # A backbone of transformers for one of timm, stages by a divisor, and rotary sections of three axes.
    model, example = base_models.build("detr")
    assert model.config.backbone_config.model_type == "resnet"
    assert tuple(example["pixel_values"].shape) == (2, 3, 64, 64)
    assert base_models.build("swin")[0].config.embed_dim == 12
    config = small_models.small_config("qwen2_vl").get_text_config(decoder=True)
    assert config.rope_parameters["mrope_section"] == [2, 1, 1]
    # As many key and value heads as heads, as in the defaults.
    latent = base_models.build("deepseek_v3")[0].config
    assert latent.num_key_value_heads == latent.num_attention_heads == 4
    with pytest.raises(base_models.NoExampleError, match="no example of the input"):
        base_models.build("edgetam_video")


def test_equal_values_of_which_some_are_taken_are_ties():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.topk(2).values

    model = Model()
    assert small_models.has_ties(lambda: model(torch.tensor([[1.0, 1.0, 1.0]])))
    assert not small_models.has_ties(lambda: model(torch.tensor([[1.0, 2.0, 3.0]])))
