"""Exports of Hugging Face folders: names, weights, types, tasks, and what is refused."""

import dataclasses
import functools
import json
import shutil

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
import transformers

import opsetta
from opsetta.exporter.huggingface.graphs import GraphFile
from opsetta.exporter.huggingface.lowered_graphs import are_position_limits
from opsetta.exporter.huggingface.model_folders import load_lazily
from opsetta.exporter.huggingface.tasks import single_run
from opsetta.exporter.huggingface.tasks.record import Task
from opsetta.exporter.huggingface.tasks.selection import task_named, task_of
from opsetta.exporter.huggingface.tasks.table import TASKS
from opsetta.exporter.huggingface.transformers_folder import TransformersFolder

from ...models.generators import GENERATORS, VOCABULARY, write_folder, write_generator
from .task_table import PAGE, table, with_table

STAGES = ("capturing", "lowering", "verifying", "writing")
ENCODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A folder of a Llama."""
    folder = tmp_path_factory.mktemp("llama")
    write_generator("llama", folder)
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def exported(llama, tmp_path_factory):
    """The Llama at opset 17, with the stages that the export went through."""
    stages = []
    output = tmp_path_factory.mktemp("exported") / "new" / "folder"
    return opsetta.export_huggingface(llama, output, opset=17, verify=True, progress=stages.append), stages


def bert(folder):
    config = transformers.BertConfig(**ENCODER, num_labels=3)
    return write_folder("BertForSequenceClassification", config, folder)


def shapes(values):
    return {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim] for value in values
    }


def test_a_decoder_has_the_names_of_optimum(exported):
    [graph] = exported[0].graphs
    loaded = onnx.load(graph.path).graph
    cache = ["batch_size", 2, "past_sequence_length", 8]
    assert shapes(loaded.input) == {
        "input_ids": ["batch_size", "sequence_length"],
        "attention_mask": ["batch_size", "total_sequence_length"],
        "position_ids": ["batch_size", "sequence_length"],
        "past_key_values.0.key": cache,
        "past_key_values.0.value": cache,
        "past_key_values.1.key": cache,
        "past_key_values.1.value": cache,
    }
    assert graph.inputs == [value.name for value in loaded.input]
    expected = ["logits", *(f"present.{layer}.{part}" for layer in (0, 1) for part in ("key", "value"))]
    assert graph.outputs == [value.name for value in loaded.output] == expected
    assert shapes(loaded.output)["logits"] == ["batch_size", "sequence_length", VOCABULARY]


def test_the_result_says_what_was_written(exported, llama):
    found, stages = exported
    assert found.task == "text-generation"
    assert not found.weights_loaded
    assert found.copied == ["config.json", "generation_config.json", "tokenizer_config.json"]
    assert {path.name for path in found.folder.iterdir()} == {*found.copied, "model.onnx"}
    assert (found.folder / "config.json").read_bytes() == (llama / "config.json").read_bytes()
    assert found.graphs[0].report.max_absolute_error < 1e-5
    assert {"loading the model", *(f"model.onnx: {name}" for name in STAGES)} <= set(stages)


def test_weights_keep_the_names_of_the_checkpoint(exported):
    names = {tensor.name for tensor in onnx.load(exported[0].graphs[0].path).graph.initializer}
    assert "model.embed_tokens.weight" in names
    assert "model.layers.1.input_layernorm.weight" in names


@pytest.mark.sweep
def test_a_sharded_checkpoint_gives_the_same_file(exported, tmp_path):
    architecture, config = GENERATORS["llama"]
    write_folder(architecture, config(), tmp_path / "sharded", max_shard_size="20KB")
    assert (tmp_path / "sharded" / "model.safetensors.index.json").is_file()
    found = opsetta.export_huggingface(tmp_path / "sharded", tmp_path / "out", opset=17)
    assert found.graphs[0].path.read_bytes() == exported[0].graphs[0].path.read_bytes()


def test_weights_stay_in_the_checkpoint(llama, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(llama, folder)
    before = (folder / "config.json").stat().st_mtime_ns
    opsetta.export_huggingface(folder, folder, opset=13, weights="reference")
    loaded = onnx.load(folder / "model.onnx", load_external_data=False)
    entries = [entry for tensor in loaded.graph.initializer for entry in tensor.external_data]
    assert {entry.value for entry in entries if entry.key == "location"} == {"model.safetensors"}
    assert (folder / "config.json").stat().st_mtime_ns == before
    tokens = opsetta.TextGenerator(folder).generate([[3, 4]], max_new_tokens=2)
    assert tokens.shape == (1, 4)


def test_a_graph_casts_weights_of_another_type(tmp_path):
    """Weights in bfloat16 stay in the checkpoint of a model in float32."""
    config = transformers.LlamaConfig(**{**ENCODER, "num_key_value_heads": 2})
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).bfloat16().save_pretrained(tmp_path)
    files = sorted(tmp_path.iterdir())
    with pytest.raises(
        opsetta.UsageError, match=r"at opset 12 a graph cannot cast them to float32: pass opset=13"
    ):
        opsetta.export_huggingface(tmp_path, tmp_path, weights="reference", opset=12)
    assert sorted(tmp_path.iterdir()) == files
    [graph] = opsetta.export_huggingface(tmp_path, tmp_path, weights="reference", opset=13).graphs
    loaded = onnx.load(graph.path, load_external_data=False)
    stored = [
        t for t in loaded.graph.initializer if "model.safetensors" in {e.value for e in t.external_data}
    ]
    # Small weights are copied.
    assert len(stored) >= 7
    assert {tensor.data_type for tensor in stored} == {onnx.TensorProto.BFLOAT16}
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    prompt = torch.tensor([[5, 6, 7, 8]])
    expected = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, do_sample=False
    )
    tokens = opsetta.TextGenerator(tmp_path).generate(prompt, max_new_tokens=6)
    np.testing.assert_array_equal(tokens, expected)
    result = opsetta.export_huggingface(tmp_path, tmp_path, weights="reference", dtype="bfloat16", opset=18)
    loaded = onnx.load(result.graphs[0].path, load_external_data=False)
    assert "model.safetensors" in {entry.value for t in loaded.graph.initializer for entry in t.external_data}


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("fp16", "FLOAT16"), pytest.param("bfloat16", "BFLOAT16", marks=pytest.mark.sweep)],
)
def test_narrow_types(dtype, kind, llama, tmp_path):
    found = opsetta.export_huggingface(llama, tmp_path, opset=18, dtype=dtype)
    loaded = onnx.load(found.graphs[0].path)
    onnx.checker.check_model(loaded, full_check=True)
    values = (*loaded.graph.input, *loaded.graph.output)
    kinds = {value.name: value.type.tensor_type.elem_type for value in values}
    wanted = onnx.TensorProto.DataType.Value(kind)
    assert kinds["logits"] == kinds["past_key_values.0.key"] == kinds["present.1.value"] == wanted
    if kind == "FLOAT16":
        assert opsetta.TextGenerator(tmp_path).generate([[3, 4]], max_new_tokens=3).shape == (1, 5)


@pytest.mark.parametrize(
    ("opset", "options"),
    [
        (21, {"quantize": "int4"}),
        pytest.param(13, {"quantize": {"dtype": "int8", "embeddings": True}}, marks=pytest.mark.sweep),
        pytest.param(17, {"quantize": "int4", "target": "onnxruntime"}, marks=pytest.mark.sweep),
    ],
    ids=["int4", "int8", "MatMulNBits"],
)
def test_quantized_weights(opset, options, llama, tmp_path):
    found = opsetta.export_huggingface(llama, tmp_path, opset=opset, **options)
    [graph] = found.graphs
    assert graph.quantization.bytes_after < graph.quantization.bytes_before / 2
    assert graph.quantization.bytes_after == graph.weight_bytes
    assert len(graph.quantization.weights) == 15 + ("embeddings" in str(options))
    assert 0 < graph.quantization.error.maximum < 0.1
    assert 0 < graph.output_error.maximum < 0.5
    tokens = opsetta.TextGenerator(tmp_path).generate([[3, 4, 5]], max_new_tokens=3)
    assert tokens.shape == (1, 6)


def test_weights_that_transformers_converts_are_loaded(tmp_path, capsys):
    """The experts of Mixtral are separate tensors in checkpoints, and one in the model."""
    write_generator("mixtral", tmp_path / "folder")
    capsys.readouterr()
    assert opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=17).weights_loaded
    # transformers shows the progress of loading, unless it is told not to.
    assert "Loading weights" not in capsys.readouterr().err
    assert transformers.utils.logging.is_progress_bar_enabled()
    with pytest.raises(opsetta.UsageError, match="copy the weights"):
        opsetta.export_huggingface(tmp_path / "folder", tmp_path / "folder", weights="reference")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_that_transformers_keeps_in_float32(dtype, tmp_path):
    """T5 keeps the last layer of its feed-forward network, whose activations are large, in float16 only."""
    config = transformers.T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    write_folder("T5EncoderModel", config, tmp_path)
    expected = transformers.T5EncoderModel.from_pretrained(tmp_path, dtype=getattr(torch, dtype))
    [(loaded, _)] = TransformersFolder(tmp_path, "feature-extraction", None).load_calls(dtype)
    assert loaded.weights is not None
    types = {name: tensor.dtype for name, tensor in loaded.model.state_dict().items()}
    assert types == {name: tensor.dtype for name, tensor in expected.state_dict().items()}
    assert len(set(types.values())) == (2 if dtype == "float16" else 1)


@pytest.mark.parametrize(
    ("architecture", "config", "is_changed"),
    [
        (
            "FunnelModel",
            transformers.FunnelConfig(
                vocab_size=9, block_sizes=[1], d_model=8, n_head=2, d_head=4, d_inner=8, pad_token_id=3
            ),
            True,
        ),
        ("BertModel", transformers.BertConfig(**ENCODER, pad_token_id=3), False),
    ],
)
def test_weights_that_transformers_changes_after_reading(architecture, config, is_changed, tmp_path):
    """Funnel sets the embedding of the padding token to zero, whatever the checkpoint has."""
    model = getattr(transformers, architecture)(config)
    torch.nn.init.ones_(model.get_input_embeddings().weight)
    model.save_pretrained(tmp_path)
    [(loaded, _)] = TransformersFolder(tmp_path, "feature-extraction", None).load_calls("float32")
    assert (loaded.weights is None) == is_changed
    if is_changed:
        assert not loaded.model.get_input_embeddings().weight[3].any()


def test_transposed_weights_are_loaded(tmp_path):
    """Older checkpoints of Qwen3-VL have the transposed experts under the model's names."""
    text = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    text |= {"vocab_size": 9, "intermediate_size": 8, "moe_intermediate_size": 6, "num_experts": 2}
    vision = {"hidden_size": 8, "depth": 1, "num_heads": 2, "intermediate_size": 8, "out_hidden_size": 8}
    vision |= {"num_position_embeddings": 4, "deepstack_visual_indexes": [0]}
    config = transformers.Qwen3VLMoeConfig(text_config={**text, "head_dim": 4}, vision_config=vision)
    model = transformers.Qwen3VLMoeModel(config)
    state = model.state_dict()
    experts = next(name for name in state if name.endswith("gate_up_proj"))
    torch.nn.init.normal_(state[experts])
    safetensors.torch.save_file(
        {**state, experts: state[experts].mT.contiguous()}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    config.save_pretrained(tmp_path)

    def load_weights():
        return transformers.Qwen3VLMoeModel.from_pretrained(tmp_path, output_loading_info=True)

    loaded = load_lazily(tmp_path, lambda: transformers.Qwen3VLMoeModel(config), load_weights)
    assert loaded.weights is None
    assert torch.equal(loaded.model.state_dict()[experts], state[experts])


@pytest.mark.sweep
def test_features_of_a_folder_with_a_head(llama, tmp_path):
    """The model without its head has no prefix before its weights."""
    found = opsetta.export_huggingface(llama, tmp_path, task="feature-extraction", opset=17, verify=True)
    assert found.graphs[0].inputs == ["input_ids", "attention_mask"]
    assert found.graphs[0].outputs == ["last_hidden_state"]
    assert not found.weights_loaded


@pytest.mark.sweep
def test_tokenizers_say_which_inputs_they_give(tmp_path):
    bert(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"model_input_names": ["input_ids", "attention_mask"]}))
    found = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=11)
    assert found.graphs[0].inputs == ["input_ids", "attention_mask"]


