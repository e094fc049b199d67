"""Folders of peft, diffusers and timm."""

import json
import sys

import diffusers
import numpy as np
import onnxruntime
import peft
import pytest
import torch
import transformers

import opsetta
from opsetta.exporter.huggingface.timm_models import complete_timm_config

from ...models import pipelines
from ...models.generators import VOCABULARY, write_generator


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    write_generator("llama", folder)
    return folder


def write_adapter(model, folder, **settings):
    """Add an adapter to a model, and write it; returns the model with the adapter in its weights."""
    settings = {"r": 2, "lora_alpha": 8, "init_lora_weights": False, **settings}
    adapted = peft.get_peft_model(model, peft.LoraConfig(**settings))
    adapted.save_pretrained(folder)
    return adapted.merge_and_unload().eval()


def run(path, inputs):
    session = onnxruntime.InferenceSession(path)
    return session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})


def test_an_adapter_is_merged_into_its_base(llama, tmp_path):
    base = transformers.AutoModelForCausalLM.from_pretrained(llama)
    merged = write_adapter(base, tmp_path / "adapter", target_modules=["q_proj"], task_type="CAUSAL_LM")
    written = opsetta.export_huggingface(tmp_path / "adapter", tmp_path / "out", opset=13)
    assert written.task == "text-generation"
    assert "config.json" in written.copied
    tokens = opsetta.TextGenerator(tmp_path / "out").generate([[5, 6, 7]], max_new_tokens=6)
    prompt = torch.tensor([[5, 6, 7]])
    mask = torch.ones_like(prompt)
    expected = merged.generate(prompt, attention_mask=mask, max_new_tokens=6, do_sample=False)
    np.testing.assert_array_equal(tokens, expected)


def test_matrices_of_an_adapter_are_inputs_for_others(llama, tmp_path):
    """The other adapter has another rank in one layer, and other scales."""
    layers = {"target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM"}
    others = {"rank_pattern": {"down_proj": 1}, "alpha_pattern": {"q_proj": 30}, "use_rslora": True, "r": 3}
    models = {
        name: write_adapter(
            transformers.AutoModelForCausalLM.from_pretrained(llama), tmp_path / name, **layers, **settings
        )
        for name, settings in {"first": {}, "other": others}.items()
    }
    written = opsetta.export_huggingface(tmp_path / "first", tmp_path / "out", opset=13, adapter="inputs")
    assert "model.layers.0.self_attn.q_proj.lora_A.weight" in written.graphs[0].inputs
    prompt = torch.tensor([[5, 6, 7]])
    mask = torch.ones_like(prompt)
    results = {}
    for name, model in models.items():
        # The values in the file are those of the exported adapter.
        adapter = tmp_path / name if name == "other" else None
        results[name] = opsetta.TextGenerator(tmp_path / "out", adapter=adapter).generate(prompt)
        expected = model.generate(prompt, attention_mask=mask, max_new_tokens=20, do_sample=False)
        np.testing.assert_array_equal(results[name], expected)
    assert not np.array_equal(results["first"], results["other"])
    settings = json.loads((tmp_path / "other" / "adapter_config.json").read_text())
    (tmp_path / "other" / "adapter_config.json").write_text(json.dumps({**settings, "use_dora": True}))
    with pytest.raises(opsetta.UsageError, match="no adapter of plain LoRA matrices"):
        opsetta.TextGenerator(tmp_path / "out", adapter=tmp_path / "other")
    layers["target_modules"] = ["q_proj"]
    write_adapter(transformers.AutoModelForCausalLM.from_pretrained(llama), tmp_path / "fewer", **layers)
    with pytest.raises(opsetta.UsageError, match="only one of them has .*down_proj.lora_A.weight"):
        opsetta.TextGenerator(tmp_path / "out", adapter=tmp_path / "fewer")


