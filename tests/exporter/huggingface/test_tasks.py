"""Tasks of Hugging Face folders: the default task, and the files at other sizes than the example's."""

import json
import types
import warnings

import numpy as np
import pytest
import torch
import transformers

import opsetta
from opsetta.exporter.huggingface.graphs import TaskModel
from opsetta.exporter.huggingface.tasks.example_inputs import make_inputs
from opsetta.exporter.huggingface.tasks.selection import task_named
from opsetta.exporter.huggingface.tasks.table import TASKS

from ...models.generators import write_folder
from .task_inputs import other_inputs
from .task_models import (
    MODELS,
    bert,
    blocks_of_patches,
    causal_sounds,
    clip,
    convolved_patches,
    decisions,
    dpr,
    image_encoder,
    llava,
    masked_sounds,
    merged_patches,
    patches,
    series,
    tables,
    trocr,
    videoprism,
)

SLOW = (
    "sam detection features-of-a-detector segments matching spectrogram spectrogram-patches vits xvector "
    "owlvit depth ctc decisions super-resolution audio"
).split()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.sweep] if name in SLOW else []) for name in MODELS]
)
def test_each_task_agrees_at_other_sizes(name, tmp_path):
    task, architecture, config = MODELS[name]
    model = write_folder(architecture, config(), tmp_path / "folder")
    if name in ("detection", "features-of-a-detector", "segments", "semantic", "matching"):
        # The processor knows the size, and the configuration does not.
        settings = json.dumps({"size": {"height": 64, "width": 64}})
        (tmp_path / "folder" / "preprocessor_config.json").write_text(settings)
    written = opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=16)
    assert written.task == task
    program = opsetta.load(written.graphs[0].path)
    inputs = other_inputs(program)
    results = program.run({key: tensor.numpy() for key, tensor in inputs.items()})
    with torch.no_grad():
        expected = model(**inputs)
    for output, result in zip(program.output_names, results, strict=True):
        np.testing.assert_allclose(result, expected[output].numpy(), atol=1e-4, rtol=1e-3, err_msg=output)