def test_classes_of_texts(tmp_path):
    bert(tmp_path / "folder")
    found = opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=11, verify=True)
    assert found.task == "text-classification"
    assert found.graphs[0].inputs == ["input_ids", "attention_mask", "token_type_ids"]


@pytest.mark.parametrize(
    "size",
    [
        pytest.param({"height": 32, "width": 48}, id="both"),
        pytest.param({"shortest_edge": 32}, id="edge", marks=pytest.mark.sweep),
    ],
)
def test_classes_of_images(size, tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], num_labels=4)
    write_folder("ResNetForImageClassification", config, tmp_path / "folder")
    (tmp_path / "folder" / "preprocessor_config.json").write_text(json.dumps({"size": size}))
    found = opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=9, verify=True)
    assert found.task == "image-classification"
    assert found.copied == ["config.json", "preprocessor_config.json"]
    inputs = shapes(onnx.load(found.graphs[0].path).graph.input)
    assert inputs == {"pixel_values": ["batch_size", 3, "height", "width"]}


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("Qwen3ForCausalLM", "text-generation"),
        ("GPT2LMHeadModel", "text-generation"),
        ("T5ForConditionalGeneration", "text2text-generation"),
        ("MarianMTModel", "text2text-generation"),
        ("WhisperForConditionalGeneration", "automatic-speech-recognition"),
        ("RobertaForSequenceClassification", "text-classification"),
        ("ViTForImageClassification", "image-classification"),
        ("BertModel", "feature-extraction"),
    ],
)
def test_the_task_is_that_of_the_architecture(architecture, task):
    assert task_of(transformers.PretrainedConfig(architectures=[architecture])).name == task