def test_an_adapter_brings_a_head_and_embeddings(llama, tmp_path):
    """The classes are those of the adapter, and so is the number of tokens."""
    base = transformers.LlamaForSequenceClassification.from_pretrained(llama, num_labels=5)
    base.resize_token_embeddings(VOCABULARY + 3)
    merged = write_adapter(
        base,
        tmp_path / "adapter",
        target_modules=["v_proj"],
        modules_to_save=["score", "embed_tokens"],
        task_type="SEQ_CLS",
    )
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    (tmp_path / "adapter" / "adapter_config.json").write_text(
        json.dumps({**settings, "base_model_name_or_path": "somebody/unknown"})
    )
    with pytest.raises(opsetta.UsageError, match="somebody/unknown, which is not on this machine"):
        opsetta.export_huggingface(tmp_path / "adapter", tmp_path / "out")
    written = opsetta.export_huggingface(tmp_path / "adapter", tmp_path / "out", base_model=llama, opset=18)
    assert written.task == "text-classification"
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert (config.num_labels, config.vocab_size) == (5, VOCABULARY + 3)
    inputs = {"input_ids": torch.tensor([[VOCABULARY + 2, 4, 5]]), "attention_mask": torch.ones(1, 3).long()}
    [logits] = run(written.graphs[0].path, inputs)
    np.testing.assert_allclose(logits, merged(**inputs).logits.detach(), atol=1e-5)