def test_images_to_text(tmp_path):
    """An encoder of images with a decoder, as for speech."""
    model = write_folder("VisionEncoderDecoderModel", trocr(), tmp_path / "folder")
    written = opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=16, verify=True)
    assert written.task == "image-to-text"
    assert [graph.path.name for graph in written.graphs] == [
        "encoder_model.onnx",
        "decoder_model.onnx",
        "decoder_with_past_model.onnx",
    ]
    generator = opsetta.TextGenerator(tmp_path / "out")
    images = torch.randn(3, *generator._encoder.inputs["pixel_values"].shape[1:])
    options = {"max_new_tokens": 6, "decoder_start_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(images, do_sample=False, **options)
    results = generator.generate(pixel_values=images, decoder_input_ids=[[1]] * 3, max_new_tokens=6)
    np.testing.assert_array_equal(results, expected)
    with pytest.raises(opsetta.UsageError, match="needs pixel_values, not input_ids"):
        generator.generate([[3, 4]])


@pytest.mark.parametrize(
    ("opset", "modules", "settings"),
    [
        (11, None, None),
        (13, ["Pooling", "Normalize"], {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}),
        (18, ["Pooling"], {"pooling_mode_cls_token": True}),
        (18, ["Pooling", "Normalize"], {"pooling_mode": "lasttoken"}),
        (18, ["Pooling"], {"pooling_mode_max_tokens": True}),
        (18, ["Pooling"], {"pooling_mode_weightedmean_tokens": True}),
        (18, ["Pooling"], {"pooling_mode_mean_sqrt_len_tokens": True}),
    ],
)
def test_sentences_are_pooled_in_the_file(opset, modules, settings, tmp_path):
    model = write_folder("BertModel", bert(), tmp_path / "folder")
    if modules is not None:
        names = ["Transformer", *modules]
        paths = ["", *(f"{index}_{name}" for index, name in enumerate(modules, 1))]
        (tmp_path / "folder" / "modules.json").write_text(
            json.dumps([{"path": path, "type": f"a.{name}"} for path, name in zip(paths, names, strict=True)])
        )
        (tmp_path / "folder" / "1_Pooling").mkdir()
        (tmp_path / "folder" / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    written = opsetta.export_huggingface(
        tmp_path / "folder", tmp_path / "out", task="sentence-similarity", opset=opset
    )
    program = opsetta.load(written.graphs[0].path)
    inputs = other_inputs(program)
    tokens, vectors = program.run({key: tensor.numpy() for key, tensor in inputs.items()})
    states = model(**inputs).last_hidden_state.detach()
    mask = inputs["attention_mask"][..., None].float()
    weights = mask * torch.arange(1, 10)[:, None]
    total = (states * mask).sum(1)
    expected = {
        "cls_token": states[:, 0],
        "lasttoken": states[torch.arange(3), inputs["attention_mask"].sum(1) - 1],
        "max_tokens": states.masked_fill(mask == 0, -1e9).amax(1),
        "weightedmean_tokens": (states * weights).sum(1) / weights.sum(1),
        "mean_sqrt_len_tokens": total / mask.sum(1).sqrt(),
    }.get(next(iter(settings or {"": 0})).removeprefix("pooling_mode_"), total / mask.sum(1))
    if settings == {"pooling_mode": "lasttoken"}:
        expected = states[torch.arange(3), inputs["attention_mask"].sum(1) - 1]
    if modules and "Normalize" in modules:
        expected = torch.nn.functional.normalize(expected, dim=1)
    np.testing.assert_allclose(tokens, states, atol=1e-5)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "settings", "message"),
    [
        ("Dense", {}, "does not support the module Dense"),
        (
            "Pooling",
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "one mode of pooling",
        ),
        ("Pooling", {"pooling_mode_other_tokens": True}, "one mode of pooling"),
    ],
)
def test_other_modules_of_sentences_are_refused(module, settings, message, tmp_path):
    write_folder("BertModel", bert(), tmp_path)
    (tmp_path / "1_Module").mkdir()
    (tmp_path / "1_Module" / "config.json").write_text(json.dumps(settings))
    modules = [{"path": "", "type": "a.Transformer"}, {"path": "1_Module", "type": f"a.{module}"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(opsetta.UsageError, match=message):
        opsetta.export_huggingface(tmp_path, tmp_path / "out", task="sentence-similarity")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("text-generation-with-past", "text-generation"),
        ("causal-lm", "text-generation"),
        ("causal-lm-with-past", "text-generation"),
        ("seq2seq-lm-with-past", "text2text-generation"),
        ("speech2seq-lm", "automatic-speech-recognition"),
        ("masked-lm", "fill-mask"),
        ("summarization", "text2text-generation"),
        ("sequence-classification", "text-classification"),
        ("default", "feature-extraction"),
    ],
)
def test_names_that_optimum_has_for_a_task(name, task):
    assert task_named(name, transformers.BertConfig()).name == task


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fill-mask-with-past", "did you mean 'fill-mask'"),
        ("table-question-answering", "is not supported: export the model with opsetta.export"),
    ],
)
def test_names_of_tasks_that_are_refused(name, message):
    with pytest.raises(opsetta.UsageError, match=message):
        task_named(name, transformers.BertConfig())