def with_config(folder, tmp_path, **entries):
    """A copy of a folder with other entries in its configuration."""
    shutil.copytree(folder, tmp_path / "changed")
    path = tmp_path / "changed" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    return tmp_path / "changed"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"task": "text-generatoin"}, opsetta.UsageError, "did you mean 'text-generation'"),
        ({"task": "image-classification"}, opsetta.UsageError, "type 'llama' have no task image"),
        ({"task": "text-classification"}, opsetta.ModelFileError, r"lack 'score.weight' of LlamaFor"),
        ({"dtype": "int8"}, opsetta.UsageError, "dtype must be one of"),
        ({"weights": "none"}, opsetta.UsageError, "'copy' or 'reference'"),
        ({"quantize": "int2"}, opsetta.UsageError, "'int8' or 'int4'"),
        ({"opset": 5}, opsetta.OpsetError, "5"),
        pytest.param(
            {"opset": 11, "dtype": "bf16"},
            opsetta.UnsupportedOperatorsError,
            "opset 11",
            marks=pytest.mark.sweep,
        ),
    ],
)
def test_errors_come_before_anything_is_written(options, error, message, llama, tmp_path):
    with pytest.raises(error, match=message):
        opsetta.export_huggingface(llama, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("entries", "error", "message"),
    [
        ({"architectures": ["LlamaForNothing"]}, opsetta.UsageError, "has no default task"),
        ({"architectures": None}, opsetta.UsageError, "names no architecture"),
        ({"model_type": "no-such-model"}, opsetta.ModelFileError, "no-such-model"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, opsetta.ModelFileError, "'qweight'"),
        ({"hidden_size": 64}, opsetta.OpsettaError, "embed_tokens"),
    ],
)
def test_folders_that_do_not_fit(entries, error, message, llama, tmp_path):
    with pytest.raises(error, match=message):
        opsetta.export_huggingface(with_config(llama, tmp_path, **entries), tmp_path / "out")