def test_adapters_that_are_refused(llama, tmp_path):
    prompts = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    base = transformers.AutoModelForCausalLM.from_pretrained(llama)
    peft.get_peft_model(base, prompts).save_pretrained(tmp_path / "prompts")
    with pytest.raises(opsetta.UsageError, match="type PROMPT_TUNING, which cannot be merged"):
        opsetta.export_huggingface(tmp_path / "prompts", tmp_path / "out")
    with pytest.raises(opsetta.UsageError, match="layout transformers is not possible for adapters"):
        opsetta.export_huggingface(tmp_path / "prompts", tmp_path / "out", layout="transformers")
    with pytest.raises(opsetta.UsageError, match="layout genai is not possible for adapter='inputs'"):
        opsetta.export_huggingface(tmp_path / "prompts", tmp_path / "out", adapter="inputs", layout="genai")
    (tmp_path / "prompts" / "adapter_model.safetensors").unlink()
    with pytest.raises(opsetta.ModelFileError, match="has an adapter without weights"):
        opsetta.export_huggingface(tmp_path / "prompts", tmp_path / "out")
    for arguments in ({"base_model": llama}, {"adapter": "inputs"}):
        with pytest.raises(opsetta.UsageError, match="contains no adapter"):
            opsetta.export_huggingface(llama, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def stable_diffusion(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    pipelines.stable_diffusion(folder)
    return folder


@pytest.mark.sweep
def test_a_pipeline_has_the_files_of_optimum(stable_diffusion, tmp_path):
    written = opsetta.export_huggingface(stable_diffusion, tmp_path, opset=14, layout="optimum")
    assert written.task == "StableDiffusionPipeline"
    assert [graph.path.parent.name for graph in written.graphs] == [
        "text_encoder",
        "unet",
        "vae_encoder",
        "vae_decoder",
    ]
    assert {"model_index.json", "vae_encoder/config.json", "tokenizer/vocab.json"} <= set(written.copied)
    pipeline = diffusers.StableDiffusionPipeline.from_pretrained(stable_diffusion)
    text = {"input_ids": torch.tensor([[48, 3, 4, 49, 49]])}
    states, pooled, *hidden = run(tmp_path / "text_encoder" / "model.onnx", text)
    expected = pipeline.text_encoder(**text, output_hidden_states=True)
    np.testing.assert_allclose(states, expected.last_hidden_state.detach(), atol=1e-5)
    np.testing.assert_allclose(pooled, expected.pooler_output.detach(), atol=1e-5)
    np.testing.assert_allclose(hidden[1], expected.hidden_states[1].detach(), atol=1e-5)
    noise = {
        "sample": torch.randn(1, 4, 9, 5),  # Not multiples of the factor of the UNet.
        "timestep": torch.tensor(981.0),
        "encoder_hidden_states": torch.randn(1, 4, 16),
    }
    [result] = run(tmp_path / "unet" / "model.onnx", noise)
    np.testing.assert_allclose(result, pipeline.unet(**noise).sample.detach(), atol=1e-5)


@pytest.mark.parametrize("opset", [13, pytest.param(21, marks=pytest.mark.sweep)])
def test_an_autoencoder_has_an_encoder_and_a_decoder(opset, stable_diffusion, tmp_path):
    """A folder of one model of diffusers."""
    written = opsetta.export_huggingface(stable_diffusion / "vae", tmp_path, opset=opset)
    assert written.task == "AutoencoderKL"
    model = diffusers.AutoencoderKL.from_pretrained(stable_diffusion / "vae")
    latents, images = torch.randn(1, 4, 5, 7), torch.randn(1, 3, 6, 10)
    encoder, decoder = (graph.path for graph in written.graphs)
    [parameters] = run(encoder, {"sample": images})
    np.testing.assert_allclose(parameters, model.encode(images).latent_dist.parameters.detach(), atol=1e-5)
    [decoded] = run(decoder, {"latent_sample": latents})
    np.testing.assert_allclose(decoded, model.decode(latents).sample.detach(), atol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["stable_diffusion_xl", "stable_diffusion_3", "flux"])
def test_further_pipelines(name, tmp_path):
    getattr(pipelines, name)(tmp_path / "folder")
    written = opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", opset=17, verify=True)
    assert max(graph.report.max_absolute_error for graph in written.graphs) < 1e-4


def test_the_autoencoder_that_overflows_stays_in_float32(tmp_path):
    model = diffusers.AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, force_upcast=True)
    model.save_pretrained(tmp_path / "vae")
    written = opsetta.export_huggingface(tmp_path / "vae", tmp_path / "out", dtype="float16", opset=13)
    graph = opsetta.load(written.graphs[0].path).model.graph
    assert {str(value.dtype) for value in graph.inputs} == {"FLOAT"}


@pytest.mark.parametrize(
    ("index", "arguments", "error", "message"),
    [
        ({"unet": ["diffusers", "PriorTransformer"]}, {}, opsetta.UsageError, "class PriorTransformer"),
        ({"../unet": ["diffusers", "A"]}, {}, opsetta.ModelFileError, "a folder outside"),
        ({"scheduler": ["diffusers", "A"]}, {}, opsetta.ModelFileError, "lists no model"),
        ({}, {"task": "fill-mask"}, opsetta.UsageError, "has no task fill-mask"),
        ({"unet": ["diffusers", "UNet2DModel"]}, {"layout": "genai"}, opsetta.UsageError, "layout genai"),
        (
            {"unet": ["diffusers", "UNet2DModel"]},
            {"weights": "reference"},
            opsetta.UsageError,
            "copy the weights",
        ),
        ({}, {"base_model": "."}, opsetta.UsageError, "contains no adapter"),
    ],
)
def test_pipelines_that_are_refused(index, arguments, error, message, tmp_path):
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text("{}")
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "A", **index}))
    with pytest.raises(error, match=message):
        opsetta.export_huggingface(tmp_path, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("package", "files"),
    [
        ("timm", {"config.json": {"architecture": "resnet18"}}),
        ("diffusers", {"config.json": {"_class_name": "UNet2DModel", "_diffusers_version": "0"}}),
        ("peft", {"adapter_config.json": {}}),
    ],
)
def test_a_missing_package_is_named(package, files, tmp_path, monkeypatch):
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(opsetta.OpsettaError, match=f"pip install {package}"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("classes", "architecture"),
    [(10, "TimmWrapperForImageClassification"), (0, "TimmWrapperModel")],
)
def test_a_configuration_of_timm_names_a_class_of_transformers(classes, architecture):
    config = transformers.TimmWrapperConfig(model_args={"num_classes": classes, "depth": 3})
    config.num_labels = classes
    complete_timm_config(config)
    assert config.architectures == [architecture]
    assert config.model_args == {"depth": 3}