@pytest.mark.parametrize(
    ("config", "record"),
    [
        (transformers.WhisperConfig(architectures=None), "AutoModelForSpeechSeq2Seq"),
        (transformers.Wav2Vec2Config(architectures=["Wav2Vec2Model"]), "AutoModelForCTC"),
        (transformers.BertConfig(), "AutoModelForSpeechSeq2Seq"),
    ],
)
def test_a_task_has_a_class_for_each_type_of_model(config, record):
    assert task_named("automatic-speech-recognition", config).auto_class == record


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        (
            "BartForSequenceClassification",
            transformers.BartConfig(
                vocab_size=50,
                d_model=16,
                encoder_layers=1,
                decoder_layers=1,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=16,
                decoder_ffn_dim=16,
                max_position_embeddings=32,
            ),
        ),
        (
            "T5ForSequenceClassification",
            transformers.T5Config(
                vocab_size=50,
                d_model=16,
                d_kv=8,
                d_ff=16,
                num_layers=1,
                num_heads=2,
                decoder_start_token_id=0,
                eos_token_id=2,
            ),
        ),
    ],
)
def test_an_encoder_decoder_classifies_the_state_of_the_end_token(architecture, config, tmp_path):
    model = write_folder(architecture, config, tmp_path / "folder")
    written = opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=13)
    assert written.task == "text-classification"
    program = opsetta.load(written.graphs[0].path)
    for texts in ([[5, 2]], [[5, 6, 2, 1, 1, 1], [5, 6, 7, 8, 9, 2], [7, 2, 1, 1, 1, 1]], [[2, 4, 5, 2]]):
        inputs = {"input_ids": torch.tensor(texts)}
        inputs["attention_mask"] = (inputs["input_ids"] != 1).long()
        [logits] = program.run({key: tensor.numpy() for key, tensor in inputs.items()})
        np.testing.assert_allclose(logits, model(**inputs).logits.detach(), atol=1e-5)


def test_weights_that_the_file_does_not_read_may_be_missing(tmp_path):
    """A masked language model has no pooler, and the last hidden state needs none."""
    model = write_folder("BertForMaskedLM", bert(), tmp_path / "folder")
    written = opsetta.export_huggingface(
        tmp_path / "folder", tmp_path / "out", task="feature-extraction", opset=13
    )
    program = opsetta.load(written.graphs[0].path)
    inputs = other_inputs(program)
    [states] = program.run({key: tensor.numpy() for key, tensor in inputs.items()})
    np.testing.assert_allclose(states, model.bert(**inputs).last_hidden_state.detach(), atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "make_config", "outputs"),
    [
        ("CLIPModel", clip, ["text_embeds", "image_embeds"]),
        ("LlavaModel", llava, ["last_hidden_state"]),
        ("DPRQuestionEncoder", dpr, ["pooler_output"]),
        ("Qwen2_5_VisionTransformerPretrainedModel", patches, ["pooler_output"]),
        ("VideoLlama3VisionModel", merged_patches, ["last_hidden_state"]),
        ("Lfm3VlVisionModel", convolved_patches, ["last_hidden_state"]),
        ("Inkling2VisionModel", blocks_of_patches, ["pooler_output"]),
        ("VoxtralRealtimeEncoder", causal_sounds, ["last_hidden_state"]),
        ("TimesFmModel", series, ["last_hidden_state"]),
        ("DecisionTransformerModel", decisions, ["last_hidden_state"]),
        ("AudioFlamingo3Encoder", masked_sounds, ["last_hidden_state"]),
        ("SmolVLMVisionTransformer", image_encoder, ["last_hidden_state"]),
        ("TapasModel", tables, ["last_hidden_state"]),
    ],
)
def test_features_agree_at_other_sizes(architecture, make_config, outputs, tmp_path):
    """Of texts and images, of texts alone, of other outputs, of patches, of masked sounds, of tables."""
    model = write_folder(architecture, make_config(), tmp_path / "folder")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        written = opsetta.export_huggingface(
            tmp_path / "folder", tmp_path / "out", task="feature-extraction", opset=13
        )
    alone = [str(item.message) for item in caught if "texts alone" in str(item.message)]
    assert alone == (
        ["the file is for texts alone, although LlavaModel is a model of image, text"]
        if architecture == "LlavaModel"
        else []
    )
    program = opsetta.load(written.graphs[0].path)
    assert program.output_names == outputs
    inputs = other_inputs(program)
    results = program.run({key: tensor.numpy() for key, tensor in inputs.items()})
    with torch.no_grad():
        expected = model(**inputs)
    for output, result in zip(outputs, results, strict=True):
        np.testing.assert_allclose(result, expected[output].numpy(), atol=1e-4, rtol=1e-3, err_msg=output)