def test_places_that_are_no_folders(llama, tmp_path):
    with pytest.raises(opsetta.ModelFileError, match="hf download"):
        opsetta.export_huggingface(tmp_path / "none", tmp_path / "out")
    with pytest.raises(opsetta.ModelFileError, match=r"no config\.json"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(opsetta.ModelFileError, match="is a file"):
        opsetta.export_huggingface(llama, tmp_path / "file")


@pytest.mark.parametrize("architecture", ["SiglipForImageClassification", "CLIPForImageClassification"])
def test_the_size_of_images_is_in_a_part_of_a_configuration(architecture, tmp_path):
    text = {key: size for key, size in ENCODER.items() if key != "vocab_size"}
    vision = {**text, "image_size": 24, "patch_size": 8, "num_channels": 3}
    config = getattr(transformers, architecture).config_class(
        text_config={**text, "vocab_size": VOCABULARY}, vision_config=vision, num_labels=4
    )
    write_folder(architecture, config, tmp_path / "folder")
    result = opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=18, verify=True)
    inputs = shapes(onnx.load(result.graphs[0].path).graph.input)
    assert inputs == {"pixel_values": ["batch_size", 3, 24, 24]}


def test_models_without_a_cache_are_refused(tmp_path):
    config = transformers.OpenAIGPTConfig(
        vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=4, n_positions=64
    )
    write_folder("OpenAIGPTLMHeadModel", config, tmp_path / "folder")
    with pytest.raises(opsetta.UsageError, match="returns no cache"):
        opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def git_config():
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.GitConfig(**SMALL, vision_config={**vision, "image_size": 16, "patch_size": 8})


SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


@pytest.mark.parametrize(
    ("architecture", "config", "modality", "task"),
    [
        ("GitForCausalLM", git_config, "image, text", "text-generation"),
        ("LayoutLMv3Model", "LayoutLMv3Config", "image, layout, text", "sentence-similarity"),
        ("VisualBertModel", "VisualBertConfig", "image, text", None),
        ("MarkupLMModel", "MarkupLMConfig", "markup, text", "sentence-similarity"),
    ],
)
def test_models_of_more_than_text_are_refused_by_name(architecture, config, modality, task, tmp_path):
    settings = getattr(transformers, config)(**SMALL) if isinstance(config, str) else config()
    write_folder(architecture, settings, tmp_path)
    with pytest.raises(opsetta.UsageError, match=f"{architecture} is a model of {modality}"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out", task=task)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("module", "settings", "task"),
    [
        ({"path": "", "type": "sentence_transformers.models.Transformer"}, {}, "feature-extraction"),
        ({"path": ""}, {"transformer_task": "sequence-classification"}, "text-classification"),
        ({"path": "", "type": "a.Transformer"}, {"transformer_task": "text-generation"}, "text-generation"),
        ({"path": "", "type": "sentence_transformers.models.CLIPModel"}, {}, "text-generation"),
        ({"path": "0_Transformer", "type": "a.Transformer"}, {}, "text-generation"),
        ({"path": "", "type": "a.models.MLMTransformer"}, {}, "fill-mask"),
        ({"path": "", "type": "a.Transformer"}, {"transformer_task": "retrieval"}, "a model for retrieval"),
    ],
)
def test_sentence_transformers_choose_the_task(module, settings, task, llama, tmp_path):
    """The architecture of such a folder may be one that generates text."""
    folder = tmp_path / "folder"
    shutil.copytree(llama, folder)
    (folder / "modules.json").write_text(json.dumps([module, {"path": "1_Pooling"}]))
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    if task not in TASKS:
        with pytest.raises(opsetta.UsageError, match=task):
            opsetta.export_huggingface(folder, tmp_path / "out")
        return
    assert TransformersFolder(folder, None, None).task == task
    assert TransformersFolder(folder, "text-classification", None).task == "text-classification"


def test_vectors_of_a_model_that_generates(llama, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(llama, folder)
    (folder / "modules.json").write_text(json.dumps([{"path": ""}, {"path": "1_Pooling"}]))
    written = opsetta.export_huggingface(folder, tmp_path / "out", opset=17)
    assert written.task == "feature-extraction"
    assert written.graphs[0].outputs == ["last_hidden_state"]


def t5_config():
    return transformers.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)


def bart_config():
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    return transformers.BartConfig(
        vocab_size=50, d_model=16, **layers, encoder_attention_heads=2, decoder_attention_heads=2
    )