def test_models_with_other_inputs_are_refused(tmp_path):
    """The encoder of Gemma 4 reads the positions of patches."""
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = transformers.Gemma4VisionConfig(**size, head_dim=8, intermediate_size=16)
    write_folder("Gemma4VisionModel", config, tmp_path / "gemma")
    with pytest.raises(opsetta.UsageError, match="needs the input pixel_position_ids"):
        opsetta.export_huggingface(tmp_path / "gemma", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_configuration_without_the_size_of_an_input_is_refused(tmp_path):
    source = TaskModel(torch.nn.Linear(1, 1), transformers.BertConfig(), tmp_path)
    with pytest.raises(opsetta.UsageError, match="type 'bert' has no num_mel_bins"):
        make_inputs(source, {"input_features": {0: "batch_size"}})
    with pytest.raises(opsetta.UsageError, match="have the input hidden_states, of which this task makes no"):
        make_inputs(source, {"hidden_states": {0: "batch_size"}})
    # The feature extractor may say it.
    (tmp_path / "preprocessor_config.json").write_text('{"feature_size": 7}')
    source = TaskModel(types.SimpleNamespace(dtype=torch.float32), source.config, tmp_path)
    [spectrogram] = make_inputs(source, {"input_features": {0: "batch_size"}}).values()
    assert spectrogram.shape[2] == 7


def test_characters_need_no_vocabulary(tmp_path):
    source = TaskModel(torch.nn.Linear(1, 1), transformers.CanineConfig(), tmp_path)
    [characters] = make_inputs(source, {"input_ids": {0: "batch_size", 1: "sequence_length"}}).values()
    assert characters.shape == (2, 6)


def test_classifiers_of_texts_and_images_are_exported_for_texts_alone(tmp_path):
    with torch.device("meta"):
        model = transformers.UltraVBertForMaskedLM(transformers.UltraVBertConfig())
    [record] = TASKS["fill-mask"]
    with pytest.warns(UserWarning, match="texts alone, although UltraVBertForMaskedLM is a model of image"):
        [(_, example)] = record.example_calls(TaskModel(model, model.config, tmp_path))
    assert list(example.inputs) == ["input_ids", "attention_mask"]


def test_text_is_generated_without_images_where_these_replace_tokens(tmp_path):
    model = transformers.LlavaForConditionalGeneration(llava()).eval()
    [record] = TASKS["text-generation"]
    with pytest.warns(UserWarning, match="texts alone, although LlavaForConditionalGeneration is a model of"):
        [(_, example)] = record.example_calls(TaskModel(model, model.config, tmp_path))
    assert "pixel_values" not in example.inputs


def test_videos_are_compared_with_texts(tmp_path):
    torch.manual_seed(0)
    model = transformers.VideoPrismClipModel(videoprism()).eval()
    [record] = TASKS["zero-shot-image-classification"]
    [(_, example)] = record.example_calls(TaskModel(model, model.config, tmp_path))
    assert example.outputs == ("logits_per_video", "logits_per_text", "text_embeds", "video_embeds")
    with torch.no_grad():
        results = example.call(model, example.inputs, [])
    assert results[0].shape == (2, 4)


def test_each_task_has_a_model():
    tested = {task for task, _, _ in MODELS.values()}
    elsewhere = {"text-generation", "text2text-generation", "image-to-text", "sentence-similarity"}
    elsewhere |= {
        "visual-question-answering",
        "image-text-to-text",
        "audio-text-to-text",
        "text-classification",
        "image-classification",
        "feature-extraction",
    }
    assert set(TASKS) == tested | elsewhere