@pytest.mark.parametrize(
    ("architecture", "config", "task"),
    [
        ("T5EncoderModel", t5_config, None),
        ("T5ForConditionalGeneration", t5_config, "feature-extraction"),
        ("BartModel", bart_config, None),
    ],
)
def test_features_of_the_encoder_of_an_encoder_decoder(architecture, config, task, tmp_path):
    model = write_folder(architecture, config(), tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=17, task=task, verify=True)
    assert written.task == "feature-extraction"
    tokens, mask = torch.tensor([[5, 6, 7, 0]]), torch.tensor([[1, 1, 1, 0]])
    [features] = opsetta.load(written.graphs[0].path).run({"input_ids": tokens, "attention_mask": mask})
    expected = model.get_encoder()(tokens, attention_mask=mask).last_hidden_state
    np.testing.assert_allclose(features, expected.detach().numpy(), atol=1e-5)


def test_an_encoder_and_a_decoder_of_other_models(tmp_path):
    """The encoder has another width than the decoder, and the configuration names neither."""
    encoder = transformers.BertConfig(**{**SMALL, "hidden_size": 8})
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, transformers.BertConfig(**SMALL), decoder_start_token_id=2, pad_token_id=0
    )
    write_folder("EncoderDecoderModel", config, tmp_path)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=17, verify=True)
    assert written.task == "text2text-generation"
    assert all(graph.report for graph in written.graphs)


def test_an_adapter_beside_the_weights_is_refused(llama, tmp_path):
    """transformers adds it to the weights, if peft is installed."""
    folder = tmp_path / "folder"
    shutil.copytree(llama, folder)
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    shutil.copy(folder / "model.safetensors", folder / "adapter_model.safetensors")
    with pytest.raises(opsetta.UsageError, match="move the files of the adapter to a folder of their own"):
        opsetta.export_huggingface(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_modules_of_sentence_transformers_are_copied(llama, tmp_path):
    """Pooling, dense layers with their weights, and normalization, which has an empty folder or none."""
    folder = tmp_path / "model"
    shutil.copytree(llama, folder)
    modules = [{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"}, {"path": "3_Normalize"}]
    files = {
        "modules.json": json.dumps(modules),
        "config_sentence_transformers.json": "{}",
        "sentence_bert_config.json": "{}",
        "1_Pooling/config.json": '{"pooling_mode_mean_tokens": true}',
        "2_Dense/config.json": "{}",
        "2_Dense/model.safetensors": "weights",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    (folder / "README.md").write_text("")
    written = opsetta.export_huggingface(folder, tmp_path / "out", task="feature-extraction", opset=17)
    assert set(files) <= set(written.copied)
    for name, content in files.items():
        assert (tmp_path / "out" / name).read_text() == content
    assert not (tmp_path / "out" / "README.md").exists()
    for path in ("../llama", "/etc", "1_Pooling/../../x"):
        (folder / "modules.json").write_text(json.dumps([{"path": path}]))
        with pytest.raises(opsetta.ModelFileError, match=r"modules\.json"):
            opsetta.export_huggingface(folder, tmp_path / "other", task="feature-extraction", opset=17)


def test_every_task_has_a_table_in_transformers():
    tables = transformers.models.auto.modeling_auto
    for task in (record for records in TASKS.values() for record in records):
        assert hasattr(transformers, task.auto_class)
        if task.mapping is None:
            assert task.model_type in transformers.CONFIG_MAPPING
        else:
            assert getattr(tables, task.mapping)
        if task.encoder_class is not None:
            assert hasattr(transformers, task.encoder_class)
            assert getattr(tables, task.encoder_mapping)


@pytest.mark.parametrize("missing", ["build", "files"])
def test_a_task_needs_its_builder_and_its_files(missing):
    entries = {field.name: getattr(FILL_MASK, field.name) for field in dataclasses.fields(Task)}
    del entries[missing]
    with pytest.raises(TypeError, match=missing):
        Task(**entries)


FILL_MASK = Task(
    "fill-mask",
    "AutoModelForMaskedLM",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    functools.partial(
        single_run.example_calls,
        inputs={"input_ids": {0: "batch_size", 1: "sequence_length"}},
        outputs=("logits",),
    ),
    (GraphFile("masked.onnx", {"input_ids": {0: "texts"}}, ("logits",)),),
)


def test_a_record_is_all_that_a_task_needs(tmp_path, monkeypatch):
    """The file, the inputs, their dynamic axes and the outputs are those of the record."""
    monkeypatch.setitem(TASKS, "fill-mask", (FILL_MASK,))
    config = transformers.BertConfig(**ENCODER, type_vocab_size=1)
    write_folder("BertForMaskedLM", config, tmp_path / "folder")
    written = opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=13, verify=True)
    assert written.task == "fill-mask"
    loaded = onnx.load(tmp_path / "out" / "masked.onnx").graph
    assert shapes(loaded.input) == {"input_ids": ["texts", 6]}
    assert shapes(loaded.output) == {"logits": ["texts", 6, VOCABULARY]}


def test_a_builder_must_serve_each_file_of_its_task(tmp_path, monkeypatch):
    """A task without a call for one of its files is an error, and exports nothing."""
    files = (*FILL_MASK.files, dataclasses.replace(FILL_MASK.files[0], name="second.onnx"))
    monkeypatch.setitem(TASKS, "fill-mask", (dataclasses.replace(FILL_MASK, files=files),))
    write_folder("BertForMaskedLM", transformers.BertConfig(**ENCODER), tmp_path / "folder")
    with pytest.raises(ValueError, match="shorter"):
        opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=13)
    assert not (tmp_path / "out").exists()


def test_documentation_has_the_table_of_tasks():
    page = PAGE.read_text(encoding="utf-8")
    assert table() in page
    assert with_table(page) == page, "run: python -m tests.exporter.huggingface.task_table"


def test_error_for_an_unknown_task_lists_all_tasks():
    with pytest.raises(opsetta.UsageError) as caught:
        task_named("text-classifcation", transformers.BertConfig())
    assert "did you mean 'text-classification'" in str(caught.value)
    assert all(name in str(caught.value) for name in TASKS)


@pytest.mark.sweep
def test_frequencies_that_depend_on_the_length(tmp_path):
    """Phi 3 has other frequencies beyond the length that it was trained with first."""
    architecture, config = GENERATORS["phi3"]
    longer = config()
    longer.max_position_embeddings = 64
    longer.original_max_position_embeddings = 16
    longer.rope_parameters = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "partial_rotary_factor": 1.0,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "original_max_position_embeddings": 16,
    }
    model = write_folder(architecture, longer, tmp_path / "folder")
    opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=17)
    generator = opsetta.TextGenerator(tmp_path / "out")
    for length in (4, 20):
        tokens = torch.arange(3, 3 + length)[None]
        mask = torch.ones_like(tokens)
        expected = model.generate(tokens, attention_mask=mask, max_new_tokens=5, do_sample=False)
        np.testing.assert_array_equal(generator.generate(tokens, max_new_tokens=5), expected)


@pytest.mark.parametrize(
    ("conditions", "accepted"),
    [
        (["encoder_sequence_length <= 65"], True),
        (["past_sequence_length + sequence_length <= 64"], True),
        (["past_sequence_length <= 63"], True),
        (["sequence_length <= 63"], False),
        (["sequence_length <= 65", "sequence_length - 1 != 1"], False),
        ([], False),
    ],
)
def test_the_table_of_positions_limits_lengths(conditions, accepted):
    assert are_position_limits(conditions, transformers.LlamaConfig(max_position_embeddings=64)) is accepted
    assert not are_position_limits(conditions, transformers.T5Config())


@pytest.mark.sweep
def test_a_model_that_enlarges_its_positions(tmp_path):
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    config = transformers.M2M100Config(
        vocab_size=50,
        d_model=16,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        max_position_embeddings=24,
        decoder_start_token_id=2,
        **sizes,
    )
    model = write_folder("M2M100ForConditionalGeneration", config, tmp_path / "m2m")
    opsetta.export_huggingface(tmp_path / "m2m", tmp_path / "out", opset=17)
    generator = opsetta.TextGenerator(tmp_path / "out")
    tokens = torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(tokens)
    mask[0, 6:] = 0
    expected = model.generate(tokens, attention_mask=mask, max_new_tokens=8, do_sample=False)
    results = generator.generate(tokens.numpy(), mask.numpy(), max_new_tokens=8)
    np.testing.assert_array_equal(results, expected)
    with pytest.raises(opsetta.DimensionError, match="encoder_sequence_length"):
        generator.generate(np.full((1, 40), 5))
